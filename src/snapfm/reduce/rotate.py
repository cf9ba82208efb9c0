"""Rotations: pairs of unknowns that one affine row ties together are rotated so that the row reads only one of the two.

A zero-gradient edge, u[-1] = u[-2], ties two unknowns that both are free. Rotated by the row's own angle, the first new unknown
is what the row fixes, and the second is free; lengths stay as they are, so "nearest" means the same (math.md,
"Reduction"). Without this the curvature of the free one would be split between a row's multiplier and an unknown, and look
negative where it is not. Structure only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.lower.tape import Tape
from snapfm.compile.sparsity.reads import Reads


@dataclass(frozen=True)
class Rotations:
    """For pair k: new[first] = cos·u[first] + sin·u[second], new[second] = −sin·u[first] + cos·u[second]."""

    rows: Index  # the row that ties each pair
    first: Index
    second: Index
    cos: Values
    sin: Values

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def none(cls) -> Rotations:
        """Rotate nothing."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing, np.zeros(0), np.zeros(0))


def find_rotations(
    tape: Tape, rows: csr_array, found: Reads, free: Mask, bounded: Mask, candidates: Mask, nonlinear: Mask
) -> Rotations:
    """Choose `candidates` (affine equality rows) with two free unknowns, one of them `nonlinear`; no unknown is rotated twice.

    An unknown that no operation reads needs no rotation: it is eliminated through its multipliers.
    """
    unknown = found.all.indices
    live = free[unknown] & np.repeat(candidates, found.all.counts)
    two = np.bincount(found.all.rows()[live], minlength=found.all.size) == 2
    pairs = np.flatnonzero(two)
    both = unknown[live & np.repeat(two, found.all.counts)].reshape(-1, 2)  # reads come row by row, in rising order
    straight = ~_met(found, pairs, both)
    wanted = straight & nonlinear[both].any(axis=1) & ~bounded[both].any(axis=1)
    pairs, both = pairs[wanted], both[wanted]
    taken: set[int] = set()
    chosen = []
    for k, (one, other) in enumerate(both.tolist()):
        if one not in taken and other not in taken:
            taken.update((one, other))
            chosen.append(k)
    pairs, both = pairs[chosen], both[chosen]
    if not chosen:
        return Rotations.none()
    a, b = (np.asarray(rows[pairs, tape.first_unknown + one]).ravel() for one in both.T)
    length = np.hypot(a, b)
    return Rotations(pairs, both[:, 0], both[:, 1], a / length, b / length)


def rotated(tape: Tape, rows: csr_array, rotations: Rotations) -> tuple[Tape, csr_array]:
    """Write a tape and its rows over the new unknowns."""
    map_ = _matrix(rotations, tape)
    # The purpose of the rotation, exactly: these rows do not read their second unknown.
    entries = coo_array(rows @ map_)
    key = entries.coords[0].astype(np.int64) * tape.cells + entries.coords[1]
    entries.data[np.isin(key, rotations.rows * tape.cells + tape.first_unknown + rotations.second)] = 0.0
    new = csr_array(entries)
    new.eliminate_zeros()
    new.sort_indices()

    def over_new(operand: csr_array) -> csr_array:
        width = operand.shape[1]
        return csr_array(operand @ csr_array(map_[:width, :width]))

    return tape.over(over_new), new


def _met(found: Reads, pairs: Index, both: Index) -> Mask:
    """Whether a row reads either unknown of its pair through an operation."""
    width = found.all.width
    if not len(pairs):
        return np.zeros(0, bool)
    nonlinear = found.nonlinear.rows() * width + found.nonlinear.indices
    return np.asarray(np.isin(pairs[:, None] * width + both, nonlinear).any(axis=1), bool)


def _matrix(rotations: Rotations, tape: Tape) -> csr_array:
    """Old cells by new ones: u = T new."""
    first, second = tape.first_unknown + rotations.first, tape.first_unknown + rotations.second
    diagonal, at = np.ones(tape.cells), np.arange(tape.cells)
    diagonal[first], diagonal[second] = rotations.cos, rotations.cos
    row, column = np.concatenate([at, first, second]), np.concatenate([at, second, first])
    values = np.concatenate([diagonal, -rotations.sin, rotations.sin])
    return csr_array((values, (row, column)), shape=(tape.cells, tape.cells))
