"""Workspaces: memory of a prepared object, lent to one call at a time.

A prepared object never changes, and all threads share it. Batches, tiles and factors belong to a call. They are lent to it, so
that the next call of the same size finds them warm: fresh memory would cost more than a pass over it. Imports nothing of snapfm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Work = TypeVar("Work")


class Workspaces(Generic[Work]):
    """The workspaces that no call uses, with their sizes. `make(*size)` makes one where none is free."""

    def __init__(self, make: Callable[..., Work]) -> None:
        self._make, self._free = make, list[tuple[tuple[int, ...], Work]]()

    def __reduce__(self) -> tuple[type[Workspaces[Work]], tuple[Callable[..., Work]]]:
        return Workspaces, (self._make,)

    @contextmanager
    def lend(self, *size: int) -> Iterator[Work]:
        """Lend a workspace of this size to a call. Free ones of other sizes are dropped; this one too if the call raises."""
        work = self._take(size)
        yield work
        self._free.append((size, work))

    def _take(self, size: tuple[int, ...]) -> Work:
        while True:
            try:
                found, work = self._free.pop()  # atomic, like append
            except IndexError:
                return self._make(*size)
            if found == size:
                return work
