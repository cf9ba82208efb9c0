"""The seam of the linear solvers: a solver holds settings, `prepare` does what depends on the pattern, values last.

    prepared = Lanes().prepare(pattern)      # order, elimination tree, schedule: once, frozen, for all threads
    work = prepared.workspace()              # memory and factors: for one call at a time
    pivots = work.factorize(values)          # (nnz, lanes): every hot call; reuses its memory
    work.solve(rhs)                          # (n, lanes), in place

Matrices are symmetric, given by their lower triangle by rows (CSR) with the diagonal last in every row; the augmented
matrix is then the diagonal of W followed by the rows of J, each with its -δ behind it. All are factorised as L D Lᵀ
without pivoting, so they must be definite, quasi-definite, or repaired by a PivotRule. Numerical trouble is data, one
Outcome per lane, and no lane's bits depend on the other lanes, their number or its place among them. What a solve gives
in a lane that is not FACTORED is not specified.

May import structure.pattern and errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.errors import DtypeError, ShapeError
from snapfm.structure.pattern import Pattern

Index: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = npt.NDArray[np.float64]
Array = TypeVar("Array", Values, Tensor)  # what comes as numpy leaves as numpy, what comes as torch leaves as torch

# Samples to factorise and solve at a time: two tiles, so that what is done around them is done half as often. Arrays with the
# lane last are read eight lanes at a time, and the factors of all lanes are kept: with more of them both leave the caches.
# Burgers flux 5, Schur matrix, one thread, µs a sample: 11 at 8 lanes, 15 at 16, 25 at 64; augmented matrix 109, 140 and 390.
LANES_AT_ONCE = 16


class Outcome(IntEnum):
    """What became of one lane's factorisation."""

    FACTORED = 0
    SINGULAR = 1
    NONFINITE = 2

    @property
    def advice(self) -> str:
        """Say what the outcome means and what to try, likeliest cause first."""
        return _ADVICE[self]


_ADVICE = {
    Outcome.FACTORED: "the factors solve the system, up to the pivots counted as weak",
    Outcome.SINGULAR: (
        "a pivot vanished and its row was left out of the solution; look for rows that repeat each other, then for a "
        "missing regularisation (a larger δ), or let a PivotRule repair it"
    ),
    Outcome.NONFINITE: "the values hold NaN or infinity, or overflowed; check the lane's Jacobian and curvature",
}


@dataclass(frozen=True)
class PivotRule:
    """When a pivot is too weak to divide by, and what stands in for it.

    A pivot is weak if it is at most `tiny` times its scale (its diagonal entry, or what its neighbours contribute to
    it), or if it has not the sign that `prepare(signs=...)` expects. With repair=None its row is left out and the lane
    is SINGULAR; with a number, repair times the scale stands in for it, rightly signed, and the lane is FACTORED.
    """

    tiny: float = 64 * np.finfo(np.float64).eps
    repair: float | None = None

    @property
    def stand_in(self) -> float:
        """The relative stand-in; infinity leaves the row out."""
        return np.inf if self.repair is None else self.repair


@dataclass(frozen=True)
class Pivots:
    """Per lane: the outcome, and the inertia (n - negative - weak, negative, weak) where nothing was repaired.

    The arrays are the workspace's own: the next factorize of as many lanes overwrites them, and a solve that had to
    factorise a lane again, in higher precision, puts there what it found.
    """

    status: npt.NDArray[np.int8] | Tensor  # (lanes,) of Outcome
    negative: Index | Tensor  # (lanes,) negative pivots, stand-ins included
    weak: Index | Tensor  # (lanes,) pivots left out or repaired
    smallest: Values | Tensor  # (lanes,) smallest |pivot|, before any repair

    def of_kind(self, values: Values | Tensor) -> Pivots:
        """View the arrays as numpy or torch, whichever the values are."""
        view = tensor if isinstance(values, Tensor) else host
        return Pivots(view(self.status), view(self.negative), view(self.weak), view(self.smallest))


class Prepared(Protocol):
    """All that depends on the pattern alone. It never changes, so any number of threads may share it."""

    @property
    def pattern(self) -> Pattern:
        """The lower triangle it was prepared for."""
        ...

    @property
    def fill(self) -> int:
        """Entries of the factor, the diagonal included."""
        ...

    def workspace(self) -> Workspace:
        """Give memory for factors of its own, for one call at a time."""
        ...


