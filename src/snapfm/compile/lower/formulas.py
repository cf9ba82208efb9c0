"""The table of lowerings, one entry per aten operator with a scalar form, and `Term` to write an entry as a formula.

Sums of terms and products with known numbers are linear and cost nothing at run time. Anything else adds a block of operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch.fx import Node

from snapfm.arrays import Index, Values
from snapfm.compile.lower.tape import ONE, Form, Tape, added, stacked
from snapfm.kernels.operators import Op
from snapfm.torch_internals import schema

if TYPE_CHECKING:
    from snapfm.compile.lower.interpreter import Lowering

# A lowering returns the form of a result, or a tuple of forms where torch returns several; None has no scalar form.
Lowered: TypeAlias = "Callable[[Lowering, Node], Form | tuple[Form | None, ...]]"

REAL: dict[str, Lowered] = {}
COMPLEX: dict[str, Lowered] = {}  # nonlinear operators on complex numbers that vary


def lowers(*names: str, table: dict[str, Lowered] = REAL) -> Callable[[Lowered], Lowered]:
    """Register a lowering for aten operators by name, every overload included."""

    def register(function: Lowered) -> Lowered:
        for name in names:
            if name in table:
                raise AssertionError(f"two lowerings for aten.{name}")
            table[name] = function
        return function

    return register


Operand: TypeAlias = "Term | float | Values"  # numbers are the same at every call, one for all elements or one for each


@dataclass(frozen=True, eq=False)
class Term:
    """A tensor's form together with the tape that new operators are added to."""

    tape: Tape
    form: Form

    def __add__(self, other: Operand) -> Term:
        right = self._like(other)
        return Term(self.tape, added(self.form, right.form, self.tape.cells))

    def __sub__(self, other: Operand) -> Term:
        return self + -self._like(other)

    def __rsub__(self, other: float | Values) -> Term:
        return self._like(other) - self

    def __neg__(self) -> Term:
        return self * -1.0

    def __mul__(self, other: Operand) -> Term:
        factor, own = self._numbers(other), self.known()
        if factor is not None:
            return Term(self.tape, self.form.scaled(factor))
        if own is not None:
            return Term(self.tape, self._like(other).form.scaled(own))
        return self.apply(Op.SQUARE) if other is self else self.apply(Op.MUL, other)

    def __truediv__(self, other: Operand) -> Term:
        divisor = self._numbers(other)
        return self.apply(Op.DIV, other) if divisor is None else Term(self.tape, self.form.scaled(1.0 / divisor))

    def apply(self, op: Op, *others: Operand) -> Term:
        """Apply an operator to each element of this and of the others."""
        forms = [self._like(other).form for other in others]
        return Term(self.tape, self.tape.apply(op, self.form, *forms))

    def held(self) -> Term:
        """Return the value without its slope."""
        return self if self.known() is not None else self.apply(Op.HOLD)

    def nonzero(self) -> Term:
        """Return 1 where an element is not zero, else 0."""
        return 1.0 - self.apply(Op.EQ, 0.0)

    def select(self, yes: Operand, no: Operand) -> Term:
        """Take elements of `yes` where this is not zero, of `no` elsewhere."""
        return self._like(yes).apply(Op.SELECT, self._like(no), self)

    def known(self) -> Values | None:
        """Return the elements if they are the same at every call."""
        matrix = self.form.matrix
        if (matrix.indices != ONE).any():
            return None
        total: Values = np.asarray(matrix.sum(axis=1)).reshape(-1)
        return total

    def gather(self, source: Index, shape: tuple[int, ...]) -> Term:
        """Copy elements."""
        return Term(self.tape, self.form.gather(source, shape))

    def sum(self, label: Index, size: int, shape: tuple[int, ...]) -> Term:
        """Add up the elements that have the same label."""
        ones = np.ones(self.form.size)
        return Term(self.tape, self.form.group(label, np.arange(self.form.size), ones, size, shape))

    def _numbers(self, other: Operand) -> Values | None:
        """Return what is known of another operand, one number for each element."""
        if isinstance(other, Term):
            return other.known()
        return np.broadcast_to(np.asarray(other, np.float64).reshape(-1), self.form.size)

    def _like(self, other: Operand) -> Term:
        if isinstance(other, Term):
            return other
        numbers = np.broadcast_to(np.asarray(other, np.float64).reshape(-1), self.form.size).reshape(self.form.shape)
        return Term(self.tape, self.tape.constant(torch.tensor(numbers)))


Formula: TypeAlias = "Callable[..., Term]"


def formula(*names: str, terms: int = 1) -> Callable[[Formula], Formula]:
    """Register a lowering written as a formula of the operator's first arguments; its other arguments go in by name.

    The first `terms` arguments arrive as terms of the result's shape, numbers among the others as floats.
    """

    def register(function: Formula) -> Formula:
        def lowered(walk: Lowering, node: Node) -> Form:
            given = list(arguments(node).items())
            options = {name: float(one) if isinstance(one, int | float) else one for name, one in given[terms:]}
            return function(*(walk.term(one, node) for _, one in given[:terms]), **options).form

        lowers(*names)(lowered)
        return function

    return register


def joined(terms: list[Term]) -> Term:
    """Put the elements of several terms one after the other."""
    tape = terms[0].tape
    return Term(tape, stacked([term.form for term in terms], tape.cells))


def arguments(node: Node) -> dict[str, Any]:
    """Return the arguments of an operator call by name, defaults included."""
    target: Any = node.target
    found = {}
    for place, argument in enumerate(schema(target).arguments):
        default = argument.default_value if argument.has_default_value() else None
        found[argument.name] = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name, default)
    return found
