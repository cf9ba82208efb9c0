"""Choices between values: extremes, limits, comparisons and where."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from snapfm.kernels.operations import Op
from snapfm.structure.forms import Form, added
from snapfm.structure.lowering.table import REAL, Lowered, lowers
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
        form = walk.listing.apply(Op.MAX, form, walk.spread(low, node))
    if high is not None:
        form = walk.listing.apply(Op.MIN, form, walk.spread(high, node))
    return form


@lowers("where")
def _where(walk: Walk, node: Node) -> Form:
    condition: Any
    condition, yes, no = node.args
    if walk.is_known(condition):
        mask = walk.value[condition].expand(walk.value[node].shape).reshape(-1).numpy().astype(float)
        taken, left = walk.spread(yes, node).scaled(mask), walk.spread(no, node).scaled(1.0 - mask)
        return added(taken, left, walk.listing.cells)
    chosen = walk.spread(condition, node)
    return walk.listing.apply(Op.SELECT, walk.spread(yes, node), walk.spread(no, node), chosen)


def _binary(op: Op, swapped: bool = False) -> Lowered:
    def lowered(walk: Walk, node: Node) -> Form:
        one, other = walk.spread(node.args[0], node), walk.spread(node.args[1], node)
        return walk.listing.apply(op, *((other, one) if swapped else (one, other)))

    return lowered


REAL |= {
    "maximum": _binary(Op.MAX), "minimum": _binary(Op.MIN), "gt": _binary(Op.GT), "lt": _binary(Op.GT, swapped=True),
    "ge": _binary(Op.GE), "le": _binary(Op.GE, swapped=True),
}  # fmt: skip
