"""All records of one report, read from the folders of one or several runs of `snapfm bench`, and comparisons of methods.

Comparisons are numbers: typical times, the fastest fair rival, whose answers are nearest. Only the judge's verdict on a method
counts, never its own claims. Writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import fmean, linear_regression, median
from typing import Any

from snapfm.errors import DataError
from snapfm.evidence import record
from snapfm.evidence.page.document import Entry
from snapfm.evidence.projection.suite import OURS, OWN, Cell, Kind, Turn
from snapfm.evidence.record import RECORDS, State
from snapfm.project.peers.catalog import METHODS
from snapfm.text import NOTHING


@dataclass(frozen=True)
class Case:
    """All cells of one case, ours first, the others in the order of the suite."""

    title: str  # the suite's, with the name of the suite if two suites use the same
    name: str
    suite: str
    folder: Path
    problem: str
    published: str  # key of the published figures it is compared with; empty if there are none
    axis: str | None  # what grows from case to case, if it is a point of a scaling curve
    cells: tuple[Cell, ...]

    def of(self, kind: Kind) -> dict[str, Cell]:
        """Return the cells of one kind by method."""
        return {cell.method: cell for cell in self.cells if cell.kind is kind}

    def done(self, kind: Kind) -> dict[str, Cell]:
        """Return the cells of one kind that have figures."""
        return {name: cell for name, cell in self.of(kind).items() if cell.state is State.DONE}


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
        """Return the suite's entries of its cases, by name."""
        return {str(entry["name"]): entry for entry in self.suite.get("cases", ())}

    def shown(self, case: str) -> str:
        """Return the title of a case: its name unless the suite has another."""
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
            entry = run.entries.get(name, {})
            problem = next((cell.problem for cell in cells if cell.problem), str(entry.get("problem", "")))
            about = (problem, entry.get("published") or "", entry.get("axis") or None)
            found.append(Case(title, name, where, run.folder, *about, tuple(cells)))
    return tuple(found)


@dataclass(frozen=True)
class Totals:
    """The seconds of one cell, and how many samples converged, by the judge, on each of its inputs."""

    seconds: float  # of one batch: a walk's total, or the mean over inputs of the median call
    converged: tuple[int, ...]  # samples, by input
    samples: int
    lawful: tuple[int, ...]  # samples within the tolerance, converged or not
    inputs: tuple[tuple[str, ...], str | None] = ((), None)  # labels, and the digest of the arrays behind them

    @property
    def complete(self) -> bool:
        """Whether every sample of every input converged."""
        return all(count == self.samples for count in self.converged)


@dataclass(frozen=True)
class Contest:
    """Ours on one case against the fastest rival with at least as many converged samples on every input."""

    case: Case
    kind: Kind
    ours: Totals
    rival: str | None  # None: no rival converges on as many
    seconds: float | None

    @property
    def ratio(self) -> float | None:
        """Return the rival's seconds as a multiple of ours: above one, ours is faster."""
        return None if self.seconds is None else self.seconds / self.ours.seconds


def typical(turn: Turn) -> float:
    """Return the median seconds of a call."""
    return median(turn.seconds)


def totals_of(cell: Cell | None) -> Totals | None:
    """Summarize a cell; None for one without figures."""
    if cell is None or cell.state is not State.DONE:
        return None
    if cell.kind is Kind.WALK and cell.verdict is not None and "total" in cell.walk:
        seconds, found, labels = cell.walk["total"], [cell.verdict], ()
    elif cell.kind is Kind.PROJECTION and cell.turns:
        seconds, found = fmean(typical(turn) for turn in cell.turns), [turn.verdict for turn in cell.turns]
        labels = tuple(turn.input for turn in cell.turns)  # type: ignore[assignment]
    else:
        return None
    converged, lawful = tuple(one.converged for one in found), tuple(one.lawful for one in found)
    return Totals(seconds, converged, found[0].samples, lawful, (labels, cell.inputs))


def contest(case: Case, kind: Kind) -> Contest | None:
    """Find the fastest fair rival of ours; None where ours has no figure or no converged sample."""
    ours, rivals = _same_inputs(case, kind)
    if ours is None or not any(ours.converged):
        return None
    fair = {
        method: other.seconds
        for method, other in rivals.items()
        if all(theirs >= mine for theirs, mine in zip(other.converged, ours.converged))
    }
    rival = min(fair, key=lambda method: fair[method], default=None)
    return Contest(case, kind, ours, rival, None if rival is None else fair[rival])


def faster(case: Case, kind: Kind) -> list[str]:
    """List the rivals that took less time than ours on the same inputs, fair or not."""
    ours, rivals = _same_inputs(case, kind)
    return [] if ours is None else [method for method, other in rivals.items() if other.seconds < ours.seconds]


def more_lawful(case: Case, kind: Kind) -> list[str]:
    """List the rivals with more feasible answers than ours on any of the same inputs, converged or not."""
    ours, rivals = _same_inputs(case, kind)
    own = () if ours is None else ours.lawful
    return [name for name, other in rivals.items() if any(theirs > mine for theirs, mine in zip(other.lawful, own))]


def _same_inputs(case: Case, kind: Kind) -> tuple[Totals | None, dict[str, Totals]]:
    """Summarize ours, and the rivals that had the same inputs."""
    ours = totals_of(case.of(kind).get(OURS))
    others = {method: totals_of(cell) for method, cell in case.of(kind).items() if method not in OWN}
    same = {
        name: one for name, one in others.items() if ours is not None and one is not None and one.inputs == ours.inputs
    }
    return ours, same


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Fit the power of y ~ x^p by least squares of logarithms; None for points of fewer than two sizes."""
    across, up = [log(x) for x, _ in points], [log(y) for _, y in points]
    return linear_regression(across, up).slope if len(set(across)) > 1 else None


def fastest(totals: Mapping[str, tuple[float, int]]) -> str | None:
    """Return the fastest of those with the most converged samples; `totals` are (seconds, converged samples)."""
    most = max((converged for _, converged in totals.values()), default=0)
    fair = {method: seconds for method, (seconds, converged) in totals.items() if converged == most > 0}
    return min(fair, key=lambda method: fair[method], default=None)
