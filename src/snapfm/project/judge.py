"""The judge: the violation of each law, in float64, and from it the status of each sample, whatever the method claims.

Called at stop 3 of the walk with the laws' own residual. Must not import solve.newton.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index, Mask, Values
from snapfm.compile import CompiledLaws, LawStack
from snapfm.display import Sheet
from snapfm.errors import Status
from snapfm.laws import Params
from snapfm.project.tolerance import Tolerance, of_rows
from snapfm.solve.base import Limits, Solution
from snapfm.solve.budget import stationary
from snapfm.solve.infeasible import contradicts
from snapfm.solve.projection import largest_text, tensors, violations_sheet, with_tensors
from snapfm.text import plural

_STRIDE = 97  # of a first check: a pass over whole fields costs a tenth of a small call
STEEP = 1e6  # multipliers below this cannot spoil the stationarity by rounding


@dataclass(frozen=True)
class Judgement:
    """What Projector.check returns: the violation of each sample, in total and by law, in the laws' own units."""

    violation: Tensor
    """Largest violation of each sample: (b,)."""
    by_law: dict[str, Tensor]
    """The violation of each law by its name: (b,)."""

    def to(self, device: torch.device) -> Judgement:
        """Return the judgement on a device."""
        return with_tensors(self, {path: one.to(device) for path, one in tensors(self).items()})

    def __repr__(self) -> str:
        return f"Judgement({plural(len(self.violation), 'field')}; violation at most {largest_text(self.violation)})"

    def __str__(self) -> str:
        return self._sheet().text()

    def _repr_html_(self) -> str:
        return self._sheet().html()

    def _sheet(self) -> Sheet:
        return violations_sheet(f"Judgement of {plural(len(self.violation), 'field')}, as they are", self.by_law)


def judge(laws: LawStack, residual: Tensor, limits: Limits, u: Tensor) -> Judgement:
    """Measure the residual (b, m) of all rows and the excess of u (b, n) over its limits; NaN stays NaN."""
    by_law = _by_law(laws, residual)
    if limits.names:
        excess = limits.excess(u)
        largest = excess.amax(dim=1) if excess.shape[1] else residual.new_zeros(len(residual))
        by_law |= dict.fromkeys(limits.names, largest)
    return Judgement(_largest(by_law, residual), by_law)


def within(judged: Judgement, tolerance: Tolerance) -> Tensor:
    """Mark the samples (b,) whose laws hold, each to its own tolerance; NaN does not."""
    if isinstance(tolerance, float):
        return judged.violation <= tolerance
    held = torch.ones_like(judged.violation, dtype=torch.bool)
    for name, size in judged.by_law.items():
        held &= size <= tolerance[name]
    return held


def is_stationary(stationarity: Values, u_hat: Tensor) -> Mask:
    """Mark the samples (b,) that are stationary enough for the size of their field û (b, *shape)."""
    flat = u_hat.reshape(len(u_hat), u_hat.shape[1:].numel()).numpy()
    enough: Mask = stationarity <= _allowed(flat[:, ::_STRIDE])  # a part of a field is no larger than the whole
    return enough if enough.all() else stationarity <= _allowed(flat)


def _allowed(flat: Values) -> Values:
    """Return the largest stationarity (b,) allowed for fields of the size of these (b, n)."""
    return stationary(np.abs(flat).max(axis=1, initial=0.0))


def verdict(
    laws: LawStack, implied: Index, solved: Solution, judged: Judgement, tolerance: Tolerance, u_hat: Tensor, params: Params,
    scale: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the status of each sample: (b,) int8. If only implied rows are broken, by more than rounding, the laws contradict.

    A known saddle has not converged, nor has a sample whose large multipliers hide its stationarity, which is in units of
    `scale`.
    """
    residual, stationarity = solved.residual, solved.stationarity
    held = within(judged, tolerance)
    start = u_hat if scale is None else u_hat / scale
    met = held.numpy() & is_stationary(stationarity.numpy(), start)
    if solved.second_order is not None:
        met &= solved.second_order.numpy() != 0
    met &= np.isfinite(solved.distance.numpy())  # an infinite input may have been clipped to a bound
    met[_unresolved(laws, solved, params, start, scale)] = False
    if met.all():
        return torch.full((len(residual),), int(Status.CONVERGED), dtype=torch.int8)
    status = torch.full((len(residual),), int(Status.STALLED), dtype=torch.int8)
    if solved.status is not None:  # the method knows why it stopped; whether it converged is decided here
        failed = solved.status != Status.CONVERGED
        status[failed] = solved.status[failed]
    broken = ~held & ~judged.violation.isnan()
    if len(implied) and isinstance(laws, CompiledLaws) and bool(broken.any()):
        others = residual.clone()
        others[:, torch.from_numpy(implied)] = 0.0
        by_law, rows = _by_law(laws, others), of_rows(tolerance, laws.slices())
        consistent = within(Judgement(_largest(by_law, others), by_law), tolerance)
        for i in torch.nonzero(consistent & broken).flatten().tolist():
            if contradicts(laws, implied, residual[i].numpy(), solved.u[i], _one(params, i), rows):
                status[i] = int(Status.INFEASIBLE)
    status[torch.from_numpy(met)] = int(Status.CONVERGED)
    finite = torch.isfinite(judged.violation) & torch.isfinite(stationarity) & torch.isfinite(solved.distance)
    status[~finite] = int(Status.NONFINITE)
    return status


def _unresolved(laws: LawStack, solved: Solution, params: Params, start: Tensor, scale: Tensor | None) -> list[int]:
    """List the samples whose multipliers are so large that rounding of Jᵀλ hides their stationarity."""
    sizes = np.abs(solved.multipliers.numpy())
    if not sizes.max(initial=0.0) > STEEP:
        return []
    hidden = []
    for i in np.flatnonzero(sizes.max(axis=1) > STEEP).tolist():
        pulls = laws.transpose_abs_product(solved.u[i : i + 1].reshape(1, *laws.shape), _one(params, i), sizes[i])
        pulls = np.finfo(float).eps * (pulls if scale is None else pulls * scale.numpy().ravel())
        if not is_stationary(pulls.max(initial=0.0, keepdims=True), start[i : i + 1])[0]:
            hidden.append(i)
    return hidden


def _by_law(laws: LawStack, residual: Tensor) -> dict[str, Tensor]:
    """Return the largest |h| of each equality and max(g, 0) of each inequality."""
    rows, (names, starts) = residual.numpy(), laws.ranges
    size = np.where(laws.equality_rows, np.abs(rows), np.maximum(rows, 0.0))
    worst = torch.from_numpy(np.maximum.reduceat(size, starts, axis=1).T.copy())
    by_law = dict(zip(names, worst))
    if len(names) < len(laws.laws):
        by_law = {law.name: by_law.get(law.name, residual.new_zeros(rows.shape[0])) for law in laws.laws}
    return by_law


def _largest(by_law: dict[str, Tensor], residual: Tensor) -> Tensor:
    return torch.stack([residual.new_zeros(len(residual)), *by_law.values()]).amax(dim=0)


def _one(params: Params, i: int) -> dict[str, Tensor]:
    return {name: value[i : i + 1] for name, value in params.items()}
