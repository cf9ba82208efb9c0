"""Workspaces: memory of a prepared object, lent to one call at a time.

A prepared object never changes, and all threads share it. Batches, tiles and factors belong to a call. They are lent to it, so
that the next call of the same size finds them warm: fresh memory would cost more than a pass over it. Imports nothing of snapfm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

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
