"""The ledger of a quality run: suites and cells of this package in the records every run keeps (snapfm.ledger)."""

from __future__ import annotations

from pathlib import Path

from snapfm import ledger
from snapfm.errors import DataError
from snapfm.ledger import RECORDS
from snapfm.quality.record import Cell
from snapfm.quality.suite import Suite


class Ledger(ledger.Ledger[Suite, Cell, tuple[str, str]]):
    """An open, locked ledger of one suite."""

    def __init__(self, folder: Path, suite: Suite) -> None:
        super().__init__(folder, suite, Suite.from_raw, Cell.from_raw)


def read_folder(folder: Path, suite: Suite) -> dict[tuple[str, str], Cell]:
    """Read the cells of a run of this suite that exists."""
    file = folder / RECORDS
    found, cells = ledger.read(file, Suite.from_raw, Cell.from_raw) if file.is_file() else (None, {})
    if found is None:
        raise DataError(f"--page-only expects {RECORDS} in --out {folder}; got none. Run the suite first.")
    ledger.check_same(folder, found, suite)
    return cells
