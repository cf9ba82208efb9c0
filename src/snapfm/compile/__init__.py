"""WHERE derivatives can be non-zero, found from plain torch functions, and their values for whole batches."""

from snapfm.compile.compiled import CompiledLaws, compile_laws
from snapfm.compile.matrix_free import Linearization, MatrixFreeLaws, matrix_free
from snapfm.compile.sparsity.pattern import Pattern, TooDense
from snapfm.compile.sparsity.reads import RowKind
from snapfm.compile.stack import LawStack

__all__ = [
    "CompiledLaws", "LawStack", "Linearization", "MatrixFreeLaws", "Pattern", "RowKind", "TooDense", "compile_laws",
    "matrix_free",
]  # fmt: skip
