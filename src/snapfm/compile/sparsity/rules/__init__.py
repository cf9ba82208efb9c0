"""Sparsity rules by family of operators; importing this package fills the table."""

from snapfm.compile.sparsity.rules import mixing, movement
from snapfm.compile.sparsity.rules.registry import Operand, OperatorCall, dense, rule_for

__all__ = ["Operand", "OperatorCall", "dense", "mixing", "movement", "rule_for"]
