"""All records of one report, read from the folders of one or several runs of `snapfm bench`, and comparisons of methods.

Comparisons are numbers: typical times, the strongest rival, whose answers are nearest. A sample is accepted if the judge accepts
it; what a method says of itself decides nothing. Writes nothing.
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
from snapfm_bench import record
from snapfm_bench.pages.document import Entry
from snapfm_bench.peers.catalog import METHODS
from snapfm_bench.record import RECORDS, CellState
from snapfm_bench.suites.projection.fixture import FIRST_CALL
from snapfm_bench.suites.projection.suite import LAST, OURS, Kind, MethodTurn, ProjectionCell
from snapfm_bench.text import NOTHING

NOT_BEGUN, NOT_RUN = "not begun", "not run"


@dataclass(frozen=True)
class ReportCase:
    """All cells of one case, ours first, the others in the order of the suite."""

    title: str  # the suite's, with the name of the suite if two suites use the same
    name: str
    suite: str
    folder: Path
    problem: str
    published: str  # key of the published figures it is compared with; empty if there are none
    axis: str | None  # what grows from case to case, if it is a point of a scaling curve
    cells: tuple[ProjectionCell, ...]
    left_out: tuple[str, ...] = ()  # methods of a scaling suite that this point of its curve does not run

    def of(self, kind: Kind) -> dict[str, ProjectionCell]:
        """Return the cells of one kind by method."""
        return {cell.method: cell for cell in self.cells if cell.kind is kind}

    def done(self, kind: Kind) -> dict[str, ProjectionCell]:
        """Return the cells of one kind that have figures."""
        return {name: cell for name, cell in self.of(kind).items() if cell.state is CellState.DONE}


@dataclass(frozen=True)
class Run:
    """One folder: its suite as recorded, maybe by an older version, and its cells in order."""

    folder: Path
    suite: Mapping[str, Any]
    cells: tuple[ProjectionCell, ...]

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
                fewer = self.suite.get(f"{kind}_methods")
                own = entry.get(f"{kind}_methods") or entry.get("methods")
                for method in own or fewer or self.suite.get("methods", ()):
                    if kind != Kind.CURVE and (name, method, kind) not in held:
                        yield self.shown(name), method, kind


@dataclass(frozen=True)
class Report:
    """Everything a report reads."""

    runs: tuple[Run, ...]
    cases: tuple[ReportCase, ...]
    pending: tuple[tuple[str, str, str], ...]  # case, method and kind of cells that were not run yet

    @property
    def cells(self) -> tuple[ProjectionCell, ...]:
        """Return all cells of all runs, case by case."""
        return tuple(cell for case in self.cases for cell in case.cells)


def title(method: str) -> str:
    """Return the title of a method; records outlive catalogs, so an unknown method keeps its name."""
    return METHODS[method].title if method in METHODS else method


def outcome(cell: ProjectionCell | None) -> Entry:
    """Write how a cell without figures ended."""
    return Entry(NOTHING) if cell is None else Entry(ended(cell))


def ended(cell: ProjectionCell) -> str:
    """Say how a cell ended: its state, or in words where DNF would say too little."""
    if cell.state is not CellState.DNF:
        return str(cell.state)
    if not cell.seconds:  # it was foreseen to exceed its budget
        return NOT_BEGUN
    first = cell.cold.get(FIRST_CALL)
    return str(cell.state) if first is None else f"cut off, first call took {first:.0f} s"


def read(folders: Sequence[Path]) -> Report:
    """Read all folders; each must hold records of a benchmark."""
    seen = Counter(folder.resolve() for folder in folders)
    twice = [str(folder) for folder in dict.fromkeys(folders) if seen[folder.resolve()] > 1]
    if twice:
        raise DataError(f"snapfm report expects each folder once; got {', '.join(twice)} again. Name it once.")
    runs = tuple(_run(folder) for folder in folders)
    return Report(runs, _cases(runs), tuple(place for run in runs for place in run.pending()))


def _run(folder: Path) -> Run:
    file = folder / RECORDS
    if not file.is_file():
        raise DataError(
            f"snapfm report expects {RECORDS} in {folder}; got none. Run one first: snapfm bench SUITE --out {folder}"
        )
    try:
        suite, cells = record.read(file, dict, ProjectionCell)
    except DataError as refusal:
        raise DataError(f"{folder}: {refusal}") from refusal
    if suite is None or not cells:
        raise DataError(
            f"snapfm report expects records of a benchmark in {folder}; got {RECORDS} without any. Wait for the first cell, or "
            f"run snapfm bench SUITE --out {folder}"
        )
    return Run(folder, suite, tuple(cells.values()))


def _cases(runs: Sequence[Run]) -> tuple[ReportCase, ...]:
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
            own = entry.get("methods") if entry.get("axis") else None
            fewer = tuple(method for method in run.suite.get("methods", ()) if own and method not in own)
            found.append(ReportCase(title, name, where, run.folder, *about, tuple(cells), fewer))
    return tuple(found)


@dataclass(frozen=True)
class ReportTotals:
    """The seconds of one cell, and how many samples the judge accepts on each of its inputs."""

    seconds: float  # of one batch: the median walk's total, or the mean over inputs of the median call
    least: float  # the same of the fastest repeats, and of the slowest
    most: float
    accepted: tuple[int, ...]  # samples that the judge accepts, by input
    samples: int
    lawful: tuple[int, ...]  # samples within the tolerance, nearest or not
    inputs: tuple[tuple[str, ...], str | None] = ((), None)  # labels, and the digest of the arrays behind them

    @property
    def lost(self) -> int:
        """Count the samples that are not accepted, over all inputs."""
        return self.samples * len(self.accepted) - sum(self.accepted)

    @property
    def complete(self) -> bool:
        """Whether every sample of every input is accepted."""
        return self.lost == 0


@dataclass(frozen=True)
class Contest:
    """Ours on one case against its rivals on the same inputs."""

    case: ReportCase
    kind: Kind
    last: bool  # of a projection: of its input at τ = 1
    ours: ReportTotals
    rivals: Mapping[str, ReportTotals]

    @property
    def rival(self) -> str | None:
        """Name the strongest rival: the fastest with at least half of its samples accepted; None without one."""
        able = {method: one.seconds for method, one in self.rivals.items() if one.lost <= sum(one.accepted)}
        return min(able, key=lambda method: able[method], default=None)

    @property
    def complete(self) -> str | None:
        """Name the fastest rival with at least as many samples accepted as ours on every input; None without one."""
        fair = {
            method: one.seconds
            for method, one in self.rivals.items()
            if all(theirs >= mine for theirs, mine in zip(one.accepted, self.ours.accepted))
        }
        return min(fair, key=lambda method: fair[method], default=None)

    def ratio(self, method: str | None) -> float | None:
        """Return a rival's seconds as a multiple of ours: above one, ours is faster; None for one without figures."""
        other = self.rivals.get(method or "")
        return None if other is None else other.seconds / self.ours.seconds


