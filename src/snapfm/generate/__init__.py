"""Lawful fields on disk: drawn by a model, or projected from a file, block by block, with their certificates."""

from snapfm.generate.named import Named, named
from snapfm.generate.own import OwnRecipe
from snapfm.generate.projected import ProjectedFile, Projecting, project_file
from snapfm.generate.recipe import Recipe
from snapfm.generate.run import Generated, generate

__all__ = [
    "Generated",
    "Named",
    "OwnRecipe",
    "ProjectedFile",
    "Projecting",
    "Recipe",
    "generate",
    "named",
    "project_file",
]
