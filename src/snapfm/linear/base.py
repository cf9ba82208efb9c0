"""The seam between Newton's method and linear algebra: symmetric systems on one pattern, many lanes at a time.

    prepared = Lanes().prepare(pattern)      # fill-reducing order and schedule: once; frozen, shared by threads
    work = prepared.workspace()              # memory for the factors: one call at a time
    pivots = work.factorize(values)          # (nnz, lanes): outcome and inertia per lane
    work.solve(rhs)                          # (n, lanes), in place
    work.log_determinant()                   # (lanes,)

A matrix is given by its lower triangle in CSR form, with the diagonal entry last in every row. The augmented matrix is
then the lower triangle of W, followed by the rows of J, each with its -δ last. Every solver computes L D Lᵀ without
pivoting, which is stable for definite and quasi-definite matrices; with `signs`, the order makes it so for δ = 0 too.

The scale of a pivot is its diagonal entry |a_ii|; with `signs` it is at least a_ij² / |a_jj| for all j eliminated before i.
A pivot is weak if it is at most TINY times its scale. Its row is left out: its unknown is zero, and the lane is SINGULAR.
A pivot may have either sign, also with `signs`: the inertia counts the negative ones.

A numerical failure is data, one Outcome per lane. A lane's bits do not depend on the other lanes, on their number or on
its place among them. A lane that is NONFINITE has no specified solution. Numpy only; may import
compile.sparsity.pattern and errors.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.errors import DtypeError, ShapeError
from snapfm.kernels.factor.ordering import Order

# A pivot this small relative to its scale may be rounding alone.
TINY = 64 * float(np.finfo(np.float64).eps)


class Outcome(IntEnum):
    """The outcome of one lane's factorization. The numbers are those of kernels.factor.ldl."""

    FACTORED = 0
    SINGULAR = 1  # weak pivots: rows that repeat each other, or too small a regularization δ
    NONFINITE = 2  # the values hold NaN or infinity, or overflowed


@dataclass(frozen=True)
class Pivots:
    """Per lane: the outcome, and the inertia (n - negative - weak, negative, weak)."""

    status: npt.NDArray[np.int8]  # (lanes,) of Outcome
    negative: Index  # (lanes,) negative pivots that are not weak
    weak: Index  # (lanes,) weak pivots
    smallest: Values  # (lanes,) smallest |pivot|, weak ones included

    @classmethod
    def empty(cls, lanes: int) -> Pivots:
        """Allocate for a number of lanes."""
        return cls(np.empty(lanes, np.int8), np.empty(lanes, np.int64), np.empty(lanes, np.int64), np.empty(lanes))


