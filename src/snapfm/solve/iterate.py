"""Iterate: the stage of everything that structure alone does not decide, a nonlinear system solved by Newton's method.

Must not import other stages.
"""

from __future__ import annotations

import numpy as np

from snapfm.arrays import Index, Values
from snapfm.errors import Status
from snapfm.solve.stage import Ended, LinearState, Stage, State
from snapfm.solve.system import Part
from snapfm.solve.tiles import AttemptOutcome, worst_status
from snapfm.text import plural

FLAT_SLICE_OFFSET = 0.1  # start of iterations on a flat slice, relative to its size
_CONVERGED = int(Status.CONVERGED)  # asking an enumeration takes longer than comparing a small array


class Iterate(Stage):
    """One part, whatever the number of its copies; `later` parts follow it."""

    def __init__(self, number: int, part: Part, later: int) -> None:
        self.number, self.part, self._later = number, part, later

    def solve(self, state: State, ended: Ended) -> None:
        """Iterate. Written: state's u, multipliers, weights; ended."""
        given, state.deadline = state.deadline, state.deadline.reserve_for(self._later)
        outcome = self._solve(state)
        state.deadline = given
        if outcome.weights is not None and self.part.kinks is not None:
            state.weights[:, self.part.kinks.columns] = outcome.weights
        if outcome.status.any():
            ended.status[:] = worst_status(np.stack([ended.status, outcome.status], axis=1))
        np.maximum(ended.iterations, outcome.iterations, out=ended.iterations)
        np.minimum(ended.second, outcome.second, out=ended.second, casting="unsafe")

    def _solve(self, state: State) -> AttemptOutcome:
        part, lengths, u, u_hat = self.part, self.part.lengths, state.u, state.u_hat
        if not len(lengths):
            return part.solve(state)
        if not part.inequalities:
            # No step leaves a flat slice (y₂ = 0), where the slope of y₂² is zero: start beside it.
            flat = u[:, lengths] == 0.0
            if flat.any():
                size = np.abs(u_hat[:, part.system.unknowns[0]]).max(axis=1, keepdims=True, initial=0.0)
                u[:, lengths] = np.where(flat, FLAT_SLICE_OFFSET * np.where(size > 0.0, size, 1.0), u[:, lengths])
        outcome = part.solve(state)
        # An aggregate with y₂ < 0 obeys as well as its mirror image, which is nearer: go on from there.
        again = np.flatnonzero((u[:, lengths] < 0.0).any(axis=1) & (outcome.status == _CONVERGED))
        if len(again):
            self._mirror(state, again, outcome)
        return outcome

    def _mirror(self, state: State, again: Index, outcome: AttemptOutcome) -> None:
        """Solve some samples once more, from their mirror images. Written: their u, multipliers and outcome."""
        some, moved = state.select(again, state.limit), self.part.system.eliminated.ravel()
        some.warm = None
        some.u[:, self.part.lengths] = np.abs(some.u[:, self.part.lengths])
        some.u[:, moved] = some.u_hat[:, moved]  # they follow from the multipliers, which are found again
        then = self.part.solve(some)
        state.u[again], state.multipliers[again] = some.u, some.multipliers
        outcome.status[again], outcome.second[again] = then.status, then.second
        outcome.iterations[again] += then.iterations

    def pull(self, state: State, rest: Values) -> None:
        """Add Jᵀλ. Written: rest."""
        if state.evaluator is not None:
            state.evaluator.pull(state.u, state.params[:, 0].astype(np.int64), state.multipliers, rest)
        else:
            self.part.pull(state.u, state.params, state.multipliers, rest, state.weights)

    def linear(self, at: LinearState) -> None:
        """Solve the linearized system. Written: w, ν."""
        self.part.linear(at)

    def pull_linear(self, at: LinearState) -> None:
        """Add Jᵀν + Hw. Written: rest, by_params."""
        if at.evaluator is None:
            self.part.pull_linear(at)

    def bytes(self, samples: int) -> float:
        """Predict the memory of a piece of so many samples."""
        return self.part.bytes(samples)

    def describe(self) -> str:
        """Say how large the system is, and which matrix is factorized."""
        system, frame = self.part.system, self.part.kkt.frame
        rows, unknowns = system.rows.shape[1], system.unknowns.shape[1]
        copies = f"{plural(system.parts, 'system')} of " if system.parts > 1 else ""
        matrix = "augmented matrix" if frame.augmented else "Schur complement"
        more = " with conjugate gradients" if frame.coupled else ""
        return (
            f"iterate on {copies}{plural(rows, 'row')} and {plural(unknowns, 'unknown')} ({matrix}{more}, "
            f"{plural(self.part.kkt.entries, 'entry', 'entries')})"
        )
