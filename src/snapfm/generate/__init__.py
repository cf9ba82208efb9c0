"""Constrained samples on disk: a model's fields, drawn block by block with their certificates into a file of `data`."""

from snapfm.generate.recipe import Recipe
from snapfm.generate.run import Generated, generate

__all__ = ["Generated", "Recipe", "generate"]
