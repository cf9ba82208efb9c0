"""General: laws with operators that have no scalar form (softmax, sort, cumprod, …), one sample at a time.

The slow path: derivatives come from torch on the laws' sparse patterns, nothing is compiled. Same seam, tolerance and
certificate as Newton. Samples are solved one after the other, so that none can touch another's bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.errors import Status
from snapfm.laws import Params
from snapfm.project.adjoint import Adjoint
from snapfm.project.augmented import augmented
from snapfm.project.base import Solution, Warm
from snapfm.project.interior import Arrived, Interior
from snapfm.project.limits import Limits
from snapfm.project.oracle import Oracle, quiet
from snapfm.structure import Structure

Values = npt.NDArray[np.float64]

_RESTARTS = 1  # further starts of a sample that does not arrive: a local minimum of the violation is easily left
_BESIDE = 0.5  # how far from û they are, relative to its size


class General:
    """Prepared for one Structure and its limits."""

    def __init__(self, structure: Structure, limits: Limits) -> None:
        self.structure, self.limits = structure, limits
        self._system = augmented(structure)
        self._adjoint = Adjoint(structure, limits)

    def solve(self, start: Tensor, params: Params, tolerance: float, warm: Warm | None = None) -> Solution:
        """Project a float64 batch (b, *shape); iterations begin at û, or where `warm` says."""
        structure, count = self.structure, len(start)
        target = start.reshape(count, structure.unknowns).numpy()
        u, weight = target.copy(), np.zeros((count, structure.rows))
        status, iterations = np.full(count, Status.NONFINITE, np.int8), np.zeros(count, np.int64)
        gap, residual = np.full(count, np.nan), np.full((count, structure.rows), np.nan)
        for i in range(count):
            oracle, again = Oracle(structure, params, i), warm is not None and bool(warm.usable[i])
            if not np.isfinite(target[i]).all():
                continue
            if warm is not None and again:
                found = self._interior(oracle, target[i], tolerance).run(warm.place[i].copy(), warm.multipliers[i])
            else:
                found = self._from_start(oracle, target[i].copy(), tolerance)
            u[i], weight[i], status[i], iterations[i] = found.u, found.weight, found.status, found.iterations
            residual[i] = oracle.residual(found.u)
            gap[i] = self._gap(oracle, target[i], found.u, found.weight, residual[i])
        distance = np.sqrt(((u - target) ** 2).sum(axis=1))
        return Solution(
            torch.from_numpy(u), torch.from_numpy(weight), torch.from_numpy(iterations), torch.from_numpy(residual),
            torch.from_numpy(gap), torch.from_numpy(distance), torch.from_numpy(status),
            Warm(u, weight, status == Status.CONVERGED, self),
        )  # fmt: skip

    def move(
        self, given: Tensor, params: Params, tolerance: float, warm: Warm | None = None
    ) -> tuple[Tensor, Warm | None]:
        """Do the same in the dtype given; here the certificate costs next to nothing."""
        solved = self.solve(given.to(torch.float64), params, tolerance, warm)
        return solved.u.reshape(given.shape).to(given.dtype), solved.warm

    def recall(self, u: Tensor, multipliers: Tensor, usable: Tensor) -> Warm:
        """Say where iterations begin that go on from a projection (b, *shape), (b, m) by someone else."""
        return Warm(u.reshape(len(u), self.structure.unknowns).numpy(), multipliers.numpy(), usable.numpy(), self)

    def adjoint(self, solved: Solution, params: Params, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Solve the optimality system's transpose at an answer."""
        field = solved.u.reshape(len(solved.u), *self.structure.shape)
        with quiet():
            return self._adjoint.solve(field, params, solved.multipliers, gradient)

    def _interior(self, oracle: Oracle, target: Values, tolerance: float) -> Interior:
        return Interior(oracle, self._system, self.limits, self.structure.equality_rows, target.copy(), tolerance)

    def _from_start(self, oracle: Oracle, target: Values, tolerance: float) -> Arrived:
        """Begin at û; where that leads nowhere, beside it, always with the same numbers."""
        first = found = self._interior(oracle, target, tolerance).run(target.copy(), None)
        shake = np.random.default_rng(0)
        for _ in range(_RESTARTS):
            if found.status == Status.CONVERGED:
                return found
            width = _BESIDE * max(1.0, float(np.sqrt(np.mean(target**2))))
            found = self._interior(oracle, target, tolerance).run(
                target + width * shake.standard_normal(len(target)), None
            )
        return found if found.status == Status.CONVERGED else first

    def _gap(self, oracle: Oracle, target: Values, u: Values, weight: Values, residual: Values) -> float:
        """‖u − û + Jᵀλ‖∞ as far as bounds leave room to move, and how wrong the multipliers of inequalities are."""
        rest = u - target + oracle.jacobian(u).T @ weight
        rest = np.minimum(np.maximum(rest, u - self.limits.upper), u - self.limits.lower)
        unequal = ~self.structure.equality_rows
        room = np.maximum(-residual[unequal], 0.0)
        wrong = np.maximum(-weight[unequal], np.abs(weight[unequal]) * room).max(initial=0.0)
        return float(max(np.abs(rest).max(initial=0.0), wrong))
