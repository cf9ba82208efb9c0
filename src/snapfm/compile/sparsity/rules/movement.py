"""Rules for operators that only move, copy or drop elements: views, slices, indexing, padding, joining, writing.

One rule serves them all: number the elements of every operand, run the operator itself on the numbers, and read off
where each element of the result came from. Constants are numbered zero, so what they write depends on nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.compile.sparsity.pattern import Sets, stacked, union
from snapfm.compile.sparsity.rules.registry import Found, Operand, OperatorCall, dense, flat, positions, rule
from snapfm.errors import LawError
from snapfm.torch_internals import tree_map

_FILL = {"constant_pad_nd": 2}  # operators with a fill value, and where it stands: a fill depends on nothing


@rule(
    "alias", "cat", "clone", "constant_pad_nd", "diag_embed", "diagonal", "diagonal_scatter", "expand", "flip",
    "permute", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "repeat", "replication_pad1d",
    "replication_pad2d", "replication_pad3d", "reshape", "roll", "rot90", "select", "select_scatter", "slice",
    "slice_scatter", "split", "split_with_sizes", "squeeze", "stack", "t", "transpose", "tril", "triu", "unbind",
    "unfold", "unsqueeze", "view", "block_diag", "im2col", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle",
)  # fmt: skip
def move(call: OperatorCall) -> Found:
    """Run the operator on element numbers; each element of the result is a copy of one element, or a constant."""
    sources: list[Sets] = []
    count = 1  # number 0 stands for "a constant"

    def number(leaf: Any) -> Any:
        nonlocal count
        if not isinstance(leaf, Operand):
            return leaf
        floating = leaf.value.dtype.is_floating_point or leaf.value.is_complex()
        if leaf.reads is None:
            return torch.zeros(leaf.value.shape, dtype=torch.float64) if floating else leaf.value
        first, count = count, count + leaf.value.numel()
        sources.append(leaf.reads)
        return positions(leaf.value.shape, first)

    name, plain = call.name, list(call.args)
    if name in _FILL and len(plain) > _FILL[name]:
        plain[_FILL[name]] = 0.0
    numbered_args = tree_map(number, tuple(plain))
    numbered_kwargs = {key: tree_map(number, value) for key, value in call.kwargs.items()}
    if name in ("masked_fill", "index_fill", "scatter") and not isinstance(numbered_args[-1], Tensor):
        numbered_args = (*numbered_args[:-1], 0.0)
    result = call.target(*numbered_args, **numbered_kwargs)

    pool = stacked(sources)
    if isinstance(result, Tensor):
        return pool.gather(flat(result) - 1)
    return tuple(pool.gather(flat(part) - 1) for part in result)


rule("view.dtype")(dense)  # the bits read as numbers of another type: nothing is known about those


@rule(
    "index", "index_select", "gather", "masked_fill", "masked_select", "scatter", "index_fill", "index_copy",
    "masked_scatter",
)  # fmt: skip
def move_by_index(call: OperatorCall) -> Found:
    """Move by index tensors; indices that are not the same at every call may fetch any element."""
    where = [leaf for leaf in call.operands() if not leaf.value.dtype.is_floating_point and not leaf.value.is_complex()]
    if "reduce" in call.kwargs or call.target in (torch.ops.aten.scatter.reduce, torch.ops.aten.scatter.value_reduce):
        return dense(call)
    if all(leaf.known for leaf in where):
        return move(call)
    return dense(call)


@rule("index_put", "scatter_add", "index_add", "scatter_reduce")
def accumulate(call: OperatorCall) -> Found:
    """Write or add by index: with known indices the written elements join those that were there."""
    name = call.name
    if name == "index_put":
        base, index, source = call.args[:3]
        adds = bool(call.args[3]) if len(call.args) > 3 else bool(call.kwargs.get("accumulate", False))
    else:
        base, axis, index, source = call.args[:4]
        adds = bool(call.kwargs.get("include_self", True))
    how = call.args[4] if name == "scatter_reduce" else "sum"
    if how == "prod":
        raise LawError(
            "scatter_reduce(reduce=...) expects 'sum', 'mean', 'amax' or 'amin'; got 'prod', whose derivative torch gets wrong "
            "for batches. Gather the factors and use torch.prod."
        )
    indices = index if name == "index_put" else [index]
    if not all(one is None or one.known for one in indices):
        return dense(call)

    numbers = positions(base.value.shape)
    if name == "index_put":
        hit = numbers[tuple(slice(None) if one is None else one.value for one in indices)]
    else:
        hit = numbers.index_select(axis, index.value) if name == "index_add" else numbers.gather(axis, index.value)
    if name in ("scatter_add", "scatter_reduce"):  # the index may be smaller than what it writes
        origin = flat(positions(source.value.shape)[tuple(slice(0, extent) for extent in hit.shape)])
    else:
        origin = flat(positions(source.value.shape).expand(hit.shape))
    target, kept = flat(hit), call.reads(base)
    written = call.reads(source).group(target, origin, kept.size)
    touched = np.zeros(kept.size, bool)
    touched[target] = True
    if not adds:
        kept = kept.keep(~touched)
    return union([kept, written])
