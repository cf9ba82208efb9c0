"""Values on a plan: Jacobian values (b, nnz) and Σλ∇²h values for a whole batch, from few products.

Consumes a law's graph and its passes; runs them with torch.func over the batch and gathers straight into values. The
only file of `structure` that computes derivatives. float64, any device the graph's constants live on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.func import grad, vjp, vmap
from torch.fx import GraphModule

from snapfm.laws import Params
from snapfm.structure.color import Passes
from snapfm.structure.exclusive import jvp
from snapfm.structure.propagate import SHAPE_ONLY
from snapfm.structure.rules import rule_for
from snapfm.structure.sparing import RAISED, spared

Residual = Callable[[Tensor, Params], Tensor]

# A block of products is kept below this many numbers, so that wide batches with many colors stay in memory.
_BLOCK = 32_000_000
# Agreement asked of products made at once and by themselves, relative to all of them together: rounding.
_AGREE = 1e-9
_ALONE = "snapfm: sample by sample"  # where a graph keeps what has been found out about it
_WEIGHT = ""  # the name λ goes by among the params: laws cannot ask for it

# Torch remarks that an operator's derivative is batched by a loop. Nobody who calls a projector can act on that, and where
# warnings are errors it would end the call. Python's filters cannot drop it safely: they are the process's own and change
# under other threads. Torch's own switch is set once, here, and no call touches it.
torch._C._functorch._set_vmap_fallback_warning_enabled(False)  # type: ignore[attr-defined]


def jacobian_values(function: Residual, passes: Passes, u: Tensor, params: Params, out: Tensor) -> None:
    """Write the values of the passes' rows into out (b, nnz) at the passes' entries. Written: out.

    NaN for a sample whose law raises.
    """
    if passes.pattern.nnz == 0:
        return
    entries = torch.from_numpy(passes.entries).to(u.device)
    row = torch.from_numpy(passes.pattern.row_of()).to(u.device)
    column = torch.from_numpy(passes.pattern.indices).to(u.device)
    rows = torch.from_numpy(passes.rows).to(u.device)
    colors = torch.from_numpy(passes.colors).to(u.device)

    def values(u: Tensor, params: Params) -> Tensor:
        if passes.side == "columns":
            seeds = _seeds(colors, passes.count, u).reshape(passes.count, *u.shape[1:])
            return _jvps(function, u, params, seeds)[:, colors[column], rows[row]].to(out.dtype)
        return _vjps(function, u, params, colors, rows, passes.count)[:, colors[row], column]

    try:
        _write(function, values, passes, u, params, out, entries)
    except RAISED:  # for every sample
        out[:, entries] = torch.nan


def hessian_values(function: Residual, passes: Passes, u: Tensor, params: Params, weight: Tensor, out: Tensor) -> None:
    """Write the values of Σλ∇²h (symmetric, so columns suffice) into out (b, nnz); weight is λ (b, m). Written: out.

    NaN for a sample whose law raises. Raises if it does for all of them: then it may have no second derivative at all.
    """
    if passes.pattern.nnz == 0:
        return
    entries, row = torch.from_numpy(passes.entries).to(u.device), torch.from_numpy(passes.pattern.row_of()).to(u.device)
    column, colors = torch.from_numpy(passes.pattern.indices).to(u.device), torch.from_numpy(passes.colors).to(u.device)
    seeds, alone = _seeds(colors, passes.count, u).reshape(passes.count, *u.shape[1:]), _alone(function)

    def products(field: Tensor, params: Params, weight: Tensor) -> Tensor:
        # Reverse over reverse: every operator with a backward of its backward has this, fewer have a JVP of it, and it
        # measured faster (Burgers, 9 colors, 32 samples: 0.58 s against 0.72 s).
        slope = grad(lambda x: (weight * function(x, params)).sum())
        pull = vjp(slope, field)[1]
        return _by_seed(lambda seed: pull(seed)[0], seeds, alone).reshape(passes.count, -1)

    def values(u: Tensor, params: Params) -> Tensor:
        own = {name: value for name, value in params.items() if name != _WEIGHT}
        # Entry (i, j) is row i of the product with the seed of column j's color.
        return _by_sample(products, alone)(u, own, params[_WEIGHT])[:, colors[column], row]

    _write(function, values, passes, u, {**params, _WEIGHT: weight}, out, entries)


def _write(
    function: Residual, values: Callable[[Tensor, Params], Tensor], passes: Passes, u: Tensor, params: Params, out: Tensor,
    entries: Tensor,
) -> None:  # fmt: skip
    """Evaluate in blocks that fit in memory, sparing samples from those that raise. Written: out, at the entries."""
    step = 1 if _alone(function) else max(1, _BLOCK // max(1, passes.count * u.shape[1:].numel()))

    def run(some: Tensor | None) -> Tensor:
        field = u if some is None else u[some]
        own = params if some is None else {name: value[some] for name, value in params.items()}
        found = [
            values(field[first : first + step], {name: value[first : first + step] for name, value in own.items()})
            for first in range(0, len(field), step)
        ]
        return found[0] if len(found) == 1 else torch.cat(found)

    if len(u):
        out[:, entries] = spared(run, len(u))


def _alone(function: Residual) -> bool:
    """Whether `vmap` is not to be trusted with derivatives: where the field goes through an operator without a rule.

    Over samples, torch 2.13 gives wrong derivatives of linalg.solve, det, slogdet and eigvals, over seeds those of cdist, and
    all without a word. So these laws are differentiated sample by sample, and what comes of the seeds is checked.
    """
    if not isinstance(function, GraphModule):
        return False
    known = function.meta.get(_ALONE)
    if known is None:
        nodes = list(function.graph.nodes)
        reading, known = {nodes[0]}, False  # the field is the first input
        for node in nodes[1:]:
            packet = getattr(node.target, "overloadpacket", None)
            if reading.isdisjoint(node.all_input_nodes) or getattr(packet, "__name__", "") in SHAPE_ONLY:
                continue
            reading.add(node)
            known = known or (packet is not None and rule_for(node.target) is None)
        function.meta[_ALONE] = known
    return bool(known)


def _seeds(colors: Tensor, count: int, u: Tensor) -> Tensor:
    """One seed per color: the sum of the unit vectors of that color."""
    seeds = u.new_zeros(count, len(colors))
    present = colors >= 0
    seeds[colors[present], torch.arange(len(colors), device=u.device)[present]] = 1.0
    return seeds


def _jvps(function: Residual, u: Tensor, params: Params, seeds: Tensor) -> Tensor:
    alone = _alone(function)

    def one(field: Tensor, params: Params) -> Tensor:
        return _by_seed(lambda seed: jvp(lambda x: function(x, params), field, seed), seeds, alone)

    return _by_sample(one, alone)(u, dict(params))


def _vjps(function: Residual, u: Tensor, params: Params, colors: Tensor, rows: Tensor, count: int) -> Tensor:
    alone = _alone(function)

    def one(field: Tensor, params: Params) -> Tensor:
        value, pull = vjp(lambda x: function(x, params), field)[:2]
        seeds = value.new_zeros(count, value.shape[0])
        index = (colors.clamp(min=0), rows)
        seeds = torch.index_put(seeds, index, (colors >= 0).to(value.dtype))
        return _by_seed(lambda seed: pull(seed)[0], seeds, alone).reshape(count, -1)

    return _by_sample(one, alone)(u, dict(params))


def _by_sample(one: Callable[..., Tensor], alone: bool) -> Callable[..., Tensor]:
    """Batch a function of one field, its params and more: by `vmap`, or by a loop."""
    if not alone:
        return cast(Callable[..., Tensor], vmap(one))

    def loop(u: Tensor, params: Params, *more: Tensor) -> Tensor:
        samples = ({name: value[i] for name, value in params.items()} for i in range(len(u)))
        return torch.stack([one(u[i], sample, *(each[i] for each in more)) for i, sample in enumerate(samples)])

    return loop


def _by_seed(apply: Callable[[Tensor], Tensor], seeds: Tensor, checked: bool) -> Tensor:
    """Apply a linear map to all seeds (k, …): by `vmap`; if checked, by a loop where one further product disagrees."""
    values: Tensor
    if not checked:
        values = vmap(apply)(seeds)
        return values
    try:
        values = vmap(apply)(seeds)
        weight = torch.arange(1.0, len(seeds) + 1.0, dtype=seeds.dtype, device=seeds.device)
        told = torch.tensordot(weight.to(values.dtype), values, dims=1)
        truth, scale = apply(torch.tensordot(weight, seeds, dims=1)), float(values.abs().nan_to_num().sum())
        if torch.allclose(told, truth, rtol=_AGREE, atol=_AGREE * scale, equal_nan=True):
            return values
    except RAISED:  # an operator that `vmap` cannot batch
        pass
    return torch.stack([apply(seed) for seed in seeds])
