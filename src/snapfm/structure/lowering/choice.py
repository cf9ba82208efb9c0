"""Choices between values: limits, where and masks, comparisons and logic."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.fx import Node

from snapfm.kernels.operators import Op
from snapfm.structure.lowering.formulas import Term
from snapfm.structure.lowering.table import Lowered, lowers
from snapfm.structure.lowering.tape import Form, Unlowerable, stacked
from snapfm.structure.lowering.walk import Walk


@lowers("clamp", "clamp_min", "clamp_max")
def _clamp(walk: Walk, node: Node) -> Form:
    name = node.target.overloadpacket.__name__  # type: ignore[union-attr]
    limits = [*node.args[1:], node.kwargs.get("min"), node.kwargs.get("max")]
    low, high = (limits[0], None) if name == "clamp_min" else (None, limits[0]) if name == "clamp_max" else limits[:2]
    if name == "clamp" and len(node.args) < 3:
        low = node.args[1] if len(node.args) > 1 else node.kwargs.get("min")
        high = node.kwargs.get("max")
    form = walk.spread(node.args[0], node)
    if low is not None:
        form = walk.tape.apply(Op.MAX, form, walk.spread(low, node))
    if high is not None:
        form = walk.tape.apply(Op.MIN, form, walk.spread(high, node))
    return form


@lowers("where")
def _where(walk: Walk, node: Node) -> Form:
    condition: Any
    condition, yes, no = node.args
    if walk.is_known(condition):
        mask = walk.value[condition].expand(walk.value[node].shape).reshape(-1).numpy()
        return _picked(walk, mask, walk.spread(yes, node), walk.spread(no, node))
    chosen = walk.spread(condition, node)
    return walk.tape.apply(Op.SELECT, walk.spread(yes, node), walk.spread(no, node), chosen)


@lowers("masked_fill")
def _masked_fill(walk: Walk, node: Node) -> Form:
    condition: Any
    kept, condition, fill = node.args
    if walk.is_known(condition):
        mask = walk.value[condition].expand(walk.value[node].shape).reshape(-1).numpy()
        return _picked(walk, mask, walk.spread(fill, node), walk.spread(kept, node))
    return walk.term(condition, node).select(walk.term(fill, node), walk.term(kept, node)).form


def _picked(walk: Walk, mask: npt.NDArray[np.bool_], yes: Form, no: Form) -> Form:
    """Choose by a known mask; copies, because 0 times an infinite fill would be NaN."""
    both = stacked([yes, no], walk.tape.cells)
    return both.gather(np.arange(len(mask)) + np.where(mask, 0, len(mask)), yes.shape)


def _swapped(op: Op) -> Lowered:
    def lowered(walk: Walk, node: Node) -> Form:
        one, other = walk.terms(node)
        return other.apply(op, one).form

    return lowered


lowers("lt")(_swapped(Op.GT))
lowers("le")(_swapped(Op.GE))


@lowers("ne")
def _unequal(walk: Walk, node: Node) -> Form:
    one, other = walk.terms(node)
    return (1.0 - one.apply(Op.EQ, other)).form


@lowers("logical_not", "bitwise_not")
def _negated(walk: Walk, node: Node) -> Form:
    return (1.0 - _truth(walk, node.args[0], node)).form


@lowers("logical_and", "bitwise_and")
def _both(walk: Walk, node: Node) -> Form:
    one, other = (_truth(walk, argument, node) for argument in node.args)
    return one.apply(Op.MIN, other).form


@lowers("logical_or", "bitwise_or")
def _either(walk: Walk, node: Node) -> Form:
    one, other = (_truth(walk, argument, node) for argument in node.args)
    return one.apply(Op.MAX, other).form


@lowers("logical_xor", "bitwise_xor")
def _one_of_two(walk: Walk, node: Node) -> Form:
    one, other = (_truth(walk, argument, node) for argument in node.args)
    return (1.0 - one.apply(Op.EQ, other)).form


def _truth(walk: Walk, argument: Any, node: Node) -> Term:
    """Give an argument of a logical operator as 0 and 1."""
    term = walk.term(argument, node)
    if isinstance(argument, bool) or (isinstance(argument, Node) and walk.value[argument].dtype == torch.bool):
        return term
    if walk.value[node].dtype != torch.bool:
        raise Unlowerable(f"{node.target} of integers")
    return term.nonzero()
