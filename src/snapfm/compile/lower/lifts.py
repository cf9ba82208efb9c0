"""Lifts: transforms of a field that factor by axis are found by acting on it, and never written out.

A Fourier transform of a plane is dense in its unknowns. Along orthonormal bases of the two axes, every number that it gives reads
a few coefficients only (math.md, eq. lift). So while laws are lowered, these coefficients are cells beside the unknowns; whether
they become the unknowns is decided in `transform`, once all laws are lowered. Structure only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index, Values
from snapfm.compile.lower.tape import Form, Tape
from snapfm.compile.sparsity.pattern import Pattern

DENSE = 8  # unknowns of a form, on average, from which coefficients pay
_FEW = 1_000_000  # entries of a map that are written out quickly
_MOST = 40_000_000  # numbers that a map gives for all unit vectors of one axis
_SAME = 1e-9  # directions that differ by less are one; shares of a vector that are less are zero
_ORTHOGONAL = 1e-11  # change of random numbers by orthonormal rows and back: rounding of a long transform
_STEADY = 1e-3  # relative change of a number, beyond linearity, from which it is rounding alone
_TILE = 8  # fields that are multiplied together: rounding must not depend on the size of a batch

Linear = Callable[[Tensor], Tensor]
Map = Callable[[Values], Values]


@dataclass(frozen=True)
class Lift:
    """Some unknowns, laid out as an array, and the coefficients along an orthonormal basis of every axis: its rows."""

    unknowns: Index
    shape: tuple[int, ...]
    bases: tuple[Values | None, ...]  # None: the unit vectors
    first: int = 0  # cell of the first coefficient, while laws are lowered

    def forward(self, fields: Values) -> Values:
        """Return the coefficients of such arrays, flattened (b, n)."""
        return self._along([None if basis is None else basis.T for basis in self.bases], fields)

    def back(self, coefficients: Values) -> Values:
        """Return the arrays (b, n) that have these coefficients."""
        return self._along(list(self.bases), coefficients)

    def _along(self, bases: list[Values | None], batch: Values) -> Values:
        """Multiply every axis by a matrix, from the right. Each sample is multiplied alone, or in a tile of fixed size."""
        out = batch
        for axis, basis in enumerate(bases):
            if basis is None:
                continue
            before, extent = math.prod(self.shape[:axis]), self.shape[axis]
            after = math.prod(self.shape[axis + 1 :])
            if before * after == 1:
                out = _tiled(out, basis)
            elif after == 1:
                out = out.reshape(len(batch), before, extent) @ basis
            else:
                out = basis.T @ out.reshape(len(batch), before, extent, after)
        return np.ascontiguousarray(out.reshape(batch.shape))


def _tiled(batch: Values, matrix: Values) -> Values:
    out = np.empty((len(batch), matrix.shape[1]))
    some = np.zeros((_TILE, batch.shape[1]))
    for start in range(0, len(batch), _TILE):
        part = batch[start : start + _TILE]
        some[: len(part)], some[len(part) :] = part, 0.0
        out[start : start + len(part)] = (some @ matrix)[: len(part)]
    return out


def lifted(tape: Tape, begin: Form, whole: Linear, function: Linear, entries: int) -> tuple[Lift, Pattern] | None:
    """Find coefficients over which a linear map of unknowns is sparse, and its pattern there; None if there are none.

    `begin` is the tensor it begins at and `entries` the size of its matrix. `whole` is the transform that it begins with, before
    some of the results are chosen. New coefficients become cells of the tape.
    """
    shape = begin.shape
    few = entries < min(_FEW, begin.size**2 // DENSE)  # some modes of a plane: as well written out
    if not tape.lifting or not begin.size or entries < DENSE * begin.size or few or not _picks(begin, tape):
        return None
    unknowns = begin.matrix.indices - tape.first_unknown
    same = [lift for lift in tape.lifts if np.isin(unknowns, lift.unknowns).any()]
    if same and not (len(same) == 1 and same[0].shape == shape and np.array_equal(same[0].unknowns, unknowns)):
        return None
    bases = same[0].bases if same else _bases(_acting(whole, begin.size), shape)
    pattern = None if bases is None else _pattern(_acting(function, begin.size), shape, bases)
    if bases is None or pattern is None or pattern.nnz * 4 > entries:
        return None
    if same:
        return same[0], pattern
    tape.lifts.append(Lift(unknowns, shape, bases, tape.cells))
    tape.cells += begin.size
    return tape.lifts[-1], pattern


def _acting(function: Linear, size: int) -> Map:
    """Return a map without its offset."""
    offset = function(torch.zeros(size, dtype=torch.float64)).numpy()

    def act(vector: Values) -> Values:
        image: Values = function(torch.from_numpy(vector)).numpy() - offset
        return image

    return act


def _picks(form: Form, tape: Tape) -> bool:
    """Whether the elements of a form are unknowns, each of them once."""
    matrix = form.matrix
    single = matrix.nnz == form.size and bool((np.diff(matrix.indptr) == 1).all() and (matrix.data == 1.0).all())
    cells = matrix.indices
    return single and bool(tape.is_unknown(cells).all()) and len(np.unique(cells)) == form.size


def _bases(act: Map, shape: tuple[int, ...]) -> tuple[Values | None, ...] | None:
    """Find a basis for every axis: what the map reads along it, at the beginning of all other axes."""
    found: list[Values | None] = []
    if len(act(np.zeros(math.prod(shape)))) * max(shape) > _MOST:
        return None
    for axis, extent in enumerate(shape):
        at = [np.eye(1, one)[0] for one in shape]
        read = _lines(act, shape, axis, at)
        size = np.linalg.norm(read, axis=1)
        read = read[size > _SAME * size.max(initial=0.0)]
        read /= np.linalg.norm(read, axis=1)[:, None]
        first = distinct(read, np.ones(len(read)))[2]
        basis = read[first]
        basis[np.abs(basis) < np.finfo(float).eps] = 0.0
        some = np.random.default_rng(0).standard_normal((len(basis), 2))  # orthonormal rows leave it as it is
        if len(basis) > extent or (np.abs(basis @ (basis.T @ some) - some) > _ORTHOGONAL).any():
            return None
        if np.count_nonzero(basis) == len(basis):
            found.append(None)
            continue
        if len(basis) < extent:
            basis = np.concatenate([basis, np.linalg.qr(basis.T, mode="complete")[0].T[len(basis) :]])
        found.append(basis)
    return None if all(basis is None for basis in found) else tuple(found)


def _pattern(act: Map, shape: tuple[int, ...], bases: tuple[Values | None, ...]) -> Pattern | None:
    """Find the coefficients that every result reads: on each axis those seen through random numbers along the others."""
    rng = np.random.default_rng(0)
    some = rng.standard_normal(math.prod(shape))
    once, thrice = act(some), act(3.0 * some)
    rows = len(once)
    # What is zero but for rounding (the imaginary part of a mean) is not three times as large.
    row = np.flatnonzero(np.abs(thrice - 3.0 * once) <= _STEADY * np.abs(thrice))
    column = np.zeros(len(row), np.int64)
    for axis, (extent, basis) in enumerate(zip(shape, bases)):
        read = _lines(act, shape, axis, [rng.uniform(1.0, 2.0, one) for one in shape])
        along = np.abs(read if basis is None else read @ basis.T)
        seen = along > _SAME * along.max(axis=1, initial=0.0, keepdims=True)
        counts = seen.sum(axis=1)
        if int(counts[row].sum()) > DENSE * rows:
            return None
        place = np.nonzero(seen)[1]
        begins = np.cumsum(counts) - counts
        many = counts[row]
        inner = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
        column = np.repeat(column * extent, many) + place[np.repeat(begins[row], many) + inner]
        row = np.repeat(row, many)
    return Pattern.from_coordinates(row, column, (rows, math.prod(shape)))


def _lines(act: Map, shape: tuple[int, ...], axis: int, at: list[Values]) -> Values:
    """Apply the map to every unit vector along one axis, times the given vectors along the others: (results, extent)."""
    columns = []
    for k in range(shape[axis]):
        product = np.ones(1)
        for other, vector in enumerate(at):
            product = np.multiply.outer(product, np.eye(1, shape[axis], k)[0] if other == axis else vector).ravel()
        columns.append(act(product))
    return np.stack(columns, axis=1)


def distinct(forms: Values, size: Values) -> tuple[Index, Values, Index]:
    """Group forms that are multiples of each other, by two random products: label and sign of each, the first of each group."""
    probes = forms @ np.random.default_rng(0).standard_normal((forms.shape[1], 2)) / size[:, None]
    sign = np.where(probes[:, 0] < 0.0, -1.0, 1.0)
    probes *= sign[:, None]
    order = np.argsort(probes[:, 0], kind="stable")
    label = np.empty(len(order), np.int64)
    label[order] = np.cumsum(np.diff(probes[order, 0], prepend=-np.inf) > _SAME) - 1
    order = np.lexsort((probes[:, 1], label))
    steps = (np.diff(label[order], prepend=-1) > 0) | (np.abs(np.diff(probes[order, 1], prepend=np.inf)) > _SAME)
    label[order] = np.cumsum(steps) - 1
    _, first = np.unique(label, return_index=True)
    return label, sign, first
