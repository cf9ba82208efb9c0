"""Values on a plan: Jacobian values (b, nnz) and Σλ∇²h values for a whole batch, from few products.

Consumes a law's graph and its passes; runs them with torch.func over the batch and gathers straight into values. The
only file of `structure` that computes derivatives. float64, any device the graph's constants live on.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, jvp, vjp, vmap

from snapfm.laws import Params
from snapfm.structure.color import Passes

Residual = Callable[[Tensor, Params], Tensor]

# A block of products is kept below this many numbers, so that wide batches with many colors stay in memory.
_BLOCK = 32_000_000


def jacobian_values(function: Residual, passes: Passes, u: Tensor, params: Params, out: Tensor) -> None:
    """Write the values of the passes' rows into out (b, nnz) at the passes' entries. Written: out."""
    if passes.pattern.nnz == 0:
        return
    entries = torch.from_numpy(passes.entries).to(u.device)
    row = torch.from_numpy(passes.pattern.row_of()).to(u.device)
    column = torch.from_numpy(passes.pattern.indices).to(u.device)
    rows = torch.from_numpy(passes.rows).to(u.device)
    colors = torch.from_numpy(passes.colors).to(u.device)
    step = max(1, _BLOCK // max(1, passes.count * u.shape[1:].numel()))
    for start in range(0, len(u), step):
        stop = min(len(u), start + step)
        part = {name: value[start:stop] for name, value in params.items()}
        if passes.side == "columns":
            seeds = _seeds(colors, passes.count, u).reshape(passes.count, *u.shape[1:])
            products = _jvps(function, u[start:stop], part, seeds)
            out[start:stop, entries] = products[:, colors[column], rows[row]].to(out.dtype)
        else:
            products = _vjps(function, u[start:stop], part, colors, rows, passes.count)
            out[start:stop, entries] = products[:, colors[row], column]


def hessian_values(function: Residual, passes: Passes, u: Tensor, params: Params, weight: Tensor, out: Tensor) -> None:
    """Write the values of Σλ∇²h (symmetric, so columns suffice) into out (b, nnz); weight is λ (b, m). Written: out."""
    if passes.pattern.nnz == 0:
        return
    entries, row = torch.from_numpy(passes.entries).to(u.device), torch.from_numpy(passes.pattern.row_of()).to(u.device)
    column, colors = torch.from_numpy(passes.pattern.indices).to(u.device), torch.from_numpy(passes.colors).to(u.device)
    seeds = _seeds(colors, passes.count, u).reshape(passes.count, *u.shape[1:])

    def products(field: Tensor, params: Params, weight: Tensor) -> Tensor:
        # Reverse over reverse: every operator with a backward of its backward has this, fewer have a JVP of it, and it
        # measured faster (Burgers, 9 colors, 32 samples: 0.58 s against 0.72 s).
        slope = grad(lambda x: (weight * function(x, params)).sum())
        pull = vjp(slope, field)[1]
        values: Tensor = vmap(lambda seed: pull(seed)[0])(seeds)
        return values.reshape(passes.count, -1)

    step = max(1, _BLOCK // max(1, passes.count * u.shape[1:].numel()))
    for start in range(0, len(u), step):
        stop = min(len(u), start + step)
        part = {name: value[start:stop] for name, value in params.items()}
        values = vmap(products)(u[start:stop], part, weight[start:stop])
        # Entry (i, j) is row i of the product with the seed of column j's color.
        out[start:stop, entries] = values[:, colors[column], row]


def _seeds(colors: Tensor, count: int, u: Tensor) -> Tensor:
    """One seed per color: the sum of the unit vectors of that color."""
    seeds = u.new_zeros(count, len(colors))
    present = colors >= 0
    seeds[colors[present], torch.arange(len(colors), device=u.device)[present]] = 1.0
    return seeds


def _jvps(function: Residual, u: Tensor, params: Params, seeds: Tensor) -> Tensor:
    def one(field: Tensor, params: Params) -> Tensor:
        values: Tensor = vmap(lambda seed: jvp(lambda x: function(x, params), (field,), (seed,))[1])(seeds)
        return values

    return vmap(one)(u, dict(params))


def _vjps(function: Residual, u: Tensor, params: Params, colors: Tensor, rows: Tensor, count: int) -> Tensor:
    def one(field: Tensor, params: Params) -> Tensor:
        value, pull = vjp(lambda x: function(x, params), field)[:2]
        seeds = value.new_zeros(count, value.shape[0])
        index = (colors.clamp(min=0), rows)
        seeds = torch.index_put(seeds, index, (colors >= 0).to(value.dtype))
        values: Tensor = vmap(lambda seed: pull(seed)[0])(seeds)
        return values.reshape(count, -1)

    return vmap(one)(u, dict(params))
