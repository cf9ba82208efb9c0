"""Which operator calls are linear in the field with slopes that never change: those may be probed for their matrix."""

from __future__ import annotations

from snapfm.structure.rules.movement import accumulate, move, move_by_index
from snapfm.structure.rules.registry import Call, Operand, rule_for
from snapfm.structure.rules.transforms import resample, transform

_SUMS = {
    "add", "sub", "rsub", "neg", "deg2rad", "rad2deg", "sum", "mean", "nansum", "trace", "cumsum", "view_as_real",
    "view_as_complex", "real", "imag",
}  # fmt: skip
_PRODUCTS = {"mul", "mm", "bmm", "mv", "dot", "vdot", "convolution", "addmm", "baddbmm", "addmv", "addbmm"}
_FAMILIES = (move, move_by_index, accumulate, resample, transform)
_PICKS = ("amax", "amin", "prod")  # reductions of scatter_reduce that are not linear


def linear(call: Call) -> bool:
    """Whether a call is linear in what reads the field, all else being known."""
    operands = call.operands()
    reading = [operand for operand in operands if operand.reads is not None]
    if not all(operand.known for operand in operands if operand.reads is None):
        return False
    if call.name == "_to_copy":
        return bool(call.value.dtype.is_floating_point or call.value.is_complex())
    if call.name in _PRODUCTS:
        factors = call.args[1:3] if call.name.startswith("add") or call.name == "baddbmm" else call.args[:2]
        return sum(isinstance(one, Operand) and one.reads is not None for one in factors) <= 1
    if call.name == "div":
        under = call.args[1]
        return call.kwargs.get("rounding_mode") is None and not (isinstance(under, Operand) and under.reads is not None)
    if call.name == "where":
        return call.args[0].reads is None
    if call.name == "scatter_reduce" and call.args[4] in _PICKS:
        return False
    return call.name in _SUMS or (rule_for(call.target) in _FAMILIES and all(_plain(operand) for operand in reading))


def _plain(operand: Operand) -> bool:
    """Whether an operand holds numbers, not indices or masks."""
    return bool(operand.value.is_floating_point() or operand.value.is_complex())
