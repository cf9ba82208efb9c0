"""From graphs of operators to tapes of scalar operations, one file per family; importing this package fills the table."""

from snapfm.compile.lower import arithmetic, complex, functions, inverses, matrices, reduction
from snapfm.compile.lower.interpreter import Lowering, refuse_dense_maps
from snapfm.compile.lower.tape import Block, Form, Tape, Unlowerable

__all__ = [
    "Block", "Form", "Lowering", "Tape", "Unlowerable", "arithmetic", "complex", "functions", "inverses", "matrices",
    "reduction", "refuse_dense_maps",
]  # fmt: skip
