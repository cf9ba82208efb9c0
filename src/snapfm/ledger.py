"""The ledger: records.jsonl of one run. Its first line is the suite, every other line one finished cell, newest last.

A line is written whole and pushed to disk before the next cell starts; one that a killed process left half written is dropped.
The open ledger is also the lock: one process per folder. Knows neither suites nor cells: both come with their own words.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Hashable
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from snapfm.errors import DataError

RECORDS = "records.jsonl"


class Suite(Protocol):
    """What decides the records of a run."""

    @property
    def name(self) -> str:
        """Name it in messages."""

    def to_raw(self) -> dict[str, Any]:
        """Give plain values."""


class Cell(Protocol):
    """One record."""

    @property
    def key(self) -> Hashable:
        """Place in the grid of cells; of several records of one place the newest counts."""

    def to_line(self) -> str:
        """Write the record as one line of JSON."""


S = TypeVar("S", bound=Suite)
C = TypeVar("C", bound=Cell)
K = TypeVar("K", bound=Hashable)


class Ledger(Generic[S, C, K]):
    """An open, locked ledger of one suite; `read_suite` and `read_cell` take what json gives of a line."""

    def __init__(self, folder: Path, suite: S, read_suite: Callable[[Any], S], read_cell: Callable[[Any], C]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / RECORDS
        self.cells: dict[K, C]
        self._handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._lock(folder)
            _drop_torn_line(self._handle, file)
            found, self.cells = read(file, read_suite, read_cell)
            if found is None:
                self._append(json.dumps({"suite": suite.to_raw()}, ensure_ascii=False))
            else:
                check_same(folder, found, suite)
        except BaseException:
            os.close(self._handle)
            raise

    def _lock(self, folder: Path) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            raise DataError(
                f"--out {folder} is expected to be written by one process at a time; another one is at it. Wait for it, or "
                "choose another folder."
            ) from busy

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)

    def append(self, cell: C) -> None:
        """Keep a finished cell."""
        self._append(cell.to_line())
        self.cells[cell.key] = cell  # type: ignore[index]  # K is the type of C's keys, which Python cannot say

    def _append(self, line: str) -> None:
        left = (line + "\n").encode()
        while left:  # a signal may end a long write early
            left = left[os.write(self._handle, left) :]
        os.fsync(self._handle)


def read(file: Path, read_suite: Callable[[Any], S], read_cell: Callable[[Any], C]) -> tuple[S | None, dict[Any, C]]:
    """Read suite and cells of a ledger."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")[:-1]  # not splitlines: a reason may hold a line separator
        if not lines:
            return None, {}
        entries: list[dict[str, Any]] = [json.loads(line) for line in lines]
        suite = read_suite(entries[0]["suite"])
        cells = [read_cell(entry) for entry in entries[1:]]
    except (ValueError, KeyError, TypeError) as cause:
        raise DataError(
            f"{file.name} is expected to hold a suite and one record per line; got something else ({cause}). Choose another "
            "folder."
        ) from cause
    return suite, {cell.key: cell for cell in cells}


def check_same(folder: Path, found: S, asked: S) -> None:
    """Refuse a folder of another suite, saying in what it differs."""
    if found == asked:
        return
    old, new = found.to_raw(), asked.to_raw()
    other = ", ".join(key for key in new if old[key] != new[key])
    raise DataError(
        f"--out {folder} is expected to hold records of suite '{asked.name}' as it is now; got those of suite "
        f"'{found.name}' with another {other}. Choose another folder, or remove that one."
    )


def _drop_torn_line(handle: int, file: Path) -> None:
    content = file.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole != len(content):
        os.ftruncate(handle, whole)
