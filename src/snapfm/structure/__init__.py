"""WHERE derivatives can be non-zero, found from plain torch functions, and their values for whole batches."""

from snapfm.structure.compiled import CompiledLaws, compile_laws
from snapfm.structure.pattern import Pattern
from snapfm.structure.reads import RowKind

__all__ = ["CompiledLaws", "Pattern", "RowKind", "compile_laws"]
