"""The book: all records that one report is made of, read from the folders of one or several runs of `snapfm bench`.

A folder holds records.jsonl, whose first line is the suite and every other line a cell, newest last, and perhaps fields of a
few samples. Nothing is written here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snapfm import ledger
from snapfm.bench.record import Cell, Kind, State
from snapfm.errors import DataError
from snapfm.ledger import RECORDS

OURS = "ours"
OWN = (OURS, "ours-gpu")  # what is no rival of ours


@dataclass(frozen=True)
class Written:
    """A suite as it was written down: the report reads runs of older suites too, so it asks for nothing but names."""

    raw: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name it."""
        return str(self.raw["name"])

    def to_raw(self) -> dict[str, Any]:
        """Give what was written."""
        return dict(self.raw)


@dataclass(frozen=True)
class Case:
    """All cells of one case, ours first, the others as the suite lists them."""

    title: str  # the suite's words for it, with the name of the suite where two use the same
    name: str
    suite: str
    folder: Path
    entry: Mapping[str, Any]  # what the suite says of it
    cells: tuple[Cell, ...]

    def of(self, kind: Kind) -> dict[str, Cell]:
        """Give the cells of one kind by method."""
        return {cell.method: cell for cell in self.cells if cell.kind is kind}

    def done(self, kind: Kind) -> dict[str, Cell]:
        """Give the cells of one kind that have figures."""
        return {name: cell for name, cell in self.of(kind).items() if cell.state is State.DONE}

    @property
    def problem(self) -> str:
        """Name the problem, as cells or suite have it."""
        named = next((cell.problem for cell in self.cells if cell.problem), "")
        return named or str(self.entry.get("problem", ""))

    @property
    def published(self) -> str | None:
        """Give the key of the published figures the suite compares it with."""
        return self.entry.get("published") or None

    @property
    def axis(self) -> str | None:
        """Say what grows from case to case, if the case is a point of a scaling curve."""
        return self.entry.get("axis") or None


@dataclass(frozen=True)
class Run:
    """One folder: its suite as it was written down, and its cells in the order they came."""

    folder: Path
    suite: Mapping[str, Any]
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """Name the suite."""
        return str(self.suite.get("name", self.folder.name))


@dataclass(frozen=True)
class Book:
    """Everything a report reads."""

    runs: tuple[Run, ...]
    cases: tuple[Case, ...]
    pending: tuple[
        tuple[str, str, str], ...
    ]  # case, method and kind of cells that their suites name and nobody ran yet

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Give all cells of all runs, case by case."""
        return tuple(cell for case in self.cases for cell in case.cells)


def read(folders: Sequence[Path]) -> Book:
    """Read all folders; each must hold records of a benchmark."""
    seen = Counter(folder.resolve() for folder in folders)
    twice = [str(folder) for folder in dict.fromkeys(folders) if seen[folder.resolve()] > 1]
    if twice:
        raise DataError(f"snapfm report expects each folder once; got {', '.join(twice)} again. Name it once.")
    runs = tuple(_run(folder) for folder in folders)
    return Book(runs, _cases(runs), tuple(place for run in runs for place in _pending(run)))


def _run(folder: Path) -> Run:
    file = folder / RECORDS
    if not file.is_file():
        raise DataError(
            f"snapfm report expects {RECORDS} in {folder}; got none. Run one first: snapfm bench SUITE --out {folder}"
        )
    try:
        suite, cells = ledger.read(file, Written, Cell.from_raw)
    except DataError as refusal:
        raise DataError(f"{folder}: {refusal}") from refusal
    if suite is None or not cells:
        raise DataError(
            f"snapfm report expects records of a benchmark in {folder}; got {RECORDS} without any. Wait for the first cell, or "
            f"run snapfm bench SUITE --out {folder}"
        )
    return Run(folder, suite.raw, tuple(cells.values()))


def _cases(runs: Sequence[Run]) -> tuple[Case, ...]:
    uses = Counter(_shown(run, name) for run in runs for name in {cell.case for cell in run.cells})
    suites = Counter(run.name for run in runs)
    found = []
    for run in runs:
        entries = _entries(run.suite)
        listed = [name for name in entries if any(cell.case == name for cell in run.cells)]
        where = run.name if suites[run.name] == 1 else f"{run.name} in {run.folder.name}"
        for name in dict.fromkeys([*listed, *(cell.case for cell in run.cells)]):
            cells = [cell for cell in run.cells if cell.case == name]
            methods = dict.fromkeys([OURS, *run.suite.get("methods", ()), *(cell.method for cell in run.cells)])
            order = {method: place for place, method in enumerate(methods)}
            cells.sort(key=lambda cell: order[cell.method])
            shown = _shown(run, name)
            title = shown if uses[shown] == 1 else f"{shown} ({where})"
            found.append(Case(title, name, where, run.folder, entries.get(name, {}), tuple(cells)))
    return tuple(found)


def _shown(run: Run, case: str) -> str:
    """Give the title of a case, which is its name unless the suite has a better one."""
    return str(_entries(run.suite).get(case, {}).get("title") or case)


def _pending(run: Run) -> Iterator[tuple[str, str, str]]:
    """Find the cells a suite names and a run does not hold; curves are left out, as only some methods have any."""
    held = {cell.key for cell in run.cells}
    for name, entry in _entries(run.suite).items():
        for kind in entry.get("kinds", ()):
            for method in entry.get("methods") or run.suite.get("methods", ()):
                if kind != Kind.CURVE and (name, method, kind) not in held:
                    yield _shown(run, name), method, kind


def _entries(suite: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Give what a suite says of its cases, by name."""
    return {str(entry["name"]): entry for entry in suite.get("cases", ())}
