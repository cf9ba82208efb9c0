"""Rules for operators that combine the elements along some axes: sums, means, norms, scans, extremes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from snapfm.structure.dependence import KINK, Dependence
from snapfm.structure.rules.registry import Call, Tracked, dense, flat, positions, rule
from snapfm.structure.sets import Index


@rule("sum", "mean", "nansum", "trace")
def total(call: Call) -> Tracked:
    """Add along axes: linear."""
    if call.target.overloadpacket is torch.ops.aten.trace:
        source = flat(positions(call.args[0].value.shape).diagonal())
        return call.track(call.args[0]).group(np.zeros(len(source), np.int64), source, 1)
    return _along(call, _axes(call, 1))


@rule("prod", "linalg_vector_norm", "var", "std", "logsumexp")
def curved_total(call: Call) -> Tracked:
    """Combine along axes by a nonlinear function of all of them."""
    place = 2 if call.target.overloadpacket is torch.ops.aten.linalg_vector_norm else 1
    return call.events.curve(_along(call, _axes(call, place)))


@rule("var_mean", "std_mean")
def spread_and_mean(call: Call) -> Tracked:
    """Give the spread along axes, which bends, and the mean, which does not."""
    along = _along(call, _axes(call, 1))
    return (call.events.curve(along), along)


@rule("amax", "amin", "max", "min", "median", "nanmedian", "mode")
def extreme(call: Call) -> Tracked:
    """Pick one element along an axis: which one depends on the values."""
    picked = _along(call, _axes(call, 1)).marked(KINK)
    if isinstance(call.value, (tuple, list)):
        return (picked, picked.flattened())
    return picked


@rule("argmax", "argmin", "any", "all", "count_nonzero")
def flat_total(call: Call) -> Tracked:
    """Answer with an index or a yes or no: the slope vanishes."""
    return _along(call, _axes(call, 1)).flattened()


@rule("sort", "topk", "kthvalue")
def ordering(call: Call) -> Tracked:
    """Reorder along one axis by value: any element of the line may come out anywhere on it."""
    packet = call.target.overloadpacket
    place = 1 if packet is torch.ops.aten.sort and call.target._overloadname != "stable" else 2
    axis = call.args[place] if len(call.args) > place else call.kwargs.get("dim", -1)
    if packet is torch.ops.aten.kthvalue:  # one of the line is left, and its axis may be gone
        line = _along(call, [axis]).marked(KINK)
    else:
        line = _line(call, axis, call.value[0].shape).marked(KINK)
    return (line, line.flattened())


@rule("cumsum", "logcumsumexp", "cumprod", "cummax", "cummin")
def scan(call: Call) -> Tracked:
    """Combine each element with those before it on its line."""
    operand = call.args[0]
    axis = call.args[1] if len(call.args) > 1 else call.kwargs["dim"]
    name = call.target.overloadpacket.__name__
    if operand.value.dim() == 0:
        return dense(call)
    numbers = positions(operand.value.shape).movedim(axis, -1)
    length = numbers.shape[-1]
    later, earlier = np.tril_indices(length)
    lines = flat(numbers).reshape(-1, length) if length else np.zeros((0, 0), np.int64)
    label, source = lines[:, later].ravel(), lines[:, earlier].ravel()
    result = call.track(operand).group(label, source, operand.value.numel())
    if name in ("logcumsumexp", "cumprod"):
        return call.events.curve(result)
    if name in ("cummax", "cummin"):
        result = result.marked(KINK)
        return (result, result.flattened())
    return result


@rule("_softmax", "_log_softmax")
def normalized(call: Call) -> Tracked:
    """Mix a whole line into each of its elements, nonlinearly."""
    return call.events.curve(_line(call, call.args[1], call.value.shape))


def _line(call: Call, axis: int, shape: torch.Size) -> Dependence:
    """Give every element of the result all that stands on its line along `axis`."""
    operand = call.args[0]
    if operand.value.dim() == 0:
        return call.track(operand)
    merged = _merge(call.track(operand), operand.value.shape, [axis])
    kept = [1 if i == axis % operand.value.dim() else extent for i, extent in enumerate(operand.value.shape)]
    lines = positions(tuple(kept)).expand(shape)
    return merged.gather(flat(lines))


def _along(call: Call, axes: list[int]) -> Dependence:
    operand = call.args[0]
    return _merge(call.track(operand), operand.value.shape, axes)


def _merge(track: Dependence, shape: torch.Size, axes: list[int]) -> Dependence:
    """Merge the elements along axes; the result is flattened without them."""
    label, size = labels(shape, axes)
    return track.group(label, np.arange(track.size), size)


def labels(shape: torch.Size | tuple[int, ...], axes: list[int]) -> tuple[Index, int]:
    """Number the results of a reduction: for each element, the result it enters; and how many results there are."""
    reduced = {axis % len(shape) for axis in axes} if len(shape) else set()
    kept = tuple(1 if i in reduced else extent for i, extent in enumerate(shape))
    return flat(positions(kept).expand(tuple(shape))), int(np.prod(kept))


def _axes(call: Call, place: int) -> list[int]:
    """Read the axes of a reduction; none given means all."""
    given: Any = call.args[place] if len(call.args) > place else call.kwargs.get("dim")
    if isinstance(given, bool) or given is None or given == []:
        return list(range(call.args[0].value.dim()))
    return [given] if isinstance(given, int) else list(given)
