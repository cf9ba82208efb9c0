"""Colored passes: Jacobian and Hessian values of a batch from few products with torch, for laws without a scalar form.

Rows that share no unknown are summed into one VJP (side "rows"); unknowns that share no row into one JVP (side "columns"). The
side is chosen per set of rows, because a total spans a slice (rows: one pass) while a stencil is local (columns). Passes run with
torch.func over the batch and are gathered straight into values. float64, on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.func import grad, vjp, vmap
from torch.fx import GraphModule

from snapfm.arrays import Index
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.compile.sparsity.propagate import dependents, reads_shape_only
from snapfm.compile.sparsity.rules import rule_for
from snapfm.compile.trace.batched import RAISED, chosen, isolated
from snapfm.compile.trace.recording import jvp
from snapfm.kernels.coloring import color_columns
from snapfm.laws import Params
from snapfm.torch_internals import silence_vmap

Side = Literal["rows", "columns"]

# Rows this many times wider than the median go into passes of their own when that saves passes.
_WIDE = 4


@dataclass(frozen=True)
class Passes:
    """Serve the given rows of a law with `count` products on one side; `colors` belongs to that side's vertices."""

    rows: Index
    pattern: Pattern  # of these rows alone
    entries: Index  # where their entries stand among all entries of the law
    side: Side
    colors: Index
    count: int


def plan_passes(pattern: Pattern, rows: Index, forward: bool = True) -> tuple[Passes, ...]:
    """Choose sides and colors for the given rows; `forward=False` rules out JVPs (an operator has none)."""
    if len(rows) == 0:
        return ()
    whole = _colored(pattern, rows, forward)
    counts = pattern.counts[rows]
    wide = counts > _WIDE * max(1.0, float(np.median(counts)))
    if not wide.any() or whole.count <= 2:
        return (whole,)
    parts = (_colored(pattern, rows[~wide], forward), _colored(pattern, rows[wide], forward))
    return parts if sum(part.count for part in parts) < whole.count else (whole,)


def _colored(pattern: Pattern, rows: Index, forward: bool) -> Passes:
    """Color the side with the lower bound first, and the other only if it could still win."""
    part, entries = pattern.take(rows), pattern.entries(rows)
    transposed = _transpose(part)
    row_bound = int(transposed.counts.max(initial=0))  # rows that meet in one unknown need as many colors
    column_bound = int(part.counts.max(initial=0)) if forward else np.iinfo(np.int64).max

    def by_rows() -> Passes:
        return Passes(rows, part, entries, "rows", *color_columns(transposed.indptr, transposed.indices, part.rows))

    def by_columns() -> Passes:
        return Passes(rows, part, entries, "columns", *color_columns(part.indptr, part.indices, part.columns))

    if row_bound <= column_bound:
        first = by_rows()
        return first if first.count <= column_bound else min(first, by_columns(), key=lambda passes: passes.count)
    first = by_columns()
    return first if first.count < row_bound else min(by_rows(), first, key=lambda passes: passes.count)


def _transpose(pattern: Pattern) -> Pattern:
    matrix = csr_array(
        (np.ones(pattern.nnz, bool), pattern.indices, pattern.indptr), shape=(pattern.rows, pattern.columns)
    ).tocsc()
    return Pattern(pattern.columns, pattern.rows, matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64))


Residual = Callable[[Tensor, Params], Tensor]

# A block of products is kept below this many numbers, those that stay in the caches: with 20 000 unknowns in 100 colors eight
# samples at once took 1.9 times as long as one by one.
_BLOCK = 400_000
# Agreement asked of products made at once and by themselves, relative to all of them together: rounding.
_AGREE = 1e-9
_ALONE = "snapfm: sample by sample"  # where a graph keeps what has been found out about it

# Torch warns that an operator's derivative is batched by a loop. Nobody who calls a projector can act on that, and where
# warnings are errors it would end the call. Python's filters cannot drop it safely: they are the process's own and change
# under other threads. Torch's own switch is set once, here, and no call touches it.
silence_vmap()


def jacobian_values(function: Residual, passes: Passes, u: Tensor, params: Params, out: Tensor) -> None:
    """Write the values of the passes' rows into out (b, nnz) at the passes' entries. Written: out.

    NaN for a sample whose law raises.
    """
    single, count = alone(function), passes.count
    entries, row, column, colors, rows = _places(passes)
    units = _seeds(colors, count, u) if passes.side == "columns" else u

    def by_columns(field: Tensor, params: Params) -> Tensor:
        return _by_seed(lambda seed: jvp(lambda x: function(x, params), field, seed), units, single)

    def by_rows(field: Tensor, params: Params) -> Tensor:
        value, pull = vjp(lambda x: function(x, params), field)[:2]
        seeds = value.new_zeros(count, value.shape[0])
        seeds = torch.index_put(seeds, (colors.clamp(min=0), rows), (colors >= 0).to(value.dtype))
        return _by_seed(lambda seed: pull(seed)[0], seeds, single).reshape(count, -1)

    columns = passes.side == "columns"
    places = (colors[column], rows[row]) if columns else (colors[row], column)
    try:
        _write(by_columns if columns else by_rows, single, passes, places, (u, dict(params)), out, entries)
    except RAISED:  # for every sample
        out[:, entries] = torch.nan


