"""Opaque laws, which only torch or an Oracle can evaluate, in Newton's compiled loop: one System over all rows and unknowns.

The loop calls back, and CompiledLaws evaluates rows, Jacobian and Hessian: all lanes of a tile at once where no bit depends on
the batch (structure.together), sample by sample elsewhere. A sample whose law raises gets NaN for its rows and ends NONFINITE.
Used by project.newton; must not import it.
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
from snapfm.kernels.callback import Callback
from snapfm.kernels.layout import CELLS, HESSIAN, JACOBIAN, MULTIPLIER, ROWS, TO_EVALUATE
from snapfm.kernels.operations import LANES
from snapfm.laws import Params
from snapfm.project.serial import one_thread
from snapfm.structure import CompiledLaws, Pattern
from snapfm.structure.batched import RAISED
from snapfm.structure.lowering.tape import Tape
from snapfm.structure.program import build_program
from snapfm.structure.reduce import Reduction, whole_system


def opaque_reduction(laws: CompiledLaws) -> Reduction:
    """Make one System of all rows but the redundant ones; its only external cell holds the number of the sample."""
    tape = Tape(laws.unknowns)
    tape.cells += 1
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
    return whole_system(tape, program, kept, laws.presolve.dropped, laws.equality_rows[kept])


class Evaluator:
    """The laws of one call: `callback` fills tiles, `pull` adds Jᵀλ. For one call and its threads.

    A lane that is where it was evaluated last, as those that have converged are, is not evaluated again.
    `uncurved` holds the samples with a law that has no second derivative: their curvature is unknown.
    """

    def __init__(self, laws: CompiledLaws, rows: Index, params: Params, at: Index) -> None:
        self._laws, self._rows, self._params, self._at = laws, rows, params, at
        self._entries = laws.pattern.entries(rows)
        lower = laws.hessian_pattern
        self._below = None if lower is None else np.flatnonzero(lower.indices <= lower.row_of())
        self._last = threading.local()  # what was evaluated last, by function, sample and lane
        self.uncurved: set[int] = set()
        self.callback = Callback(self._serve)

    def pull(self, u: Values, samples: Index, multipliers: Values, rest: Values) -> None:
        """Add Jᵀλ to `rest` (b, n), with all multipliers λ (b, m) of the given samples. Written: rest."""
        for first in range(0, len(samples), LANES):
            some = slice(first, first + LANES)
            values = self._jacobian(u[some], samples[some], multipliers[some])
            for i, entries in enumerate(values, first):
                rest[i] += self._laws.pattern.csr(entries).T @ multipliers[i]

    def _serve(self, task: int, memory: int) -> None:
        tile = np.ctypeslib.as_array((ctypes.c_double * int(self._at[-1])).from_address(memory))
        cells = self._section(tile, CELLS)
        unknowns = self._laws.unknowns
        fields, samples = cells[1 : 1 + unknowns].T, cells[1 + unknowns].astype(np.int64)
        with torch.no_grad(), one_thread(), np.errstate(all="ignore"):
            if task == TO_EVALUATE:
                self._fill(self._residual, "rows", fields, samples, fields[:, :0], self._section(tile, ROWS))
                return
            multipliers = self._section(tile, MULTIPLIER).T
            jacobian, hessian = self._section(tile, JACOBIAN), self._section(tile, HESSIAN)
            self._fill(self._slopes, "jacobian", fields, samples, fields[:, :0], jacobian)
            self._fill(self._hessian, "hessian", fields, samples, multipliers, hessian)

    def _section(self, tile: Values, number: int) -> Values:
        return tile[self._at[number] : self._at[number + 1]].reshape(-1, LANES)

    def _fill(
        self, function: _Function, what: str, fields: Values, samples: Index, multipliers: Values, out: Values
    ) -> None:
        """Evaluate the lanes that are elsewhere than at their last evaluation. Written: out (…, lanes)."""
        last: _Last = self._last.__dict__.setdefault(what, {})
        places = [(int(sample), lane) for lane, sample in enumerate(samples)]
        keys = [field.tobytes() + weights.tobytes() for field, weights in zip(fields, multipliers)]
        found = [
            known[1] if (known := last.get(place)) and known[0] == key else None for place, key in zip(places, keys)
        ]
        # Copies of a lane fill the last tile.
        copies = [
            lane > 0 and (samples[lane - 1], keys[lane - 1]) == (samples[lane], keys[lane]) for lane in range(LANES)
        ]
        moved = [lane for lane in range(LANES) if found[lane] is None and not copies[lane]]
        if moved:
            for lane, values in zip(moved, function(fields[moved], samples[moved], multipliers[moved])):
                found[lane] = values
        for lane, values in enumerate(found):
            if values is None:  # copied
                out[:, lane] = out[:, lane - 1]
                continue
            out[:, lane] = values
            last.pop(places[lane], None)  # the newest come last
            last[places[lane]] = keys[lane], values
        while len(last) > max(LANES, _KEPT // max(1, len(out))):
            del last[next(iter(last))]

    def _residual(self, fields: Values, samples: Index, _: Values) -> Values:
        if self._laws.together.rows:
            # Batches of a few sizes only: what is recorded for a size is used again.
            full = _padded(len(fields))
            values = self._laws.residual(*self._of(fields[full], samples[full]))[: len(fields)]
        else:
            values = self._laws.residual_alone(*self._of(fields, samples))
        rows: Values = values.numpy()[:, self._rows]
        return rows

    def _slopes(self, fields: Values, samples: Index, _: Values) -> Values:
        return self._jacobian(fields, samples, _)[:, self._entries]

    def _jacobian(self, fields: Values, samples: Index, _: Values) -> Values:
        together = self._laws.together.jacobian
        parts = [np.arange(len(fields))] if together else np.arange(len(fields))[:, None]
        values = [self._laws.jacobian(*self._of(fields[part], samples[part])).numpy() for part in parts]
        return np.concatenate(values)

    def _hessian(self, fields: Values, samples: Index, multipliers: Values) -> Values:
        """Return the lower triangle of Σλ∇²h; zeros if torch has no second derivative."""
        if self._below is None:
            self.uncurved.update(samples.tolist())
            return np.zeros((len(fields), 0))
        if self._laws.uncurved:
            self.uncurved.update(samples.tolist())
        out = np.zeros((len(fields), len(self._below)))
        weight = torch.zeros(len(fields), self._laws.rows, dtype=torch.float64)
        weight[:, self._rows] = torch.from_numpy(np.ascontiguousarray(multipliers))
        together = self._laws.together.hessian
        for part in [np.arange(len(fields))] if together else np.arange(len(fields))[:, None]:
            self._bend(fields, samples, weight, part, out)
        return out

    def _bend(self, fields: Values, samples: Index, weight: torch.Tensor, part: Index, out: Values) -> None:
        """Evaluate the Hessian of some lanes; one by one if that raises for all of them. Written: out, uncurved."""
        assert self._below is not None
        try:
            out[part] = self._laws.hessian(*self._of(fields[part], samples[part]), weight[part])[:, self._below]
        except RAISED:  # then W = I, and steps are shorter
            if len(part) == 1:
                self.uncurved.add(int(samples[part[0]]))
                return
            for one in part[:, None]:
                self._bend(fields, samples, weight, one, out)

    def _of(self, fields: Values, samples: Index) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        chosen = torch.from_numpy(samples)
        params = {name: value[chosen] for name, value in self._params.items()}
        return torch.from_numpy(np.array(fields)).reshape(-1, *self._laws.shape), params


_KEPT = 4_000_000  # numbers of each function that a thread remembers, and a tile's at least
_Last: TypeAlias = dict[tuple[int, int], tuple[bytes, Values]]
_Function: TypeAlias = Callable[[Values, Index, Values], Values]


def _padded(count: int) -> Index:
    """List so many lanes, and the last one again up to a power of two."""
    return np.minimum(np.arange(1 << (count - 1).bit_length()), count - 1)


def _lower(laws: CompiledLaws) -> Pattern:
    """Return the lower triangle of the Hessian's pattern; empty if there is none."""
    whole = laws.hessian_pattern
    if whole is None:
        nothing = np.zeros(0, np.int64)
        return Pattern.from_coordinates(nothing, nothing, (laws.unknowns, laws.unknowns))
    row, below = whole.row_of(), whole.indices <= whole.row_of()
    return Pattern.from_coordinates(row[below], whole.indices[below], (whole.rows, whole.columns))
