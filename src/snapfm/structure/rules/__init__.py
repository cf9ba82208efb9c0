"""Sparsity rules, one file per family of operators; importing this package fills the table."""

from snapfm.structure.rules import contraction, movement, pointwise, reduction, resample, spectral
from snapfm.structure.rules.registry import Call, Operand, dense, rule_for, supported

__all__ = [
    "Call", "Operand", "contraction", "dense", "movement", "pointwise", "reduction", "resample", "rule_for", "spectral",
    "supported",
]  # fmt: skip
