"""Constrained samples on disk: fields of a model, drawn block by block with their certificates into a file of `data`."""

from snapfm.generate.recipe import Recipe
from snapfm.generate.run import Generated, generate

__all__ = ["Generated", "Recipe", "generate"]