class Workspace(ABC):
    """Memory for one pattern: it holds one factorization at a time and is used by one thread at a time.

    Arguments are checked here; a solver implements the three steps below.
    """

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._pivots: Pivots | None = None  # of the present factors

    def factorize(self, values: Values, live: Mask | None = None, stop: Index | None = None) -> Pivots:
        """Factorize every lane of values (nnz, lanes), or those that are `live`.

        A solver may skip lanes that are not live: their outcome and their solution are not specified. Another thread may
        set stop[0]: a solver may then end early, without factors, so check it before using them.
        """
        _check_dtype("factorize(values)", values)
        nnz = self._pattern.nnz
        if values.ndim != 2 or values.shape[0] != nnz or values.shape[1] < 1:
            raise ShapeError(
                f"factorize(values) expects ({nnz}, lanes), a row per entry of the pattern; got {values.shape}. "
                "Put the batch last."
            )
        found = Pivots.empty(values.shape[1])
        every, never = np.ones(len(found.status), bool), np.zeros(1, np.int64)
        if live is not None and live.shape != every.shape:
            raise ShapeError(
                f"factorize(live) expects {every.shape}, a mark per lane of values; got {live.shape}. Omit it if all are live."
            )
        self._factorize(values, found, every if live is None else live, never if stop is None else stop)
        self._pivots = found
        return found

    def solve(self, rhs: Values, out: Values | None = None) -> Values:
        """Solve for rhs (n, lanes), into `out` or else in place; return the array that holds the solution."""
        size, lanes = self._pattern.rows, len(self._factored("solve(rhs)").status)
        _check_dtype("solve(rhs)", rhs)
        if rhs.shape != (size, lanes):
            raise ShapeError(
                f"solve(rhs) expects ({size}, {lanes}); got {rhs.shape}. Put the batch last, as it was factorized."
            )
        if out is None:
            out = rhs
        _check_dtype("solve(out)", out)
        if out.shape != rhs.shape:
            raise ShapeError(
                f"solve(out) expects the shape of rhs, {rhs.shape}; got {out.shape}. Omit it to solve in place."
            )
        self._solve(rhs, out)
        return out

    def log_determinant(self) -> Values:
        """Compute log|det| (lanes,) of the factorized matrices; -inf where SINGULAR, NaN where NONFINITE."""
        status = self._factored("log_determinant()").status
        with np.errstate(all="ignore"):
            logs = self._log_determinant(len(status))
        logs[status == Outcome.SINGULAR] = -np.inf
        logs[status == Outcome.NONFINITE] = np.nan
        return logs

    def _factored(self, call: str) -> Pivots:
        if self._pivots is None:
            raise ShapeError(f"{call} expects factors; got none yet. Call factorize(values) first.")
        return self._pivots

    @abstractmethod
    def _factorize(self, values: Values, found: Pivots, live: Mask, stop: Index) -> None:
        """Factorize, and keep the factors; see factorize. Written: found."""

    @abstractmethod
    def _solve(self, rhs: Values, out: Values) -> None:
        """Solve. Written: out, which may be rhs."""

    @abstractmethod
    def _log_determinant(self, lanes: int) -> Values:
        """Compute log|det| (lanes,); lanes that are not FACTORED may have any number."""


class Prepared(Protocol):
    """Everything that depends on the pattern alone. It never changes, so any number of threads may share it."""

    @property
    def pattern(self) -> Pattern:
        """The lower triangle it was prepared for."""
        ...

    @property
    def order(self) -> Order:
        """The fill-reducing order, and what it costs."""
        ...

    def workspace(self) -> Workspace:
        """Make a workspace with memory of its own."""
        ...


class Solver(Protocol):
    """Frozen settings of one solver."""

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> Prepared:
        """Analyze the pattern; `signs` (n,) are +1 for the unknowns of W and -1 for the rows of J, if there are such."""
        ...


def check_pattern(pattern: Pattern, signs: Index | None) -> None:
    """Refuse a pattern that is not a lower triangle with its diagonal last in every row, or signs that do not fit it."""
    ends = pattern.indptr[1:] - 1
    last = pattern.indices[ends] if pattern.nnz and bool((np.diff(pattern.indptr) > 0).all()) else np.empty(0)
    if pattern.rows != pattern.columns or pattern.rows == 0 or not np.array_equal(last, np.arange(pattern.rows)):
        raise ShapeError(
            "prepare(pattern) expects the lower triangle of a square matrix by rows, the diagonal last in each; got "
            f"{pattern.rows} x {pattern.columns} with {pattern.nnz} entries. Keep entries with column <= row, and add "
            "every diagonal entry."
        )
    if signs is not None and (len(signs) != pattern.rows or not bool(np.isin(signs, (-1, 1)).all())):
        raise ShapeError(
            f"prepare(signs) expects {pattern.rows} numbers, each +1 or -1; got {len(signs)}. Leave signs out if the "
            "matrix is definite."
        )


def _check_dtype(name: str, array: Values) -> None:
    if array.dtype != np.float64 or not array.flags.c_contiguous:
        raise DtypeError(
            f"{name} expects contiguous float64; got {array.dtype} of strides {array.strides}. Convert before the hot loop."
        )


_LINE = 64  # bytes of a cache line


def aligned(*shape: int) -> Values:
    """Allocate float64 on a cache line."""
    size, item = math.prod(shape), np.dtype(np.float64).itemsize
    room = np.empty(size + _LINE // item)
    skip = (-room.ctypes.data % _LINE) // item
    return room[skip : skip + size].reshape(shape)
