"""Nonlinear operators on complex numbers, written out in real and imaginary parts: a form with a last axis of two.

What is linear in complex numbers needs no entry here. It stays a map until it meets a real number again (see `regions`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from snapfm.arrays import Values
from snapfm.compile.lower.formulas import COMPLEX, Term, joined, lowers
from snapfm.compile.lower.functions import angle_of
from snapfm.compile.lower.interpreter import Lowering
from snapfm.compile.lower.matrices import product
from snapfm.compile.lower.tape import Form
from snapfm.compile.sparsity.rules.registry import flat, positions
from snapfm.kernels.operators import Op

_MOST_FACTORS = 8  # whole powers up to this are products, larger ones exponentials


@dataclass(frozen=True, eq=False)
class Pair:
    """A complex tensor a + ib that formulas are written with."""

    a: Term
    b: Term

    def __add__(self, other: Pair) -> Pair:
        return Pair(self.a + other.a, self.b + other.b)

    def __mul__(self, other: Pair) -> Pair:
        """(a + ib)(c + id) = (ac − bd) + i(ad + bc)."""
        if other is self:
            return Pair(self.a * self.a - self.b * self.b, self.a * self.b * 2.0)
        return Pair(self.a * other.a - self.b * other.b, self.a * other.b + self.b * other.a)

    def __truediv__(self, other: Pair) -> Pair:
        """Multiply by the conjugate over the square of the magnitude."""
        size = other.size()
        over = self * Pair(other.a, -other.b)
        return Pair(over.a / size, over.b / size)

    def scaled(self, factor: Term | float) -> Pair:
        """Multiply by a real number."""
        return Pair(self.a * factor, self.b * factor)

    def size(self) -> Term:
        """Return the square of the magnitude."""
        return self.a * self.a + self.b * self.b

    def exp(self) -> Pair:
        """eᵃ (cos b + i sin b)."""
        return Pair(_of(self.b, Op.COS, np.cos), _of(self.b, Op.SIN, np.sin)).scaled(_of(self.a, Op.EXP, np.exp))

    def log(self) -> Pair:
        """½ log(a² + b²) + i atan2(b, a)."""
        return Pair(self.size().apply(Op.LOG) * 0.5, angle_of(self.b, self.a))

    def sqrt(self) -> Pair:
        """Take the larger part as a root and the other as a quotient, which does not cancel."""
        right = self.a.apply(Op.GE, 0.0)
        larger = ((self.size().apply(Op.SQRT) + right.select(self.a, -self.a)) * 0.5).apply(Op.SQRT)
        other = self.b / (larger * 2.0)
        upper = self.b.apply(Op.GE, 0.0) * 2.0 - 1.0  # 1 or −1: the root's imaginary part has the sign of b
        return Pair(right.select(larger, other * upper), right.select(other, larger * upper))

    def turned(self) -> Pair:
        """Multiply by i."""
        return Pair(-self.b, self.a)

    def sinh(self) -> Pair:
        """Sinh a cos b + i cosh a sin b."""
        return Pair(self.a.apply(Op.SINH) * self.b.apply(Op.COS), self.a.apply(Op.COSH) * self.b.apply(Op.SIN))

    def cosh(self) -> Pair:
        """Cosh a cos b + i sinh a sin b."""
        return Pair(self.a.apply(Op.COSH) * self.b.apply(Op.COS), self.a.apply(Op.SINH) * self.b.apply(Op.SIN))

    def form(self) -> Form:
        """Put the parts side by side, along a last axis of two."""
        shape = self.a.form.shape
        order = flat(positions((2, *shape)).movedim(0, -1))
        return joined([self.a, self.b]).gather(order, (*shape, 2)).form


def _of(term: Term, op: Op, function: Callable[[Values], Values]) -> Term:
    """Apply an operator; to known numbers here and now."""
    known = term.known()
    if known is None:
        return term.apply(op)
    return Term(term.tape, term.tape.constant(torch.from_numpy(function(known)).reshape(term.form.shape)))


def _pair(walk: Lowering, form: Form) -> Pair:
    numbers, shape = positions(form.shape), form.shape[:-1]
    whole = Term(walk.tape, form)
    return Pair(whole.gather(flat(numbers[..., 0]), shape), whole.gather(flat(numbers[..., 1]), shape))


def _formula(*names: str) -> Callable[[Callable[..., Pair]], Callable[..., Pair]]:
    """Register an operator of one or two complex numbers, broadcast to the result's shape."""

    def register(function: Callable[..., Pair]) -> Callable[..., Pair]:
        def lowered(walk: Lowering, node: Node) -> Form:
            return function(*(_pair(walk, walk.spread_pair(one, node)) for one in node.args)).form()

        lowers(*names, table=COMPLEX)(lowered)
        return function

    return register


_formula("mul")(lambda one, other: one * other)
_formula("div")(lambda one, other: one / other)
_formula("square")(lambda one: one * one)
_formula("exp")(lambda one: one.exp())
_formula("log")(lambda one: one.log())
_formula("sqrt")(lambda one: one.sqrt())
_formula("sinh")(lambda one: one.sinh())
_formula("cosh")(lambda one: one.cosh())
_formula("tanh")(lambda one: one.sinh() / one.cosh())
_formula("cos")(lambda one: one.turned().cosh())


@_formula("sin")
def _sin(one: Pair) -> Pair:
    """Sin z = −i sinh iz."""
    turned = one.turned().sinh()
    return Pair(turned.b, -turned.a)


@_formula("reciprocal")
def _reciprocal(one: Pair) -> Pair:
    size = one.size()
    return Pair(one.a / size, -one.b / size)


@lowers("pow", table=COMPLEX)
def _power(walk: Lowering, node: Node) -> Form:
    """Multiply for small whole exponents; else zʷ = exp(w log z)."""
    exponent: Any = node.args[1]
    base = _pair(walk, walk.spread_pair(node.args[0], node))
    if not isinstance(exponent, Node) and complex(exponent) in range(1, _MOST_FACTORS + 1):
        return _multiplied(base, int(complex(exponent).real)).form()
    return (base.log() * _pair(walk, walk.spread_pair(exponent, node))).exp().form()


def _multiplied(base: Pair, power: int) -> Pair:
    """Square and multiply."""
    if power == 1:
        return base
    half = _multiplied(base, power // 2)
    return half * half * base if power % 2 else half * half


@lowers("abs", table=COMPLEX)
def _magnitude(walk: Lowering, node: Node) -> Form:
    """√(a² + b²); its square, which has no kink at zero, is remembered for whoever squares it again."""
    size = _pair(walk, walk.pair(node.args[0])).size()
    walk.squares[node] = size.form
    return size.apply(Op.SQRT).form


@lowers("angle", table=COMPLEX)
def _angle(walk: Lowering, node: Node) -> Form:
    one = _pair(walk, walk.pair(node.args[0]))
    return angle_of(one.b, one.a).form


@lowers("mm", "bmm", "mv", "dot", table=COMPLEX)
def _matrix_product(walk: Lowering, node: Node) -> Form:
    """Multiply matrices that both vary, part by part."""
    one, other = (_pair(walk, walk.pair(argument)) for argument in node.args)
    shape = tuple(walk.value[node].shape)
    ac, bd, ad, bc = (
        Term(walk.tape, product(walk, left.form, right.form, shape))
        for left, right in ((one.a, other.a), (one.b, other.b), (one.a, other.b), (one.b, other.a))
    )
    return Pair(ac - bd, ad + bc).form()
