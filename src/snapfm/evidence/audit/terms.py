"""How large a law's residual is beside the terms it is made of (math.md, eq. leftover).

A law that joins slices says "change = cause": its two terms are what it says of a field frozen in time, and what
change adds to that. Small time steps shrink both alike, so their sum beside their sizes tells agreement on any grid.
Other laws compare values within a slice, or with params; there the terms are |∂R/∂u · u|, unknown by unknown.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from snapfm.laws import Equality, Inequality, Params
from snapfm.metrics.residuals import one_of, residuals
from snapfm.structure import CompiledLaws, compile_laws

_NOTHING = 1e-12  # a frozen field that breaks the law by less of its terms is rounding: the law speaks of change only


def leftover(law: Equality | Inequality, u: Tensor, params: Params) -> float:
    """Return the share of a law's terms that is left over on true fields (b, *shape): 0 if they cancel, 1 if none do.

    Sums run over rows and samples, so that a jump of one step counts as one step.
    """
    structure = compile_laws([law], tuple(u.shape[1:]), params)
    rows = float(residuals(law, u, params).sum())
    values = float((structure.jacobian(u, params).abs() * u.flatten(1).abs()[:, structure.pattern.indices]).sum())
    if rows == 0.0:
        return 0.0
    first, last = _slices(structure, u.shape[-1])
    if bool((last > first).any()):
        signed = torch.stack([law.residual(field, one_of(params, i)).flatten() for i, field in enumerate(u)])
        cause = _frozen(law, u, params, first)
        if float(cause.abs().sum()) > _NOTHING * values:
            return rows / float(cause.abs().sum() + (signed - cause).abs().sum())
    return rows / values


def _slices(structure: CompiledLaws, times: int) -> tuple[Tensor, Tensor]:
    """Return the first and the last slice that each row reads; time is the last axis."""
    row, slice_ = structure.pattern.row_of(), structure.pattern.indices % times
    first, last = np.full(structure.rows, times - 1), np.zeros(structure.rows, dtype=np.int64)
    np.minimum.at(first, row, slice_)
    np.maximum.at(last, row, slice_)
    return torch.from_numpy(first), torch.from_numpy(last)


def _frozen(law: Equality | Inequality, u: Tensor, params: Params, first: Tensor) -> Tensor:
    """Evaluate each row on a field that stays for ever as it was at the first slice the row reads: (b, rows)."""
    out = u.new_empty(len(u), len(first))
    for i, field in enumerate(u):
        for k in sorted(set(first.tolist())):
            still = field[..., k : k + 1].expand_as(field)
            here = first == k
            out[i, here] = law.residual(still, one_of(params, i)).flatten()[here]
    return out
