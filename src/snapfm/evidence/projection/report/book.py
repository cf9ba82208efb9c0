"""All records of one report, read from the folders of one or several runs of `snapfm bench`. Writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snapfm.errors import DataError
from snapfm.evidence import record
from snapfm.evidence.page.document import NOTHING, Entry
from snapfm.evidence.projection.suite import OURS, Cell, Kind
from snapfm.evidence.record import RECORDS, State
from snapfm.project.peers.catalog import METHODS


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
        """Return the cells of one kind by method."""
        return {cell.method: cell for cell in self.cells if cell.kind is kind}

    def done(self, kind: Kind) -> dict[str, Cell]:
        """Return the cells of one kind that have figures."""
        return {name: cell for name, cell in self.of(kind).items() if cell.state is State.DONE}

    @property
    def problem(self) -> str:
        """Return the name of the problem, from the cells or the suite."""
        named = next((cell.problem for cell in self.cells if cell.problem), "")
        return named or str(self.entry.get("problem", ""))

    @property
    def published(self) -> str:
        """Return the key of the published figures it is compared with; empty if there are none."""
        return self.entry.get("published") or ""

    @property
    def axis(self) -> str | None:
        """Return what grows from case to case, if the case is a point of a scaling curve."""
        return self.entry.get("axis") or None


@dataclass(frozen=True)
class Run:
    """One folder: its suite as recorded, maybe by an older version, and its cells in order."""

    folder: Path
    suite: Mapping[str, Any]
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """Return the name of the suite."""
        return str(self.suite.get("name", self.folder.name))

    @property
    def entries(self) -> dict[str, Mapping[str, Any]]:
        """Return what the suite says of its cases, by name."""
        return {str(entry["name"]): entry for entry in self.suite.get("cases", ())}

    def shown(self, case: str) -> str:
        """Return the title of a case, which is its name unless the suite has a better one."""
        return str(self.entries.get(case, {}).get("title") or case)

    def pending(self) -> Iterator[tuple[str, str, str]]:
        """Find the cells that the suite names and the run lacks; curves are skipped, as only some methods have one."""
        held = {cell.key for cell in self.cells}
        for name, entry in self.entries.items():
            for kind in entry.get("kinds", ()):
                for method in entry.get("methods") or self.suite.get("methods", ()):
                    if kind != Kind.CURVE and (name, method, kind) not in held:
                        yield self.shown(name), method, kind


@dataclass(frozen=True)
class Book:
    """Everything a report reads."""

    runs: tuple[Run, ...]
    cases: tuple[Case, ...]
    pending: tuple[tuple[str, str, str], ...]  # case, method and kind of cells that were not run yet

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Return all cells of all runs, case by case."""
        return tuple(cell for case in self.cases for cell in case.cells)


def title(method: str) -> str:
    """Return the title of a method; records outlive catalogs, so an unknown method keeps its name."""
    return METHODS[method].title if method in METHODS else method


def outcome(cell: Cell | None) -> Entry:
    """Write how a cell without figures ended."""
    return Entry(NOTHING) if cell is None else Entry(str(cell.state))


def read(folders: Sequence[Path]) -> Book:
    """Read all folders; each must hold records of a benchmark."""
    seen = Counter(folder.resolve() for folder in folders)
    twice = [str(folder) for folder in dict.fromkeys(folders) if seen[folder.resolve()] > 1]
    if twice:
        raise DataError(f"snapfm report expects each folder once; got {', '.join(twice)} again. Name it once.")
    runs = tuple(_run(folder) for folder in folders)
    return Book(runs, _cases(runs), tuple(place for run in runs for place in run.pending()))


def _run(folder: Path) -> Run:
    file = folder / RECORDS
    if not file.is_file():
        raise DataError(
            f"snapfm report expects {RECORDS} in {folder}; got none. Run one first: snapfm bench SUITE --out {folder}"
        )
    try:
        suite, cells = record.read(file, dict, Cell)
    except DataError as refusal:
        raise DataError(f"{folder}: {refusal}") from refusal
    if suite is None or not cells:
        raise DataError(
            f"snapfm report expects records of a benchmark in {folder}; got {RECORDS} without any. Wait for the first cell, or "
            f"run snapfm bench SUITE --out {folder}"
        )
    return Run(folder, suite, tuple(cells.values()))


def _cases(runs: Sequence[Run]) -> tuple[Case, ...]:
    uses = Counter(run.shown(name) for run in runs for name in {cell.case for cell in run.cells})
    suites = Counter(run.name for run in runs)
    found = []
    for run in runs:
        held = [cell.case for cell in run.cells]
        where = run.name if suites[run.name] == 1 else f"{run.name} in {run.folder.name}"
        order = list(dict.fromkeys([OURS, *run.suite.get("methods", ()), *(cell.method for cell in run.cells)]))
        for name in dict.fromkeys([*(name for name in run.entries if name in held), *held]):
            cells = sorted((one for one in run.cells if one.case == name), key=lambda one: order.index(one.method))
            shown = run.shown(name)
            title = shown if uses[shown] == 1 else f"{shown} ({where})"
            found.append(Case(title, name, where, run.folder, run.entries.get(name, {}), tuple(cells)))
    return tuple(found)
