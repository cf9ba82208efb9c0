"""WHERE derivatives can be non-zero, found from plain torch functions, and their values for whole batches."""

from snapfm.structure.compiled import CompiledLaws, compile_laws
from snapfm.structure.matrix_free import Linearization, MatrixFreeLaws, matrix_free
from snapfm.structure.pattern import Pattern, TooDense
from snapfm.structure.reads import RowKind
from snapfm.structure.stack import LawStack

__all__ = [
    "CompiledLaws", "LawStack", "Linearization", "MatrixFreeLaws", "Pattern", "RowKind", "TooDense", "compile_laws",
    "matrix_free",
]  # fmt: skip
