"""A run of a suite: cell after cell, each in its own process and kept on disk when it is done, none repeated.

Cells go case by case, so that all methods of a case meet the machine in much the same mood. The only file of bench that
writes into a run's folder, but for the ledger and a report.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import TypeAlias

from snapfm.bench import inputs
from snapfm.bench.job import FIELDS, INPUTS, RECORD, Job, Progress
from snapfm.bench.machine import load, machine
from snapfm.bench.methods import OURS, methods
from snapfm.bench.record import Cell, Kind, State
from snapfm.bench.stand import FIRST_CALL
from snapfm.bench.suite import Case, Suite
from snapfm.bench.supervise import End, supervised
from snapfm.errors import DataError, UnknownName
from snapfm.ledger import Ledger

FIELDS_FOLDER = "fields"

_RUNNING = ".running"  # folder of jobs; what a killed run left there is removed
_INPUTS_BUDGET = 1800.0  # seconds for simulating and walking once; no method's time
_HOPELESS = 1.0  # a walk is not begun if its projections alone would take so many budgets

Key: TypeAlias = tuple[str, str, str]
Cells: TypeAlias = dict[Key, Cell]
Book: TypeAlias = Ledger[Suite, Cell, Key]


@dataclass(frozen=True)
class Now:
    """What runs now, and how far the whole is."""

    case: str
    method: str
    kind: str
    doing: str
    share: float  # of the cell's budget that is used up, or of its steps that are done
    left: int  # cells after this one
    finished: Cell | None = None  # told once when the cell is done


Told: TypeAlias = Callable[[Now], None]


@dataclass(frozen=True)
class _Place:
    case: Case
    method: str
    kind: Kind

    @property
    def key(self) -> Key:
        return self.case.name, self.method, str(self.kind)


@dataclass(frozen=True)
class _Given:
    """The inputs of a case, or why there are none and what that makes of its cells."""

    file: Path
    kept: inputs.Kept | None
    state: State = State.DONE
    why: str | None = None


def run(
    suite: Suite,
    out: Path,
    only: str | None = None,
    chosen: Sequence[str] = (),
    again: bool = False,
    progress: Told | None = None,
) -> Cells:
    """Run what a folder lacks of a suite; give all cells it holds.

    `only` names one case, `chosen` some methods. `again` repeats cells that failed or whose package was missing. A cell whose
    inputs have changed since, because its network has, is run again.
    """
    _check_names(suite, only, chosen)
    with Ledger[Suite, Cell, Key](out, suite, Suite.from_raw, Cell.from_raw) as ledger:
        shutil.rmtree(out / _RUNNING, ignore_errors=True)
        todo = [
            place
            for place in _places(suite)
            if only in (None, place.case.name)
            and (not chosen or place.method in chosen)
            and not _finished(suite, out, place, ledger.cells.get(place.key), again)
        ]
        given: dict[str, _Given] = {}
        about = machine()
        for done, place in enumerate(todo):
            teller = _Teller(suite, place, len(todo) - done - 1, progress)
            if place.case.name not in given:
                given[place.case.name] = _inputs(suite, out, place.case, teller)
            cell = _cell(suite, out, place, given[place.case.name], ledger, teller)
            ledger.append(replace(cell, machine=about))
            teller.finish(cell)
        shutil.rmtree(out / _RUNNING, ignore_errors=True)
        return ledger.cells


def ours_failed(cells: Cells) -> bool:
    """Tell whether our own method let anyone down: no answer, or a claim the judge does not confirm."""
    for cell in cells.values():
        if cell.method != OURS or cell.state is State.ABSENT:
            continue
        verdicts = [turn.verdict for turn in cell.turns] + ([cell.verdict] if cell.verdict is not None else [])
        if cell.state is not State.DONE or any(one.claimed > one.converged for one in verdicts):
            return True
    return False


def _check_names(suite: Suite, only: str | None, chosen: Sequence[str]) -> None:
    names = [case.name for case in suite.cases]
    if only is not None and only not in names:
        raise UnknownName(
            f"--only expects a case of suite '{suite.name}', one of {names}; got {only!r}. Use one of these."
        )
    known = list(dict.fromkeys(name for case in suite.cases for name in suite.methods_of(case)))
    for name in chosen:
        if name not in known:
            raise UnknownName(
                f"--method expects a method of suite '{suite.name}', one of {known}; got {name!r}. Use one of these."
            )


def _places(suite: Suite) -> Iterator[_Place]:
    catalog = methods(suite.catalog)
    for case in suite.cases:
        for kind in Kind:
            for method in suite.methods_of(case):
                if kind in case.kinds and (kind is not Kind.CURVE or catalog[method].curve):
                    yield _Place(case, method, kind)


def _finished(suite: Suite, out: Path, place: _Place, cell: Cell | None, again: bool) -> bool:
    """Tell whether a record still holds: one of other inputs than there are now does not."""
    if cell is None or (again and cell.state in (State.FAILED, State.ABSENT)):
        return False
    known = inputs.kept(_inputs_file(out, place.case))
    if known is None:
        return True
    expected = inputs.fingerprint(suite, place.case)
    return (expected in (None, known.fingerprint)) and cell.inputs in (None, known.digest)


def _inputs(suite: Suite, out: Path, case: Case, teller: _Teller) -> _Given:
    """Find the inputs of a case, or make them in a process of their own."""
    file = _inputs_file(out, case)
    expected = inputs.fingerprint(suite, case)
    if expected is None:
        return _Given(file, None, State.ABSENT, f"model '{case.model}' is not shipped")
    known = inputs.kept(file)
    if known is not None and known.fingerprint == expected:
        return _Given(file, known)
    job = Job(suite, case.name, None, None, out / _RUNNING / f"{case.name}.inputs")
    teller.tell("inputs", 0.0)
    end = supervised(job, _INPUTS_BUDGET)
    if end.late or end.why is not None:
        why = end.why or f"{_INPUTS_BUDGET:g} s were used up"
        return _Given(file, None, State.FAILED, f"the inputs of the case could not be made: {why}")
    _place_file(job.folder / INPUTS, file)
    return _Given(file, inputs.kept(file))


def _cell(suite: Suite, out: Path, place: _Place, given: _Given, ledger: Book, teller: _Teller) -> Cell:
    """Make the record of one cell."""
    case, budget = place.case, suite.budget_of(place.case, place.kind)
    unknowns = 1
    for extent in case.build().grid.shape:
        unknowns *= extent
    blank = Cell(
        case.name, place.method, place.kind, given.state, given.why, problem=case.problem, samples=case.samples,
        unknowns=unknowns, tolerance=suite.tolerance, steps=case.steps if place.kind is Kind.WALK else None,
        threads=suite.threads, load=load(), seed=suite.seed,
    )  # fmt: skip
    if given.kept is None:
        return blank
    blank = replace(blank, rows=given.kept.rows, inputs=given.kept.digest)
    hopeless = _hopeless(suite, place, ledger)
    if hopeless is not None:
        return replace(blank, state=State.DNF, why=hopeless, steps_done=0)
    job = Job(
        suite, case.name, place.method, place.kind, out / _RUNNING / ".".join(place.key), given.file, given.kept.digest
    )
    teller.tell("starting", 0.0)
    end = supervised(job, budget, teller.progress)
    cell = _read(job, blank, end, budget)
    if (job.folder / FIELDS).is_file() and cell.state is State.DONE:
        _place_file(job.folder / FIELDS, out / FIELDS_FOLDER / f"{case.name}.npz")
    shutil.rmtree(job.folder, ignore_errors=True)
    return cell


def _read(job: Job, blank: Cell, end: End, budget: float) -> Cell:
    """Join what a process left with what the runner knows."""
    far = end.progress
    blank = replace(blank, seconds=end.seconds)
    if end.late:
        why = f"{budget:g} s were used up; it was at: {far.doing}"
        return replace(blank, state=State.DNF, why=why, steps_done=far.steps_done, cold=far.cold or {})
    if end.why is not None:
        return replace(blank, state=State.FAILED, why=end.why, steps_done=far.steps_done, cold=far.cold or {})
    file = job.folder / RECORD
    if not file.is_file():  # os._exit(0) inside a method
        why = f"its process ended without a record; it was at: {far.doing}"
        return replace(blank, state=State.FAILED, why=why, steps_done=far.steps_done)
    found = Cell.from_raw(json.loads(file.read_text(encoding="utf-8")))
    return replace(
        blank, state=found.state, why=found.why, cold=found.cold or far.cold or {}, turns=found.turns, walk=found.walk,
        steps_done=found.steps_done if found.state is State.DONE else far.steps_done, verdict=found.verdict,
        curve=found.curve, phases=found.phases, peak_bytes=found.peak_bytes, threads=found.threads,
    )  # fmt: skip


def _hopeless(suite: Suite, place: _Place, ledger: Book) -> str | None:
    """Say why a walk need not be begun: its method's projections of the same batch are too slow by far."""
    if place.kind is not Kind.WALK:
        return None
    tried = ledger.cells.get((place.case.name, place.method, str(Kind.PROJECTION)))
    if tried is None:
        return None
    if tried.state is State.DNF and FIRST_CALL not in tried.cold:
        spent, words = tried.seconds, "did not end in"
    elif tried.state is State.DONE and tried.turns:
        spent, words = fmean(median(turn.seconds) for turn in tried.turns), "took"
    else:
        return None
    steps, budget = place.case.steps, suite.budget_of(place.case, Kind.WALK)
    if spent * steps <= _HOPELESS * budget:
        return None
    return f"not begun: one projection of the batch {words} {spent:.3g} s, and a walk of {steps} steps has {budget:g} s"


def _inputs_file(out: Path, case: Case) -> Path:
    return out / inputs.FOLDER / f"{case.name}.npz"


def _place_file(made: Path, file: Path) -> None:
    """Put a whole file, already on disk, into its place in one step."""
    if not made.is_file():
        raise DataError(f"a process of the run is expected to leave {made}; got none. Is the disk full? Run it again.")
    file.parent.mkdir(parents=True, exist_ok=True)
    os.replace(made, file)


class _Teller:
    """Tells what becomes of one cell."""

    def __init__(self, suite: Suite, place: _Place, left: int, told: Told | None) -> None:
        self._place, self._left, self._told = place, left, told

    def progress(self, far: Progress) -> None:
        self.tell(far.doing, 0.0 if not far.steps or far.steps_done is None else far.steps_done / far.steps)

    def tell(self, doing: str, share: float, finished: Cell | None = None) -> None:
        if self._told is not None:
            case, method, kind = self._place.key
            self._told(Now(case, method, kind, doing, share, self._left, finished))

    def finish(self, cell: Cell) -> None:
        self.tell(str(cell.state), 1.0, cell)
