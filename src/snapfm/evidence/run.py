"""The runner: cell after cell, each on disk before the next begins; a stopped run continues after its last finished cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from snapfm.errors import UnknownName
from snapfm.evidence.record import Cell, Records


class Place(Protocol):
    """A cell of a suite, run or not."""

    @property
    def key(self) -> tuple[str, ...]:
        """Identify the cell within its suite."""


C = TypeVar("C", bound=Cell)
P = TypeVar("P", bound=Place)


@dataclass(frozen=True)
class Now(Generic[C]):
    """What runs now, and how much is left."""

    key: tuple[str, ...]
    doing: str
    share: float  # of the cell's steps that are done
    left: int  # cells after this one
    finished: C | None = None  # set once, when the cell is done


Told = Callable[[Now[Any]], None]
Tell = Callable[[str, float], None]  # what a cell does, and the share of it that is done


def run_cells(records: Records[C], todo: Sequence[P], make: Callable[[P, Tell], C], progress: Told | None) -> None:
    """Make the record of every place in order and keep it; `progress` follows."""

    def tell(place: P, left: int, doing: str, share: float, finished: C | None = None) -> None:
        if progress is not None:
            progress(Now(place.key, doing, share, left, finished))

    for left, place in zip(reversed(range(len(todo))), todo):
        tell(place, left, "starting", 0.0)
        cell = make(place, partial(tell, place, left))
        records.append(cell)
        tell(place, left, "done", 1.0, cell)


def check_name(option: str, what: str, known: Sequence[str], name: str | None) -> None:
    """Refuse an option that names nothing of the suite."""
    if name is not None and name not in known:
        raise UnknownName(f"{option} expects a {what}, one of {list(known)}; got {name!r}. Use one of these.")
