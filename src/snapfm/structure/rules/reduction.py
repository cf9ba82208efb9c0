"""Rules for operators that combine the elements along some axes: sums, means, norms, scans, extremes, sorts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from snapfm.arrays import Index
from snapfm.structure.rules.registry import Call, Found, dense, flat, positions, rule
from snapfm.structure.sets import Sets


@rule(
    "sum", "mean", "nansum", "prod", "linalg_vector_norm", "var", "std", "logsumexp", "var_mean", "std_mean", "amax",
    "amin", "max", "min", "median", "nanmedian", "mode", "argmax", "argmin", "any", "all", "count_nonzero",
)  # fmt: skip
def total(call: Call) -> Found:
    """Combine all elements along axes."""
    along = _along(call, _axes(call, 2 if call.name == "linalg_vector_norm" else 1))
    return (along, along) if isinstance(call.value, (tuple, list)) else along


@rule("trace")
def diagonal_total(call: Call) -> Found:
    """Add up the diagonal."""
    source = flat(positions(call.args[0].value.shape).diagonal())
    return call.reads(call.args[0]).group(np.zeros(len(source), np.int64), source, 1)


@rule("sort", "topk", "kthvalue")
def ordering(call: Call) -> Found:
    """Reorder along one axis by value: any element of the line may come out anywhere on it."""
    place = 1 if call.name == "sort" and call.target._overloadname != "stable" else 2
    axis = call.args[place] if len(call.args) > place else call.kwargs.get("dim", -1)
    # of kthvalue one of the line is left, and its axis may be gone
    line = _along(call, [axis]) if call.name == "kthvalue" else _line(call, axis, call.value[0].shape)
    return (line, line)


@rule("cumsum", "logcumsumexp", "cumprod", "cummax", "cummin")
def scan(call: Call) -> Found:
    """Combine each element with those before it on its line."""
    operand = call.args[0]
    axis = call.args[1] if len(call.args) > 1 else call.kwargs["dim"]
    if operand.value.dim() == 0:
        return dense(call)
    numbers = positions(operand.value.shape).movedim(axis, -1)
    length = numbers.shape[-1]
    later, earlier = np.tril_indices(length)
    lines = flat(numbers).reshape(-1, length) if length else np.zeros((0, 0), np.int64)
    result = call.reads(operand).group(lines[:, later].ravel(), lines[:, earlier].ravel(), operand.value.numel())
    return (result, result) if isinstance(call.value, (tuple, list)) else result


@rule("_softmax", "_log_softmax")
def normalized(call: Call) -> Found:
    """Mix a whole line into each of its elements."""
    return _line(call, call.args[1], call.value.shape)


def _line(call: Call, axis: int, shape: torch.Size) -> Sets:
    """Give every element of the result all that stands on its line along `axis`."""
    operand = call.args[0]
    if operand.value.dim() == 0:
        return call.reads(operand)
    merged = _along(call, [axis])
    kept = [1 if i == axis % operand.value.dim() else extent for i, extent in enumerate(operand.value.shape)]
    return merged.gather(flat(positions(tuple(kept)).expand(shape)))


def _along(call: Call, axes: list[int]) -> Sets:
    """Merge the elements along axes; the result is flattened without them."""
    sets = call.reads(call.args[0])
    label, size = labels(call.args[0].value.shape, axes)
    return sets.group(label, np.arange(sets.size), size)


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
