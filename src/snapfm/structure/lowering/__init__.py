"""From graphs of operators to listings of scalar operations, one file per family; importing this fills the table."""

from snapfm.structure.lowering import arithmetic, choice, contraction, functions, matrices, pairs, reduction
from snapfm.structure.lowering.listing import Block, Listing, Unlowerable
from snapfm.structure.lowering.walk import Walk

__all__ = [
    "Block", "Listing", "Unlowerable", "Walk", "arithmetic", "choice", "contraction", "functions", "matrices", "pairs",
    "reduction",
]  # fmt: skip