def typical(turn: MethodTurn) -> float:
    """Return the median seconds of a call."""
    return median(turn.seconds)


def totals_of(cell: ProjectionCell | None, last: bool = False) -> ReportTotals | None:
    """Summarize a cell, of a projection its inputs before τ = 1, or that at τ = 1 alone; None without figures."""
    if cell is None or cell.state is not CellState.DONE:
        return None
    if cell.kind is Kind.WALK and cell.verdict is not None and "total" in cell.walk and not last:
        spent, found, labels = [cell.totals], [cell.verdict], ()
    else:
        turns = [turn for turn in cell.turns if turn.seconds and (turn.input == LAST) is last]
        if cell.kind is not Kind.PROJECTION or not turns:
            return None
        spent, found = [turn.seconds for turn in turns], [turn.verdict for turn in turns]
        labels = tuple(turn.input for turn in turns)  # type: ignore[assignment]
    accepted, lawful = tuple(one.accepted for one in found), tuple(one.lawful for one in found)
    seconds, least, most = (fmean(map(pick, spent)) for pick in (median, min, max))
    return ReportTotals(seconds, least, most, accepted, found[0].samples, lawful, (labels, cell.inputs))


def contest(case: ReportCase, kind: Kind, last: bool = False) -> Contest | None:
    """Compare ours with its rivals; None where ours has no figure or no sample accepted."""
    ours, rivals = _same_inputs(case, kind, last)
    return None if ours is None or not any(ours.accepted) else Contest(case, kind, last, ours, rivals)


def faster(found: Contest) -> list[str]:
    """List the rivals that took less time than ours, whatever they lost."""
    return [method for method, other in found.rivals.items() if other.seconds < found.ours.seconds]


def more_lawful(found: Contest) -> list[str]:
    """List the rivals with more lawful answers than ours on any input, nearest or not."""
    return [
        name
        for name, other in found.rivals.items()
        if any(theirs > mine for theirs, mine in zip(other.lawful, found.ours.lawful))
    ]


def _same_inputs(case: ReportCase, kind: Kind, last: bool) -> tuple[ReportTotals | None, dict[str, ReportTotals]]:
    """Summarize ours, and the rivals that had the same inputs."""
    ours = totals_of(case.of(kind).get(OURS), last)
    others = {method: totals_of(cell, last) for method, cell in case.of(kind).items() if method != OURS}
    same = {
        name: one for name, one in others.items() if ours is not None and one is not None and one.inputs == ours.inputs
    }
    return ours, same


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Fit the power of y ~ x^p by least squares of logarithms; None for points of fewer than two sizes."""
    across, up = [log(x) for x, _ in points], [log(y) for _, y in points]
    return linear_regression(across, up).slope if len(set(across)) > 1 else None


def fastest(totals: Mapping[str, tuple[float, int]]) -> str | None:
    """Return the fastest of those with the most samples accepted; `totals` are (seconds, samples accepted)."""
    most = max((accepted for _, accepted in totals.values()), default=0)
    fair = {method: seconds for method, (seconds, accepted) in totals.items() if accepted == most > 0}
    return min(fair, key=lambda method: fair[method], default=None)
