"""General: laws with operators that have no scalar form (softmax, sort, cumprod, …), one sample at a time.

The slow path: derivatives come from torch on the laws' sparse patterns, nothing is compiled. Same seam, tolerance and
certificate as Newton. Samples are solved one after the other, so that none can touch another's bits. A sample whose law
raises has NaN for its rows, and ends NONFINITE.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.errors import Status
from snapfm.laws import Params
from snapfm.project.adjoint import Adjoint
from snapfm.project.augmented import AugmentedMatrix, augmented
from snapfm.project.base import Solution, Warm
from snapfm.project.budget import Budget
from snapfm.project.interior import Account, Arrived, Curving, Interior, curving
from snapfm.project.limits import Limits
from snapfm.project.oracle import Oracle
from snapfm.project.workspaces import Workspaces
from snapfm.structure import Structure

Values = npt.NDArray[np.float64]

_RESTARTS = 1  # further starts of a sample that does not arrive: a local minimum of the violation is easily left
_BESIDE = 0.5  # how far from û they are, relative to its size
_ASIDE = 1e-2  # how far from a saddle a sample goes to leave it, relative to the size of û


class General:
    """Prepared for one Structure and its limits; nothing in it changes from call to call."""

    def __init__(self, structure: Structure, limits: Limits) -> None:
        self.structure, self.limits = structure, limits
        self._systems: Workspaces[AugmentedMatrix] = Workspaces(augmented(structure).workspace)
        self._adjoint = Adjoint(structure, limits)

    def solve(self, start: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget) -> Solution:
        """Project a float64 batch (b, *shape); iterations begin at û, or where `warm` says.

        When the budget's time is over, the samples that have not begun are left as they came, as ITERATION_LIMIT.
        """
        structure, count = self.structure, len(start)
        target = start.reshape(count, structure.unknowns).numpy()
        u, weight = target.copy(), np.zeros((count, structure.rows))
        status, iterations = np.full(count, Status.NONFINITE, np.int8), np.zeros(count, np.int64)
        gap, residual = np.full(count, np.nan), np.full((count, structure.rows), np.nan)
        curved = np.full(count, Curving.UNKNOWN, np.int8)
        # Numbers beyond the largest one end as a status, not as a warning. The setting is this thread's own.
        with self._systems.lend() as system, np.errstate(all="ignore"):
            for i in np.flatnonzero(np.isfinite(target).all(axis=1)):
                sample = _Sample(self, Oracle(structure, params, int(i)), system, target[i].copy(), tolerance, budget)
                begin = None if warm is None or not warm.usable[i] else (warm.place[i].copy(), warm.multipliers[i])
                found, curved[i] = sample.solve(begin)
                u[i], weight[i], status[i], iterations[i] = found.u, found.weight, found.status, sample.account.used
                residual[i] = sample.oracle.residual(found.u)
                gap[i] = sample.gap(found, residual[i])
            distance = np.sqrt(((u - target) ** 2).sum(axis=1))
        return Solution(
            torch.from_numpy(u), torch.from_numpy(weight), torch.from_numpy(iterations), torch.from_numpy(residual),
            torch.from_numpy(gap), torch.from_numpy(distance), torch.from_numpy(status),
            Warm(u, weight, status == Status.CONVERGED, self), second_order=torch.from_numpy(curved),
        )  # fmt: skip

    def move(
        self, given: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget
    ) -> tuple[Tensor, Warm | None]:
        """Do the same in the dtype given; here the certificate costs next to nothing."""
        solved = self.solve(given.to(torch.float64), params, tolerance, warm, budget)
        return solved.u.reshape(given.shape).to(given.dtype), solved.warm

    def recall(self, u: Tensor, multipliers: Tensor, usable: Tensor) -> Warm:
        """Say where iterations begin that go on from a projection (b, *shape), (b, m) by someone else."""
        return Warm(u.reshape(len(u), self.structure.unknowns).numpy(), multipliers.numpy(), usable.numpy(), self)

    def adjoint(self, solved: Solution, params: Params, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Solve the optimality system's transpose at an answer."""
        field = solved.u.reshape(len(solved.u), *self.structure.shape)
        return self._adjoint.solve(field, params, solved.multipliers, gradient)


