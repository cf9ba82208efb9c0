"""Workspaces: memory that calls of one prepared object use one after the other, and never two at once.

What is prepared never changes and is shared by all threads; matrices, factors and buffers belong to a call. They are lent to
it, so that the next call finds them warm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Work = TypeVar("Work")


class Workspaces(Generic[Work]):
    """A list of workspaces that nobody uses at present; as many are made as calls run at once."""

    def __init__(self, make: Callable[[], Work]) -> None:
        self._make, self._free = make, list[Work]()

    def __reduce__(self) -> tuple[type[Workspaces[Work]], tuple[Callable[[], Work]]]:
        return Workspaces, (self._make,)

    @contextmanager
    def lend(self) -> Iterator[Work]:
        """Lend one to a call. If the call raises, whatever it left there is dropped with the workspace."""
        try:
            work = self._free.pop()  # atomic, like append
        except IndexError:
            work = self._make()
        yield work
        self._free.append(work)
