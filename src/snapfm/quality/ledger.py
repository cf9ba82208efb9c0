"""The ledger: records.jsonl of one run. Its first line is the suite, every other line one finished cell, newest last.

A line is written whole and pushed to disk before the next cell starts; one that a killed process left half written is dropped.
The open ledger is also the lock: one process per folder.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from snapfm.errors import DataError
from snapfm.quality.record import Cell
from snapfm.quality.suite import Suite

RECORDS = "records.jsonl"


class Ledger:
    """An open, locked ledger of one suite."""

    def __init__(self, folder: Path, suite: Suite) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / RECORDS
        self._handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._lock(folder)
            _drop_torn_line(self._handle, file)
            found, self.cells = read(file)
            if found is None:
                self._append(json.dumps({"suite": suite.to_raw()}, ensure_ascii=False))
            else:
                _check_same(folder, found, suite)
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

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)

    def append(self, cell: Cell) -> None:
        """Keep a finished cell."""
        self._append(cell.to_line())
        self.cells[cell.key] = cell

    def _append(self, line: str) -> None:
        os.write(self._handle, (line + "\n").encode())
        os.fsync(self._handle)


def read(file: Path) -> tuple[Suite | None, dict[tuple[str, str], Cell]]:
    """Read suite and cells of a ledger; of several records of one cell the newest counts."""
    lines = file.read_text(encoding="utf-8").splitlines()
    if not lines:
        return None, {}
    try:
        entries: list[dict[str, Any]] = [json.loads(line) for line in lines]
        suite = Suite.from_raw(entries[0]["suite"])
        cells = [Cell.from_raw(entry) for entry in entries[1:]]
    except (ValueError, KeyError, TypeError) as cause:
        raise DataError(
            f"{file.name} is expected to hold a suite and one record per line; got something else ({cause}). Choose another "
            "folder."
        ) from cause
    return suite, {cell.key: cell for cell in cells}


def read_folder(folder: Path, suite: Suite) -> dict[tuple[str, str], Cell]:
    """Read the cells of a run of this suite that exists."""
    file = folder / RECORDS
    found, cells = read(file) if file.is_file() else (None, {})
    if found is None:
        raise DataError(f"--page-only expects {RECORDS} in --out {folder}; got none. Run the suite first.")
    _check_same(folder, found, suite)
    return cells


def _check_same(folder: Path, found: Suite, asked: Suite) -> None:
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
