"""WHERE derivatives can be non-zero, found from plain torch functions, and their values for whole batches."""

from snapfm.structure.curvature import RowKind
from snapfm.structure.pattern import Pattern
from snapfm.structure.stack import Structure, analyze

__all__ = ["Pattern", "RowKind", "Structure", "analyze"]
