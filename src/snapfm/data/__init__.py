"""Simulated fields on disk: sharded Zarr with all that was drawn for them, whole or under another name."""

from snapfm.data.recipe import Recipe, paper_count
from snapfm.data.write import Written, load, write

__all__ = ["Recipe", "Written", "load", "paper_count", "write"]
