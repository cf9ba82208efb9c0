"""Answers on kinks: rows with a weight for the two slopes of every kink, for multipliers and gradients (math.md, "Kinks").

A small change of û or of params leaves such an answer on its kinks and changes their weights instead. So in the linearized
problem the switches of held kinks are rows like those of the laws, and all other kinks stay on their sides. Weights are cells
behind those of params, and multipliers of held kinks stand behind those of the laws. Must not import solve.system.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Index, Mask, Values
from snapfm.reduce.kinked_system import KinkedSystem
from snapfm.solve.stage import LinearState

if TYPE_CHECKING:
    from snapfm.solve.system import Part

NO_WEIGHT = -1.0  # in layout.WEIGHT: the lane's slopes are those of its operators
# Of a hold, relative to the slope of its switch: holds are off by 1/strength² of their multipliers, which is rounding.
_STRENGTH = 2.0**27
_TINY = 1e-30


def with_weights(params: Values, multipliers: Values, weights: Values) -> tuple[Values, Values]:
    """Append the state and the gate of all kinks to cells of params, and multipliers of holds: `weights` need none."""
    cells = np.stack([-1.0 - weights, np.zeros_like(weights)], axis=2).reshape(len(weights), 2 * weights.shape[1])
    return np.concatenate([params, cells], axis=1), np.concatenate([multipliers, np.zeros_like(weights)], axis=1)


class Kinked:
    """A Part whose kinks are smooth pieces, beside the part it was made from, which serves lanes without weights."""

    def __init__(self, spec: KinkedSystem, part: Part, plain: Part, columns: Index) -> None:
        self.spec, self.part, self.plain, self.columns = spec, part, plain, columns
        pattern, count = spec.switches.pattern, len(spec.state)
        # Entries of a switch and of its jump that belong to the same unknown.
        row, column = pattern.row_of(), pattern.indices
        keys = row * pattern.columns + column
        jump = np.flatnonzero(row >= count)
        wanted = keys[jump] - count * pattern.columns
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        both = keys[at] == wanted if len(keys) else np.zeros(0, bool)
        self.of_jump, self.of_switch = jump[both], at[both]
        # What sums up over the entries of each kink.
        self.by_switch, self.by_both = _sums(row[row < count], count), _sums(row[self.of_switch], count)

    @property
    def count(self) -> int:
        """Number of kinks."""
        return len(self.spec.state)

    def pull(self, u: Values, params: Values, multipliers: Values, rest: Values, weights: Values) -> None:
        """Add Jᵀλ to `rest`, with the slopes that `weights` (b, kinks of the plan) choose. Written: rest."""
        params, multipliers = with_weights(params, multipliers, weights)
        for k, part, some in self._shares(weights):
            added, index = np.zeros((len(some), rest.shape[1])), part.system.rows[k : k + 1]
            part.rows.part(k).pull(index, u[some], params[some], multipliers[some], added)
            rest[some] += added

    def linear(self, at: LinearState) -> None:
        """Solve the linearized problem with held switches as rows. Written: w, ν, gates among the params."""
        assert at.weights is not None
        weighted = self._weighted(at.weights)
        self._hold(at, weighted)
        for part, mine in ((self.plain, ~weighted), (self.part, weighted)):
            some = np.flatnonzero(mine.any(axis=1))
            own, system = at.select(some), part.system
            part.linear(own)
            for k in range(system.parts):
                which = np.flatnonzero(mine[some, k])
                for all_of, found, place in (
                    (at.w, own.w, np.concatenate([system.unknowns[k], system.eliminated[k]])),
                    (at.nu, own.nu, system.rows[k]),
                ):
                    all_of[np.ix_(some[which], place)] = found[np.ix_(which, place)]

    def pull_linear(self, at: LinearState) -> None:
        """Add Jᵀν + Hw, for unknowns and params. Written: rest, by_params."""
        assert at.weights is not None
        for k, part, some in self._shares(at.weights):
            own = at.select(some)
            own.rest, own.by_params = (np.zeros((len(some), one.shape[1])) for one in (at.rest, at.by_params))
            own.pull(part.rows.part(k), part.system.rows[k : k + 1])
            at.rest[some] += own.rest
            at.by_params[some] += own.by_params

    def _weighted(self, weights: Values) -> Mask:
        """Mark the lanes (b, parts) that have weights."""
        found: Mask = (weights[:, self.columns] != NO_WEIGHT).any(axis=2)
        return found

    def _shares(self, weights: Values) -> Iterator[tuple[int, Part, Index]]:
        """List the copies of the part, with the samples on which they have weights and those on which they do not."""
        weighted = self._weighted(weights)
        for k in range(weighted.shape[1]):
            for part, mine in ((self.part, weighted[:, k]), (self.plain, ~weighted[:, k])):
                if mine.any():
                    yield k, part, np.flatnonzero(mine)

    def _hold(self, at: LinearState, weighted: Mask) -> None:
        """Open the gates of kinks between their sides. Written: gates among the params."""
        assert at.weights is not None
        program, rows, place = self.part.system.program, self.part.rows, self.spec.gate - 1
        sums = _sums(program.pattern.row_of(), program.pattern.rows)
        for k, (columns, mine) in enumerate(zip(self.columns, weighted.T)):
            some, own = np.flatnonzero(mine), rows.part(k)
            weight = at.weights[np.ix_(some, columns)]
            gates = np.ix_(some, own.outside[0, place])
            at.params[gates] = 1.0
            entries = own.slopes(at.u[some], at.params[some])
            slope = np.sqrt((sums @ (entries**2).T).T[:, self.spec.rows :])
            at.params[gates] = np.where((weight > 0.0) & (weight < 1.0), _STRENGTH / np.maximum(slope, _TINY), 0.0)


def _sums(row: Index, rows: int) -> csr_array:
    """Return the matrix that sums up entries by their row."""
    return csr_array((np.ones(len(row)), (row, np.arange(len(row)))), shape=(rows, len(row)))
