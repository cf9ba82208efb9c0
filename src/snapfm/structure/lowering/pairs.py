"""Complex numbers that bend: products, squares and magnitudes, written out in real and imaginary parts.

A complex tensor is a form with a last axis of two. What is linear in complex numbers needs no entry here: it stays a map
until it meets a real number again (see `regions`).
"""

from __future__ import annotations

import numpy as np
from torch.fx import Node

from snapfm.kernels.operators import Op
from snapfm.structure.lowering.table import COMPLEX, lowers
from snapfm.structure.lowering.tape import Form, Unlowerable, added, stacked
from snapfm.structure.lowering.walk import Walk
from snapfm.structure.rules.registry import flat, positions


@lowers("mul", table=COMPLEX)
def _mul(walk: Walk, node: Node) -> Form:
    """(a + ib)(c + id) = (ac − bd) + i(ad + bc)."""
    one, other = (walk.spread_pair(argument, node) for argument in node.args)
    (a, b), (c, d) = _parts(one), _parts(other)
    return _multiplied(walk, a, b, c, d)


@lowers("pow", table=COMPLEX)
def _pow(walk: Walk, node: Node) -> Form:
    exponent = node.args[1]
    if isinstance(exponent, Node) or complex(exponent) != 2.0:  # type: ignore[arg-type]
        raise Unlowerable(f"complex pow of {exponent}")
    a, b = _parts(walk.spread_pair(node.args[0], node))
    return _multiplied(walk, a, b, a, b)


@lowers("abs", table=COMPLEX)
def _abs(walk: Walk, node: Node) -> Form:
    """√(a² + b²); its square, which has no kink at zero, is remembered for whoever squares it again."""
    a, b = _parts(walk.pair(node.args[0]))
    one, other = (walk.tape.apply(Op.SQUARE, part) for part in (a, b))
    walk.squares[node] = added(one, other, walk.tape.cells)
    return walk.tape.apply(Op.SQRT, walk.squares[node])


def _multiplied(walk: Walk, a: Form, b: Form, c: Form, d: Form) -> Form:
    ac, bd, ad, bc = (walk.tape.apply(Op.MUL, *two) for two in ((a, c), (b, d), (a, d), (b, c)))
    minus = bd.scaled(np.full(bd.size, -1.0))
    cells = walk.tape.cells
    real, imaginary = added(ac, minus, cells), added(ad, bc, cells)
    shape = (*a.shape, 2)
    order = flat(positions((2, *a.shape)).movedim(0, -1))
    return stacked([real, imaginary], cells).gather(order, shape)


def _parts(pair: Form) -> tuple[Form, Form]:
    numbers, shape = positions(pair.shape), pair.shape[:-1]
    return pair.gather(flat(numbers[..., 0]), shape), pair.gather(flat(numbers[..., 1]), shape)