class _Sample:
    """One sample of one call, over all its attempts."""

    def __init__(
        self, method: General, oracle: Oracle, system: AugmentedMatrix, target: Values, tolerance: float, budget: Budget
    ) -> None:
        self.oracle, self.account = oracle, Account(budget)
        self._system, self._target, self._tolerance = system, target, tolerance
        self._limits, self._equality = method.limits, method.structure.equality_rows
        self._size = max(1.0, float(np.sqrt(np.mean(target**2)))) if len(target) else 1.0

    def solve(self, begin: tuple[Values, Values] | None) -> tuple[Arrived, Curving]:
        """Project, from a point and multipliers or else from û; say what is known of the curvature at the answer."""
        if self.account.over:  # not even begun
            return Arrived(self._target, np.zeros(len(self._equality)), Status.ITERATION_LIMIT), Curving.UNKNOWN
        found = self._from_start() if begin is None else self._run(*begin)
        curved = self._curving(found)
        return (found, curved) if curved is not Curving.NEGATIVE else self._leave(found)

    def gap(self, found: Arrived, residual: Values) -> float:
        """‖u − û + Jᵀλ‖∞ as far as bounds leave room to move, and how wrong the multipliers of inequalities are."""
        u, weight = found.u, found.weight
        rest = u - self._target
        if self.account.used or found.status != Status.ITERATION_LIMIT:  # slopes take time, which one not begun has not
            rest = rest + self.oracle.jacobian(u).T @ weight
        rest = np.minimum(np.maximum(rest, u - self._limits.upper), u - self._limits.lower)
        unequal = ~self._equality
        room = np.maximum(-residual[unequal], 0.0)
        wrong = np.maximum(-weight[unequal], np.abs(weight[unequal]) * room).max(initial=0.0)
        return float(max(np.abs(rest).max(initial=0.0), wrong))

    def _run(self, begin: Values, weight: Values | None) -> Arrived:
        attempt = Interior(
            self.oracle, self._system, self._limits, self._equality, self._target.copy(), self._tolerance, self.account
        )
        return attempt.run(begin, weight)

    def _from_start(self) -> Arrived:
        """Begin at û; where that leads nowhere, beside it, always with the same numbers."""
        first = found = self._run(self._target.copy(), None)
        shake = np.random.default_rng(0)
        for _ in range(_RESTARTS):
            if found.status == Status.CONVERGED or self.account.over:
                break
            found = self._run(self._beside(self._target, _BESIDE, shake), None)
        if found.status == Status.CONVERGED or found is first:
            return found
        if self.account.over:  # in the midst of another attempt
            return replace(min(first, found, key=self._violation), status=Status.ITERATION_LIMIT)
        return first

    def _leave(self, found: Arrived) -> tuple[Arrived, Curving]:
        """Leave a saddle: go on from beside it, and keep what is nearer. A sample that stays on one has not arrived."""
        curved = Curving.NEGATIVE
        if not self.account.over:
            other = self._run(self._beside(found.u, _ASIDE, np.random.default_rng(1)), None)
            if other.status == Status.CONVERGED and self._distance(other) < self._distance(found):
                found, curved = other, self._curving(other)
        return (replace(found, status=Status.STALLED) if curved is Curving.NEGATIVE else found), curved

    def _curving(self, found: Arrived) -> Curving:
        """Look at the curvature where the laws hold; elsewhere there is nothing to be known."""
        if self.account.late or not self._violation(found) <= self._tolerance:
            return Curving.UNKNOWN
        return curving(
            self.oracle,
            self._system,
            self._limits,
            self._equality,
            self._target,
            self._tolerance,
            found.u,
            found.weight,
        )

    def _beside(self, place: Values, width: float, shake: np.random.Generator) -> Values:
        moved: Values = place + width * self._size * shake.standard_normal(len(place))
        return moved

    def _distance(self, found: Arrived) -> float:
        return float(((found.u - self._target) ** 2).sum())

    def _violation(self, found: Arrived) -> float:
        """In the laws' own units, infinite where it is not a number."""
        rows, u = self.oracle.residual(found.u), found.u
        off = np.where(self._equality, np.abs(rows), rows).max(initial=0.0)
        excess = np.maximum(u - self._limits.upper, self._limits.lower - u).max(initial=0.0)
        worst = float(max(off, excess))
        return worst if np.isfinite(worst) else np.inf