class Workspace(Protocol):
    """Memory for one pattern: it holds one factorisation at a time; not for two threads at once."""

    def factorize(self, values: Array) -> Pivots:
        """Factorise every lane of values (nnz, lanes)."""
        ...

    def solve(self, rhs: Array, out: Array | None = None) -> Array:
        """Solve for rhs (n, lanes) or (n, sides, lanes), into `out` or else in place; gives where the answer is.

        With one lane factorised, rhs may have any number of lanes.
        """
        ...


class Solver(Protocol):
    """Frozen settings of one way to solve."""

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> Prepared:
        """Do everything that depends on the pattern; `signs` (n,) of +1 or -1 are the pivots' expected signs."""
        ...


def lower_triangle(pattern: Pattern) -> Pattern:
    """Take the lower triangle of a symmetric pattern, with every diagonal entry present."""
    row, column = pattern.row_of(), pattern.indices
    keep = column <= row
    diagonal = np.arange(pattern.rows)
    return Pattern.from_coordinates(
        np.concatenate([row[keep], diagonal]),
        np.concatenate([column[keep], diagonal]),
        (pattern.rows, pattern.rows),
    )


def check_pattern(pattern: Pattern, signs: Index | None) -> None:
    """Stop a pattern that is not a lower triangle by rows with its diagonal last, or signs that do not fit it."""
    ends = pattern.indptr[1:] - 1
    last = pattern.indices[ends] if pattern.nnz and bool((np.diff(pattern.indptr) > 0).all()) else np.empty(0)
    if pattern.rows != pattern.columns or pattern.rows == 0 or not np.array_equal(last, np.arange(pattern.rows)):
        raise ShapeError(
            "prepare(pattern) expects the lower triangle of a square matrix by rows, the diagonal last in each; got "
            f"{pattern.rows} x {pattern.columns} with {pattern.nnz} entries. Use lower_triangle(pattern)."
        )
    if signs is not None and (len(signs) != pattern.rows or not bool(np.isin(signs, (-1, 1)).all())):
        raise ShapeError(
            f"prepare(signs) expects {pattern.rows} numbers, each +1 or -1; got {len(signs)}. Leave signs out if a "
            "pivot may have either."
        )


def check_values(values: Values | Tensor, nnz: int) -> int:
    """Stop values of the wrong shape or dtype; give the number of lanes."""
    _check_dtype("factorize(values)", values)
    if values.ndim != 2 or values.shape[0] != nnz or values.shape[1] < 1:
        raise ShapeError(
            f"factorize(values) expects ({nnz}, lanes), a row per entry of the pattern; got {tuple(values.shape)}. "
            "Put the batch last."
        )
    return int(values.shape[1])


def check_rhs(rhs: Values | Tensor, out: Values | Tensor | None, size: int, factored: int) -> tuple[int, int]:
    """Stop right-hand sides that do not fit the factors; give the numbers of sides and lanes."""
    if factored == 0:
        raise ShapeError("solve(rhs) expects factors; got none yet. Call factorize(values) first.")
    _check_dtype("solve(rhs)", rhs)
    lanes = int(rhs.shape[-1]) if rhs.ndim else 0
    if rhs.ndim not in (2, 3) or rhs.shape[0] != size or lanes < 1 or factored not in (1, lanes):
        wanted = "lanes" if factored == 1 else str(factored)
        raise ShapeError(
            f"solve(rhs) expects ({size}, {wanted}) or ({size}, sides, {wanted}); got {tuple(rhs.shape)}. Put the "
            "batch last, as it was factorised."
        )
    if out is not None:
        _check_dtype("solve(out)", out)
        if out.shape != rhs.shape:
            raise ShapeError(
                f"solve(rhs, out) expects out of the shape of rhs, {tuple(rhs.shape)}; got {tuple(out.shape)}. Give no "
                "out to solve in place."
            )
    return (int(rhs.shape[1]) if rhs.ndim == 3 else 1), lanes


def host(array: npt.NDArray[Any] | Tensor) -> npt.NDArray[Any]:
    """View an array of the CPU as numpy, without a copy."""
    return array.detach().numpy() if isinstance(array, Tensor) else array


def tensor(array: npt.NDArray[Any] | Tensor) -> Tensor:
    """View an array as a tensor, without a copy."""
    return array if isinstance(array, Tensor) else torch.from_numpy(array)


def _check_dtype(name: str, array: Values | Tensor) -> None:
    if isinstance(array, Tensor):
        fits = array.dtype == torch.float64 and array.is_contiguous()
    else:
        fits = array.dtype == np.float64 and bool(array.flags.c_contiguous)
    if not fits:
        raise DtypeError(
            f"{name} expects contiguous float64; got {array.dtype} of strides "
            f"{array.stride() if isinstance(array, Tensor) else array.strides}. Convert before the hot loop."
        )
