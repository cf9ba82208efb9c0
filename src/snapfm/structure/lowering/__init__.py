"""From graphs of operators to tapes of scalar operations, one file per family; importing this fills the table."""

from snapfm.structure.lowering import arithmetic, choice, contraction, functions, matrices, pairs, reduction
from snapfm.structure.lowering.tape import Block, Tape, Unlowerable
from snapfm.structure.lowering.walk import Walk

__all__ = [
    "Block", "Tape", "Unlowerable", "Walk", "arithmetic", "choice", "contraction", "functions", "matrices", "pairs",
    "reduction",
]  # fmt: skip