def hessian_values(function: Residual, passes: Passes, u: Tensor, params: Params, weight: Tensor, out: Tensor) -> None:
    """Write the values of Σλ∇²h (symmetric, so columns suffice) into out (b, nnz); weight is λ (b, m). Written: out.

    NaN for a sample whose law raises. Raises if it does for all of them: then it may have no second derivative at all.
    """
    single = alone(function)
    entries, row, column, colors, _ = _places(passes)
    seeds = _seeds(colors, passes.count, u)

    def products(field: Tensor, params: Params, weight: Tensor) -> Tensor:
        # Reverse over reverse: every operator with a backward of its backward has this, fewer have a JVP of it, and it
        # measured faster (Burgers, 9 colors, 32 samples: 0.58 s against 0.72 s).
        slope = grad(lambda x: (weight * function(x, params)).sum())
        pull = vjp(slope, field)[1]
        return _by_seed(lambda seed: pull(seed)[0], seeds, single).reshape(passes.count, -1)

    # Entry (i, j) is row i of the product with the seed of column j's color.
    _write(products, single, passes, (colors[column], row), (u, dict(params), weight), out, entries)


def _places(passes: Passes) -> tuple[Tensor, ...]:
    """Return entries, their rows and columns, colors and rows as tensors."""
    pattern = passes.pattern
    given = passes.entries, pattern.row_of(), pattern.indices, passes.colors, passes.rows
    return tuple(torch.from_numpy(one) for one in given)


def _write(
    products: Callable[..., Tensor], single: bool, passes: Passes, places: tuple[Tensor, Tensor], inputs: tuple[Any, ...],
    out: Tensor, entries: Tensor,
) -> None:  # fmt: skip
    """Evaluate the products of samples in blocks that fit in the caches, isolating samples that raise. Written: out.

    The values of the entries stand in the products (b, count, …) at `places`.
    """
    count = len(out)
    if count == 0 or passes.pattern.nnz == 0:
        return
    step = max(1, _BLOCK // max(1, passes.count * inputs[0].shape[1:].numel()))

    def sample(some: int | slice) -> list[Any]:
        return [chosen(one, some) if isinstance(one, dict) else one[some] for one in inputs]

    def block(some: slice) -> Tensor:
        numbers = range(some.start, some.stop)
        found = torch.stack([products(*sample(i)) for i in numbers]) if single else vmap(products)(*sample(some))
        values: Tensor = found[(slice(None), *places)]
        return values.to(out.dtype)

    def run(some: slice) -> Tensor:
        starts = range(some.start, some.stop, step)
        found = [block(slice(first, min(first + step, some.stop))) for first in starts]
        return found[0] if len(found) == 1 else torch.cat(found)

    out[:, entries] = isolated(run, count)


def alone(function: Residual) -> bool:
    """Whether `vmap` is not to be trusted with derivatives: where the field goes through an operator without a rule.

    Over samples, torch 2.13 returns wrong derivatives of linalg.solve, det, slogdet and eigvals, over seeds those of cdist,
    silently. So these laws are differentiated sample by sample, and the products with the seeds are checked.
    """
    if not isinstance(function, GraphModule):
        return False
    known = function.meta.get(_ALONE)
    if known is None:
        field = next(iter(function.graph.nodes))  # the first input
        reading = dependents(function, [field], reads_shape_only)
        known = any(hasattr(node.target, "overloadpacket") and rule_for(node.target) is None for node in reading)
        function.meta[_ALONE] = known
    return bool(known)


def _seeds(colors: Tensor, count: int, u: Tensor) -> Tensor:
    """Make one seed per color, of the shape of a field: the sum of the unit vectors of that color."""
    seeds = u.new_zeros(count, len(colors))
    present = torch.nonzero(colors >= 0).flatten()
    seeds[colors[present], present] = 1.0
    return seeds.reshape(count, *u.shape[1:])


def _by_seed(apply: Callable[[Tensor], Tensor], seeds: Tensor, checked: bool) -> Tensor:
    """Apply a linear map to all seeds (k, …): by `vmap`; if checked, by a loop where one further product disagrees."""
    values: Tensor
    if not checked:
        values = vmap(apply)(seeds)
        return values
    try:
        values = vmap(apply)(seeds)
        weight = torch.arange(1.0, len(seeds) + 1.0, dtype=seeds.dtype, device=seeds.device)
        found = torch.tensordot(weight.to(values.dtype), values, dims=1)
        truth, scale = apply(torch.tensordot(weight, seeds, dims=1)), float(values.abs().nan_to_num().sum())
        if torch.allclose(found, truth, rtol=_AGREE, atol=_AGREE * scale, equal_nan=True):
            return values
    except RAISED:  # an operator that `vmap` cannot batch
        pass
    return torch.stack([apply(seed) for seed in seeds])
