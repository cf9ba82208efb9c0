"""Newton's method on one stage of a march, for the samples that kernels.march leaves: from several starts, with pivoting.

What fails there gets the attempts that serve coupled systems. Must not import solve.march.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import SuperLU

from snapfm.arrays import Index, Mask, Values
from snapfm.errors import Status
from snapfm.kernels.march import HALVINGS, SUFFICIENT, USEFUL
from snapfm.kernels.threads import Deadline
from snapfm.solve.budget import Stopping
from snapfm.solve.stage import State
from snapfm.solve.stage_solver import StageSolver

_KEEP = 0.2  # a factor that reduces the residual to less than this share is kept
_SHARE = 0.2  # of a sample's iterations that one attempt from one start may use; most stages take 3 to 15 of 500


class StageNewton:
    """One stage for the samples that got this far. `inputs` are written as iterations go on."""

    def __init__(
        self, solver: StageSolver, factors: list[SuperLU | None], live: Index, inputs: Values, outside: Values, used: Index,
        stopping: Stopping, limit: int, deadline: Deadline,
    ) -> None:  # fmt: skip
        self.solver, self.inputs, self.outside = solver, inputs, outside
        self._factors, self._live = factors, live
        self._stopping, self._limit, self._turn = stopping, limit, deadline
        self._goal = stopping.polish * stopping.tolerance
        self._used = used
        self._status = np.full(len(live), int(Status.STALLED))

    def run(self, wanted: Values, earlier: list[Values]) -> tuple[Index, Index]:
        """Solve the stage from the best of some starts, then from each; return status and iterations.

        The starts are `wanted`, û, the previous stage's values, and what continues the values of two `earlier` stages.
        """
        starts, square = [wanted], self.solver.square
        if not square.affine:
            if len(square.before):
                starts.append(self.inputs[:, square.before])
            if len(earlier) == 2:
                starts.append(2.0 * earlier[1] - earlier[0])
        everything = np.arange(len(self._live))
        self._iterate(everything, self._best(starts))
        for begin in starts[::-1]:
            failed = self._failed()
            if not len(failed) or square.affine:
                break
            self._iterate(failed, begin[failed])
        self._rescue(wanted)
        # With iterations and time left all attempts were made: a sample that is not solved has stalled.
        short = (self._status == Status.STALLED) & ((self._used >= self._limit) | self._turn.over)
        self._status[short] = int(Status.ITERATION_LIMIT)
        return self._status, self._used

    def _failed(self) -> Index:
        known = np.isfinite(self.inputs).all(axis=1) & np.isfinite(self.outside).all(axis=1)
        return np.flatnonzero((self._status == Status.STALLED) & known)

    def _best(self, starts: list[Values]) -> Values:
        """Choose for each block the start with the least residual."""
        solver, own = self.solver, self.solver.square.own
        best, least = np.where(np.isfinite(starts[0]), starts[0], 0.0), np.full((len(self._live), 1), np.inf)
        if len(starts) == 1:
            return best
        for begin in starts:
            trial = self.inputs.copy()
            trial[:, own] = begin
            merit = solver.merit(solver.evaluate(trial, self.outside))
            better = merit < least  # not where it is NaN
            best = np.where(better[:, solver.block], begin, best)
            least = np.where(better, merit, least)
        return best

    def _iterate(self, some: Index, begin: Values) -> None:
        """Run Newton's method on some samples. Written: their inputs, status, iterations and factors."""
        solver, own, tolerance = self.solver, self.solver.square.own, self._stopping.tolerance
        self.inputs[np.ix_(some, own)] = begin
        allowed = np.minimum(self._used + share(self._limit), self._limit)
        residual = np.empty((len(self._live), solver.square.size))
        residual[some] = solver.evaluate(self.inputs[some], self.outside[some])
        outdated = np.full(len(self._live), not solver.square.affine)  # the factor belongs to an earlier point
        final = np.zeros(len(self._live), bool)  # within the goal: one more step, which makes the rest rounding
        now = some
        while len(now):
            size = np.abs(residual[now]).max(axis=1, initial=0.0)
            self._status[now[~np.isfinite(size)]] = int(Status.STALLED)
            met = size <= self._goal
            self._status[now[met]] = int(Status.CONVERGED)
            last = self._stopping.polish >= 1.0 or solver.square.affine
            going = np.isfinite(size) & ~(met & (final[now] | last)) & (size > 0.0)
            final[now] |= met
            now = now[going]
            now = now[(self._used[now] < allowed[now]) & (not self._turn.over)]
            missing = self._missing(now)
            outdated[now[missing]] = False
            now = self._factorized(now[~(missing & final[now])])  # a last step is not worth a factor
            if not len(now):
                break
            self._used[now] += 1
            step = np.stack([solver.step(self._factor(i), residual[i]) for i in now])
            reduced = self._move(now, step, residual, outdated[now])
            # An old factor that does too little is replaced. One of this very point that does nothing ends the iterations.
            useless = ~(reduced <= USEFUL) & ~outdated[now]
            rounding = np.abs(residual[now]).max(axis=1, initial=0.0) <= tolerance
            halted = useless & (rounding | ~(reduced < 1.0))
            self._status[now[halted]] = np.where(rounding[halted], int(Status.CONVERGED), int(Status.STALLED))
            if not solver.square.affine:
                outdated[now] = True
                for i in now[~(reduced <= _KEEP) & ~final[now]]:
                    self._factors[self._live[i]] = None
            now = now[~halted]

    def _factor(self, i: int) -> SuperLU:
        factor = self._factors[self._live[i]]
        assert factor is not None
        return factor

    def _missing(self, now: Index) -> Mask:
        """Mark the samples without a factor."""
        return np.array([self._factors[self._live[i]] is None for i in now], bool)

    def _factorized(self, now: Index) -> Index:
        """Make the factors that are missing; return the samples whose matrix is regular."""
        some = now[self._missing(now)]
        if len(some):
            entries = self.solver.rows.slopes(self.inputs[some], self.outside[some])
            for i, one in zip(some.tolist(), entries):
                self._factors[self._live[i]] = self.solver.factor(one)
        return now[~self._missing(now)]

    def _move(self, now: Index, step: Values, residual: Values, outdated: Mask) -> Values:
        """Go along steps as far as each block's residual shrinks; along old factors all the way or not at all.

        Return to what share each sample's residual shrank. Written: inputs, residual.
        """
        solver, own = self.solver, self.solver.square.own
        before = solver.merit(residual[now])
        rounding = np.diff(solver.square.starts) * self._goal**2
        length, found = np.ones_like(before), residual[now]
        searching, point = np.arange(len(now)), self.inputs[now]
        for halving in range(HALVINGS + 1):
            trial = point[searching]
            trial[:, own] += length[searching][:, solver.block] * step[searching]
            there = solver.evaluate(trial, self.outside[now[searching]])
            merit = solver.merit(there)
            enough = (1.0 - 2.0 * SUFFICIENT * length[searching]) * before[searching]
            fine = (merit <= enough) | (merit <= rounding) | (length[searching] == 0.0)
            whole = fine.all(axis=1)
            accepted = searching[whole]
            self.inputs[now[accepted]], found[accepted] = trial[whole], there[whole]
            # At last blocks that no step helps stay where they are.
            shorter = 0.5 if halving + 1 < HALVINGS else 0.0
            length[searching] *= np.where(fine, 1.0, shorter)
            searching = searching[~whole & ~outdated[searching]]
            if not len(searching):
                break
        residual[now] = found
        reduced: Values = np.sqrt(solver.merit(found).sum(axis=1) / before.sum(axis=1))
        return np.where(np.isfinite(reduced), reduced, np.inf)

    def _rescue(self, wanted: Values) -> None:
        """Try the attempts that serve coupled systems on samples that failed. Written: their inputs, status, iterations."""
        failed = self._failed()
        part = self.solver.part() if len(failed) else None
        if part is None:
            return
        for i in failed:  # one by one: each has iterations of its own left
            left = self._limit - int(self._used[i])
            if left < 1 or self._turn.over:
                continue
            inputs = self.inputs[[i]]
            inputs[:, self.solver.square.own] = np.where(np.isfinite(wanted[i]), wanted[i], 0.0)
            multipliers = np.zeros((1, self.solver.square.size))
            own = State(inputs.copy(), inputs, self.outside[[i]], multipliers, self._stopping, None, left, self._turn)
            ended = part.solve(own)
            self._used[i] += ended.iterations[0]
            self._status[i] = ended.status[0]
            self.inputs[i] = inputs[0]


def share(limit: int) -> int:
    """Return how many iterations one attempt may use."""
    return max(1, round(_SHARE * limit))
