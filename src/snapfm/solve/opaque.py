"""Opaque laws, which only torch or an Oracle can evaluate, in Newton's compiled loop: one System over all rows and unknowns.

The loop calls back, and CompiledLaws evaluates rows, Jacobian and Hessian, all lanes of a tile at once. torch may round
differently in another batch: answers depend in their last digits on the samples of the same tile. A sample whose law raises
gets NaN for its rows and ends NONFINITE. Used by solve.newton; must not import it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_array

from snapfm.arrays import Index, Values
from snapfm.compile import CompiledLaws, Pattern
from snapfm.compile.lower.tape import Tape
from snapfm.compile.program import build_program
from snapfm.compile.trace.batched import RAISED, chosen
from snapfm.compile.units import Units
from snapfm.kernels.callback import Callback
from snapfm.kernels.layout import CELLS, HESSIAN, JACOBIAN, MULTIPLIER, ROWS, TO_EVALUATE
from snapfm.kernels.operations import LANES
from snapfm.kernels.threads import Deadline
from snapfm.laws import Params
from snapfm.reduce.reduce import Reduction
from snapfm.solve.single_thread import one_thread


def opaque_reduction(laws: CompiledLaws) -> Reduction:
    """Make one System of all rows but the redundant ones; its only cell of params holds the number of the sample."""
    tape = Tape(laws.unknowns, params=1)
    kept = np.setdiff1d(np.arange(laws.rows), laws.presolve.dropped)
    # Rows that read every unknown and the number of the sample, so that the program has a cell for each; nothing runs it.
    every = csr_array(
        (np.ones(tape.cells), np.arange(tape.cells), [0, *[tape.cells] * len(kept)]), shape=(len(kept), tape.cells)
    )
    program = build_program(tape, every, np.arange(laws.unknowns))
    pattern = laws.pattern.take(kept)
    program = replace(
        program, pattern=pattern, constants=np.zeros(pattern.nnz), varying=np.arange(pattern.nnz), hessian=_lower(laws)
    )
    return Reduction.opaque(tape, program, kept, laws.presolve.dropped, laws.equality_rows[kept])


class LawEvaluator:
    """The laws of one call: `callback` fills tiles, `pull` adds Jᵀλ. For one call and its threads.

    What was evaluated at a field is remembered for a while: a lane that has not moved, as those that have converged, or one that
    goes back from a rejected step, is not evaluated again. Every callback looks at the clock of its thread's deadline.
    `without_hessian` holds the samples with a law that has no second derivative: their curvature is unknown.
    """

    def __init__(self, laws: CompiledLaws, rows: Index, params: Params, at: Index, units: Units | None = None) -> None:
        self._laws, self._rows, self._params, self._at = laws, rows, params, at
        units = Units(np.ones(laws.unknowns), np.ones(laws.rows)) if units is None else units
        self._units, self._slope_units = units, units.slopes(laws.pattern)
        self._entries = laws.pattern.entries(rows)
        lower = laws.hessian_pattern
        self._below = None if lower is None else np.flatnonzero(lower.indices <= lower.row_of())
        self.missing_hessian = lower is None or bool(laws.without_hessian)
        self._own = threading.local()  # a thread's deadline, and what it evaluated
        self.without_hessian: set[int] = set()
        self.callback = Callback(self._serve)

    def begin(self, deadline: Deadline) -> None:
        """Begin a deadline of this thread: when it is over, the next callback stops the compiled loops."""
        self._own.deadline, self._own.tiles = deadline, {}
        self._own.rows, self._own.jacobian, self._own.hessian = _Known(), _Known(), _Known()

    def pull(self, u: Values, samples: Index, multipliers: Values, rest: Values) -> None:
        """Add Jᵀλ to `rest` (b, n), with all multipliers λ (b, m) of the given samples. Written: rest."""
        for first in range(0, len(samples), LANES):
            some = slice(first, first + LANES)
            keys = [field.tobytes() for field in np.concatenate([samples[some, None], u[some]], axis=1)]  # as in a tile
            values = self._values(self._own.jacobian, self._jacobian, keys, u[some], samples[some], u[some, :0])
            for i, entries in enumerate(values, first):
                rest[i] += self._laws.pattern.csr(entries).T @ multipliers[i]

    def _serve(self, task: int, memory: int) -> None:
        own = self._own
        try:
            if own.deadline.over:
                own.deadline.stop[0] = 1
            tile = own.tiles.get(memory)
            if tile is None:
                tile = own.tiles[memory] = _Tile(memory, self._at, self._laws.unknowns)
            fields, samples = tile.fields, tile.samples.astype(np.int64)
            keys = [place.tobytes() for place in tile.places]
            nothing = fields[:, :0]
            if task == TO_EVALUATE:
                _fill(tile.rows, self._values(own.rows, self._residual, keys, fields, samples, nothing))
                return
            slopes = self._values(own.jacobian, self._jacobian, keys, fields, samples, nothing)
            _fill(tile.jacobian, [values[self._entries] for values in slopes])
            if len(tile.hessian):
                self._bend_tile(tile, keys, samples)
            if self.missing_hessian:
                self.without_hessian.update(samples.tolist())
        except BaseException:  # kept by the callback; loops have nothing to go on with
            own.deadline.stop[0] = 1
            raise

    def _bend_tile(self, tile: _Tile, keys: list[bytes], samples: Index) -> None:
        """Write Σλ∇²h of all lanes: zero where all multipliers are, which needs no evaluation. Written: tile's hessian."""
        tile.hessian[:] = 0.0
        lanes = np.flatnonzero(tile.multipliers.any(axis=1))
        if not len(lanes):
            return
        lam = tile.multipliers[lanes]
        keys = [keys[lane] + weights.tobytes() for lane, weights in zip(lanes.tolist(), lam)]
        tile.hessian[:, lanes] = np.stack(
            self._values(self._own.hessian, self._hessian, keys, tile.fields[lanes], samples[lanes], lam), axis=1
        )

    def _values(
        self, known: _Known, function: _Function, keys: list[bytes], fields: Values, samples: Index, multipliers: Values
    ) -> list[Values]:
        """Return a function's values by lane; evaluate it where they are not known, each field once. Written: known."""
        missing = {key: lane for lane, key in enumerate(keys) if key not in known}
        if missing:
            lanes = list(missing.values())
            with torch.no_grad(), one_thread(), np.errstate(all="ignore"):
                known.update(zip(missing, function(fields[lanes], samples[lanes], multipliers[lanes])))
        values = [known[key] for key in keys]
        for key in keys:  # the newest come last
            known[key] = known.pop(key)
        room = max(LANES, min(_FIELDS, _KEPT // max(1, len(values[0]))))
        while len(known) > room:
            del known[next(iter(known))]
        return values

    def _residual(self, fields: Values, samples: Index, _: Values) -> Values:
        rows: Values = (self._laws.residual(*self._of(fields, samples)).numpy() * self._units.rows)[:, self._rows]
        return rows

    def _jacobian(self, fields: Values, samples: Index, _: Values) -> Values:
        slopes: Values = self._laws.jacobian(*self._of(fields, samples)).numpy() * self._slope_units
        return slopes

    def _hessian(self, fields: Values, samples: Index, multipliers: Values) -> Values:
        """Return the lower triangle of Σλ∇²h; zeros if torch has no second derivative."""
        assert self._below is not None
        weight = torch.zeros(len(fields), self._laws.rows, dtype=torch.float64)
        weight[:, self._rows] = torch.from_numpy(multipliers * self._units.rows[self._rows])
        whole = self._laws.hessian_pattern
        assert whole is not None
        try:
            found = self._laws.hessian(*self._of(fields, samples), weight) * self._units.curvature(whole)
            return found[:, self._below]
        except RAISED:  # for all of them; then W = I, and steps are shorter
            self.without_hessian.update(samples.tolist())
            return np.zeros((len(fields), len(self._below)))

    def _of(self, fields: Values, samples: Index) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        # In memory that torch aligns: libraries round by the place of numbers in memory, which has to be the same at every call.
        u = torch.tensor(fields * self._units.unknowns).reshape(-1, *self._laws.shape)
        return u, chosen(self._params, torch.from_numpy(samples))


_KEPT = 4_000_000  # numbers of each function that a thread remembers, or those of eight fields
_FIELDS = 64  # and fields at most: a line search goes back by one
_Known: TypeAlias = dict[bytes, Values]  # by the bits of a field and its sample, and of multipliers
_Function: TypeAlias = Callable[[Values, Index, Values], Values]


class _Tile:
    """Views of a tile's memory, a lane per row, and (…, lanes) what a callback writes."""

    def __init__(self, memory: int, at: Index, unknowns: int) -> None:
        tile = np.ctypeslib.as_array((ctypes.c_double * int(at[-1])).from_address(memory))

        def section(number: int) -> Values:
            return tile[at[number] : at[number + 1]].reshape(-1, LANES)

        self.places = section(CELLS)[1 : unknowns + 2].T  # the number of the sample, then the field
        self.samples, self.fields = self.places[:, 0], self.places[:, 1:]
        self.rows, self.jacobian, self.hessian = section(ROWS), section(JACOBIAN), section(HESSIAN)
        self.multipliers = section(MULTIPLIER).T


def _fill(out: Values, values: list[Values]) -> None:  # written: out (…, lanes)
    for lane, column in enumerate(values):
        out[:, lane] = column


def _lower(laws: CompiledLaws) -> Pattern:
    """Return the lower triangle of the Hessian's pattern; empty if there is none."""
    whole = laws.hessian_pattern
    if whole is None:
        nothing = np.zeros(0, np.int64)
        return Pattern.from_coordinates(nothing, nothing, (laws.unknowns, laws.unknowns))
    row, below = whole.row_of(), whole.indices <= whole.row_of()
    return Pattern.from_coordinates(row[below], whole.indices[below], (whole.rows, whole.columns))
