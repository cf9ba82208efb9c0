"""From graphs of operators to tapes of scalar operations, one file per family; importing this package fills the table."""

from snapfm.structure.lowering import arithmetic, complex, functions, inverses, matrices, reduction
from snapfm.structure.lowering.tape import Block, Form, Tape, Unlowerable
from snapfm.structure.lowering.walk import Walk, refuse_dense_maps

__all__ = [
    "Block", "Form", "Tape", "Unlowerable", "Walk", "arithmetic", "complex", "functions", "inverses", "matrices", "reduction",
    "refuse_dense_maps",
]  # fmt: skip
