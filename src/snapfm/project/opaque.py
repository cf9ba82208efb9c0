"""Opaque laws, which only torch can evaluate, in Newton's compiled loop: one System over all rows and unknowns, by callback.

CompiledLaws evaluates rows, Jacobian and Hessian sample by sample, so that no bit depends on the batch. A sample whose law
raises gets NaN for its rows and ends NONFINITE. Used by project.newton; must not import it.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace

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

    `uncurved` holds the samples with a law that has no second derivative: their curvature is unknown.
    """

    def __init__(self, laws: CompiledLaws, rows: Index, params: Params, at: Index) -> None:
        self._laws, self._rows, self._params, self._at = laws, rows, params, at
        self._entries = laws.pattern.entries(rows)
        self.uncurved: set[int] = set()
        self.callback = Callback(self._serve)

    def pull(self, u: Values, samples: Index, multipliers: Values, rest: Values) -> None:
        """Add Jᵀλ to `rest` (b, n), with all multipliers λ (b, m) of the given samples. Written: rest."""
        for i, sample in enumerate(samples.tolist()):
            values = self._jacobian(u[i], sample)
            rest[i] += self._laws.pattern.csr(values).T @ multipliers[i]

    def _serve(self, task: int, memory: int) -> None:
        tile = np.ctypeslib.as_array((ctypes.c_double * int(self._at[-1])).from_address(memory))
        cells = self._section(tile, CELLS)
        unknowns = self._laws.unknowns
        fields, samples = cells[1 : 1 + unknowns].T, cells[1 + unknowns].astype(np.int64)
        with torch.no_grad(), one_thread(), np.errstate(all="ignore"):
            if task == TO_EVALUATE:
                rows = self._section(tile, ROWS)
                for lane, source in _distinct(fields, samples):
                    rows[:, lane] = rows[:, source] if source < lane else self._residual(fields[lane], samples[lane])
                return
            jacobian, hessian = self._section(tile, JACOBIAN), self._section(tile, HESSIAN)
            multipliers = self._section(tile, MULTIPLIER).T
            both = np.concatenate([fields, multipliers], axis=1)
            for lane, source in _distinct(both, samples):
                if source < lane:
                    jacobian[:, lane], hessian[:, lane] = jacobian[:, source], hessian[:, source]
                    continue
                jacobian[:, lane] = self._jacobian(fields[lane], samples[lane])[self._entries]
                hessian[:, lane] = self._hessian(fields[lane], int(samples[lane]), multipliers[lane])

    def _section(self, tile: Values, number: int) -> Values:
        return tile[self._at[number] : self._at[number + 1]].reshape(-1, LANES)

    def _of(self, field: Values, sample: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        params = {name: value[sample : sample + 1].clone() for name, value in self._params.items()}
        return torch.from_numpy(field.copy()).reshape(1, *self._laws.shape), params

    def _residual(self, field: Values, sample: int) -> Values:
        rows: Values = self._laws.residual_alone(*self._of(field, sample))[0].numpy()[self._rows]
        return rows

    def _jacobian(self, field: Values, sample: int) -> Values:
        values: Values = self._laws.jacobian(*self._of(field, sample))[0].numpy()
        return values

    def _hessian(self, field: Values, sample: int, multipliers: Values) -> Values:
        """Return the lower triangle of Σλ∇²h; zeros if torch has no second derivative."""
        lower = _lower(self._laws)
        if self._laws.hessian_pattern is None:
            self.uncurved.add(sample)
            return np.zeros(lower.nnz)
        if self._laws.uncurved:
            self.uncurved.add(sample)
        weight = torch.zeros(1, self._laws.rows, dtype=torch.float64)
        weight[0, self._rows] = torch.from_numpy(multipliers.copy())
        try:
            values = self._laws.hessian(*self._of(field, sample), weight)[0]
        except RAISED:  # then W = I, and steps are shorter
            self.uncurved.add(sample)
            return np.zeros(lower.nnz)
        whole = self._laws.hessian_pattern
        lower_values: Values = values[whole.indices <= whole.row_of()]
        return lower_values


def _lower(laws: CompiledLaws) -> Pattern:
    """Return the lower triangle of the Hessian's pattern; empty if there is none."""
    whole = laws.hessian_pattern
    if whole is None:
        nothing = np.zeros(0, np.int64)
        return Pattern.from_coordinates(nothing, nothing, (laws.unknowns, laws.unknowns))
    row, below = whole.row_of(), whole.indices <= whole.row_of()
    return Pattern.from_coordinates(row[below], whole.indices[below], (whole.rows, whole.columns))


def _distinct(fields: Values, samples: Index) -> list[tuple[int, int]]:
    """Pair each lane with the lane whose values it may copy: itself, or the one before if both hold the same."""
    pairs, source = [], 0
    for lane in range(LANES):
        same = lane > 0 and samples[lane] == samples[lane - 1] and np.array_equal(fields[lane], fields[lane - 1])
        source = source if same else lane
        pairs.append((lane, source))
    return pairs
