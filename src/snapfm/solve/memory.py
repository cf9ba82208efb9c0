"""The memory of a call: predicted before it is allocated, reduced by smaller pieces, and stated if it is still large.

A prediction counts what grows with the laws: tiles, scratch memory and factors. Pieces and threads are reduced until it fits.
What does not fit with one sample at a time is announced with a warning. Imports errors and kernels.operations only.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Generic, TypeVar

from snapfm.errors import MemoryWarning
from snapfm.kernels.operations import LANES
from snapfm.text import bytes_text

# A call may take so many times its batch in float64, or so many bytes if that is more, without saying so.
MULTIPLE, SMALL = 40, 2e9
LARGEST = 8e9  # bytes for one sample above which no factors are computed: half the memory of a common machine

Predict = Callable[[int], float]  # bytes of a piece of so many samples, one thread


def allowed(count: int, unknowns: int) -> float:
    """Return the bytes that a call on so many samples may take without saying so."""
    return max(SMALL, MULTIPLE * 8.0 * count * unknowns)


def fitted(predict: Predict, chunk: int, threads: int, limit: float) -> tuple[int, int]:
    """Reduce the samples of a piece and the threads until they fit: first to whole tiles, then threads, then to one sample."""

    def large() -> bool:
        return threads * predict(chunk) > limit

    while large() and chunk > LANES:
        chunk = max(LANES, chunk // (2 * LANES) * LANES)
    while large() and threads > 1:
        threads -= 1
    while large() and chunk > 1:
        chunk //= 2
    return chunk, threads


def warn_if_large(predicted: float, limit: float, unknowns: int) -> None:
    """Warn, on behalf of the caller of a projector, before more memory is allocated than the limit."""
    if predicted > limit:
        warnings.warn(
            f"a projection expects to take at most {limit / 1e9:.1f} GB ({MULTIPLE} times the batch, or {SMALL / 1e9:.0f} GB); "
            f"it is about to take {predicted / 1e9:.1f} GB, with one sample of {unknowns:,} unknowns at a time. Use a coarser "
            "field, or rows that read fewer unknowns (a stencil instead of a transform, fewer modes); or ignore "
            "snapfm.errors.MemoryWarning.",
            MemoryWarning,
            stacklevel=levels_to_caller(),
        )


def levels_to_caller() -> int:
    """Return the stack level, for a warning in the function that asks, of the first caller outside of this package."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("snapfm."):
        frame, levels = frame.f_back, levels + 1
    return levels


def described(predict: Predict) -> str:
    """Write what one sample takes and what a full tile takes, for a description of the laws."""
    one, tile = (bytes_text(predict(samples)) for samples in (1, LANES))
    return f"predicted memory of a call, without the batch: {one} for one sample, {tile} for {LANES} at once"


Work = TypeVar("Work")


class Workspaces(Generic[Work]):
    """The workspaces that no call uses, with their sizes. `make(*size)` makes one where none is free."""

    def __init__(self, make: Callable[..., Work]) -> None:
        self._make, self._free = make, list[tuple[tuple[int, ...], Work]]()

    def lend(self, *size: int) -> _Loan[Work]:
        """Lend a workspace of this size to a call. Free ones of other sizes are dropped; this one too if the call raises."""
        while self._free:
            try:
                found, work = self._free.pop()  # atomic, like append
            except IndexError:  # another thread took the last one
                break
            if found == size:
                return _Loan(self._free, size, work)
        return _Loan(self._free, size, self._make(*size))


class _Loan(Generic[Work]):
    """A workspace that goes back when the call ends. A class: making a generator would cost more than the loan."""

    __slots__ = ("_free", "_size", "_work")

    def __init__(self, free: list[tuple[tuple[int, ...], Work]], size: tuple[int, ...], work: Work) -> None:
        self._free, self._size, self._work = free, size, work

    def __enter__(self) -> Work:
        return self._work

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._free.append((self._size, self._work))
