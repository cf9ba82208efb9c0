"""A run of a suite: the cells that its folder lacks, each in a child process and on disk when it is done.

Cells go case by case, so that all methods of a case run on the machine in a similar state. The only file of the benchmark that
writes into a run's folder, except for the records and a report.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import TypeAlias

from snapfm.errors import DataError
from snapfm.files.engines import WHOLE, Share
from snapfm_bench.machine import machine
from snapfm_bench.record import (
    CellState,
    Follow,
    Records,
    Report,
    check_name,
    load,
    run_cells,
    suite_digest,
    to_line,
)
from snapfm_bench.suites.projection import inputs
from snapfm_bench.suites.projection.fixture import FIELDS, FIRST_CALL, INPUTS, RECORD, Job
from snapfm_bench.suites.projection.suite import OURS, Case, Kind, ProjectionCell, ProjectionSuite, methods
from snapfm_bench.suites.supervise import ProcessEnd, supervised

FIELDS_FOLDER = "fields"

_CHILD = "snapfm_bench.suites.projection.cell"
_RUNNING = ".running"  # folder of jobs; what a killed run left there is removed
_INPUTS_BUDGET = 1800.0  # seconds for simulating and walking once; no method's time

Key: TypeAlias = tuple[str, str, str]  # case, method, kind
Cells: TypeAlias = dict[Key, ProjectionCell]


@dataclass(frozen=True)
class _Given:
    """The inputs of a case, or why there are none and the state of its cells."""

    file: Path
    kept: inputs.Kept | None
    state: CellState = CellState.DONE
    why: str | None = None


def run(
    suite: ProjectionSuite,
    out: Path,
    only: str | None = None,
    chosen: Sequence[str] = (),
    again: bool = False,
    progress: Follow | None = None,
    share: Share = WHOLE,
) -> Cells:
    """Run the cells that a folder lacks; return all cells it holds.

    `only` names one case, `chosen` some methods. `again` repeats cells that failed, ran out of time or lacked their package.
    A cell whose inputs have changed since, because its network has, is run again. A share of the run computes every N-th case.
    """
    check_name("--only", f"case of suite '{suite.name}'", [case.name for case in suite.cases], only)
    for name in chosen:
        check_name("--method", f"method of suite '{suite.name}'", suite.names(), name)
    mine = share.of([case.name for case in suite.cases])
    running = out / (_RUNNING if share.whole else f"{_RUNNING}.{share.part}-of-{share.parts}")
    with Records(out, suite, ProjectionCell, share) as records:
        shutil.rmtree(running, ignore_errors=True)
        todo = [
            key
            for key in _keys(suite)
            if only in (None, key[0])
            and key[0] in mine
            and (not chosen or key[1] in chosen)
            and not _finished(suite, out, records.cells.get(key), again)
        ]
        given: dict[str, _Given] = {}
        about, digest = machine(), suite_digest(suite)

        def make(key: Key, report: Report) -> ProjectionCell:
            if key[0] not in given:
                given[key[0]] = _inputs(suite, out, running, suite.case(key[0]), report)
            cell = _cell(suite, out, running, key, given[key[0]], records.cells, report)
            return replace(cell, machine={**about, **cell.machine}, suite=digest)

        run_cells(records, todo, make, progress)
        shutil.rmtree(running, ignore_errors=True)
        return records.cells


def ours_failed(cells: Cells) -> bool:
    """Return whether our own method failed: no answer, or a claim that the judge does not confirm."""
    ours = [cell for cell in cells.values() if cell.method == OURS and cell.state is not CellState.ABSENT]
    return any(cell.state is not CellState.DONE or any(one.false_claims for one in cell.verdicts) for cell in ours)


def _keys(suite: ProjectionSuite) -> list[Key]:
    catalog = methods(suite.catalog)
    return [
        (case.name, method, str(kind))
        for case in suite.cases
        for kind in Kind
        for method in suite.methods_of(case, kind)
        if kind in case.kinds and (kind is not Kind.CURVE or catalog[method].curve)
    ]


def _finished(suite: ProjectionSuite, out: Path, cell: ProjectionCell | None, again: bool) -> bool:
    """Return whether a record is still valid: not if it is of other inputs than the current ones."""
    if cell is None or (again and cell.state in (CellState.FAILED, CellState.ABSENT, CellState.DNF)):
        return False
    case = suite.case(cell.case)
    known = inputs.kept(_inputs_file(out, case))
    if known is None:
        return True
    expected = inputs.fingerprint(suite, case)
    return (expected in (None, known.fingerprint)) and cell.inputs in (None, known.digest)


def _inputs(suite: ProjectionSuite, out: Path, running: Path, case: Case, report: Report) -> _Given:
    """Find the inputs of a case, or make them in a process of their own."""
    file = _inputs_file(out, case)
    expected = inputs.fingerprint(suite, case)
    if expected is None:
        return _Given(file, None, CellState.ABSENT, f"model '{case.model}' is not shipped")
    known = inputs.kept(file)
    if known is not None and known.fingerprint == expected:
        return _Given(file, known)
    job = Job(suite, case.name, None, None, running / f"{case.name}.inputs")
    report("inputs", 0.0)
    end = supervised(_CHILD, to_line(job), job.folder, suite.threads, _INPUTS_BUDGET)
    if end.late or end.why is not None:
        why = end.why or f"{_INPUTS_BUDGET:g} s were used up"
        return _Given(file, None, CellState.FAILED, f"the inputs of the case could not be made: {why}")
    _place_file(job.folder / INPUTS, file)
    return _Given(file, inputs.kept(file))


def _cell(
    suite: ProjectionSuite, out: Path, running: Path, key: Key, given: _Given, cells: Cells, report: Report
) -> ProjectionCell:
    """Make the record of one cell."""
    case, method, kind = suite.case(key[0]), key[1], Kind(key[2])
    budget = suite.budget_of(case, kind)
    blank = ProjectionCell(
        case.name, method, kind, given.state, given.why, problem=case.problem, samples=case.samples,
        unknowns=math.prod(case.build().grid.shape), tolerance=suite.tolerance,
        steps=case.steps if kind is Kind.WALK else None, threads=suite.threads, load=os.getloadavg()[0], seed=suite.seed,
    )  # fmt: skip
    if given.kept is None:
        return blank
    blank = replace(blank, rows=given.kept.rows, inputs=given.kept.digest)
    hopeless = _hopeless(case, method, kind, budget, cells)
    if hopeless is not None:
        return replace(blank, state=CellState.DNF, why=hopeless, steps_done=0)
    folder = running / ".".join(key)
    job = Job(suite, case.name, method, kind, folder, given.file, given.kept.digest)
    end = supervised(_CHILD, to_line(job), folder, suite.threads, budget, lambda far: report(far.doing, far.share))
    cell = _read(folder / RECORD, replace(blank, seconds=end.seconds, steps_done=end.progress.steps_done), end, budget)
    if (folder / FIELDS).is_file() and cell.state is CellState.DONE:
        _place_file(folder / FIELDS, out / FIELDS_FOLDER / f"{case.name}.npz")
    shutil.rmtree(folder, ignore_errors=True)
    return cell


def _read(file: Path, blank: ProjectionCell, end: ProcessEnd, budget: float) -> ProjectionCell:
    """Combine the record that a process left with what the runner knows."""
    far, cold = end.progress, end.progress.cold or {}
    if end.late:
        why = f"{budget:g} s were used up; it was at: {far.doing}"
        return replace(blank, state=CellState.DNF, why=why, cold=cold)
    if end.why is not None:
        return replace(blank, state=CellState.FAILED, why=end.why, cold=cold)
    if not file.is_file():  # os._exit(0) inside a method
        why = f"its process ended without a record; it was at: {far.doing}"
        return replace(blank, state=CellState.FAILED, why=why)
    found = load(ProjectionCell, json.loads(file.read_text(encoding="utf-8")))
    return replace(
        blank, state=found.state, why=found.why, cold=found.cold or cold, turns=found.turns, walk=found.walk,
        walks=found.walks, machine=found.machine,
        steps_done=found.steps_done if found.state is CellState.DONE else far.steps_done, verdict=found.verdict,
        curve=found.curve, phases=found.phases, peak_bytes=found.peak_bytes, threads=found.threads,
    )  # fmt: skip


def _hopeless(case: Case, method: str, kind: Kind, budget: float, cells: Cells) -> str | None:
    """Return why a walk is not started: the projections of the same batch alone would use up its budget."""
    tried = cells.get((case.name, method, str(Kind.PROJECTION)))
    if kind is not Kind.WALK or tried is None:
        return None
    if tried.state is CellState.DNF and FIRST_CALL not in tried.cold:
        spent, words = tried.seconds, "did not end in"
    elif tried.state is CellState.DONE and tried.turns:
        spent, words = fmean(median(turn.seconds) for turn in tried.turns), "took"
    else:
        return None
    if spent * case.steps <= budget:
        return None
    return f"not begun: one projection of the batch {words} {spent:.3g} s, and a walk of {case.steps} steps has {budget:g} s"


def _inputs_file(out: Path, case: Case) -> Path:
    return out / inputs.FOLDER / f"{case.name}.npz"


def _place_file(made: Path, file: Path) -> None:
    """Move a finished file to its place atomically."""
    if not made.is_file():
        raise DataError(f"a process of the run is expected to leave {made}; got none. Is the disk full? Run it again.")
    file.parent.mkdir(parents=True, exist_ok=True)
    os.replace(made, file)
