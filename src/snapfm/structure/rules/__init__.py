"""Sparsity rules, one file per family of operators; importing this package fills the table."""

from snapfm.structure.rules import contraction, movement, pointwise, reduction, transforms
from snapfm.structure.rules.linear import linear
from snapfm.structure.rules.registry import Call, Operand, dense, rule_for

__all__ = [
    "Call", "Operand", "contraction", "dense", "linear", "movement", "pointwise", "reduction", "rule_for", "transforms",
]  # fmt: skip
