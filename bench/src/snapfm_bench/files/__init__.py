"""Files of the benchmark problems: simulated fields, and fields that a model draws under a problem's laws."""

from snapfm_bench.files.recipe import SampleRecipe
from snapfm_bench.files.simulated import DataRecipe, paper_count, write

__all__ = ["DataRecipe", "SampleRecipe", "paper_count", "write"]
