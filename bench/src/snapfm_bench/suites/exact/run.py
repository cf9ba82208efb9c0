"""A run of the exact cases: the cells that its folder lacks, each on disk when it is done; then the page."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from snapfm.files.engines import WHOLE, Share
from snapfm.project import Projector
from snapfm.sampling import Spread, sample
from snapfm_bench.flow.storage import write_file
from snapfm_bench.machine import machine_and_threads
from snapfm_bench.record import Follow, Records, Report, check_name, read_folder, run_cells
from snapfm_bench.suites.exact.case import ExactCase, Scores
from snapfm_bench.suites.exact.pages import text
from snapfm_bench.suites.exact.suite import SAMPLERS, Cells, ExactCell, ExactSuite, cases, keys

PAGE = "exact.md"
_FIELDS, _TRUTH = 1, 1000  # added to the seed: fields and exact draws share no random number with the noise


class ExactFixture:
    """What the cells of one case share: the projector, how its fields vary, and chance."""

    def __init__(self, case: ExactCase, suite: ExactSuite) -> None:
        self.case = case
        self.projector = Projector(list(case.laws), case.shape)
        drawn = case.fields(suite.fields, torch.Generator().manual_seed(suite.seed + _FIELDS))
        self.spread = Spread.of_fields(drawn)
        self.chance: Scores = case.chance(suite.count, suite.rounds, suite.seed + _TRUTH)


def cell_of(
    prepared: ExactFixture, sampler: str, steps: int, suite: ExactSuite, report: Report | None = None
) -> ExactCell:
    """Sample, and score what comes."""
    case = prepared.case
    began = time.process_time()
    found = sample(
        case.velocity, prepared.projector, count=suite.count, steps=steps, dtype=torch.float64, on_failure="keep",
        generator=torch.Generator().manual_seed(suite.seed), sampler=SAMPLERS[sampler](case, prepared.spread),
        progress=None if report is None else lambda done, total: report("sampling", done / total),
    )  # fmt: skip
    spent = time.process_time() - began
    assert found.projection is not None
    weights = torch.ones(len(found.u), dtype=torch.float64) if found.weights is None else found.weights
    return ExactCell(
        case.name, sampler, steps, case.score(found.u, weights), prepared.chance, suite.count,
        int(found.projection.converged.sum()), found.effective, found.calls, spent, machine_and_threads(),
    )  # fmt: skip


def run(
    suite: ExactSuite, out: Path, only: str | None = None, progress: Follow | None = None, share: Share = WHOLE
) -> Cells:
    """Run the cells that a folder lacks, then write its page; return all cells it holds. `only` names one case.

    A share of the run computes every N-th case.
    """
    check_name("--only", "case of suite 'exact'", list(cases()), only)
    mine = share.of(list(cases()))
    with Records(out, suite, ExactCell, share) as records:
        todo = [key for key in keys(suite) if only in (None, key[0]) and key[0] in mine and key not in records.cells]
        prepared: dict[str, ExactFixture] = {}

        def make(key: tuple[str, str, str], report: Report) -> ExactCell:
            case, sampler, steps = key
            if case not in prepared:
                prepared[case] = ExactFixture(cases()[case], suite)
            return cell_of(prepared[case], sampler, int(steps), suite, report)

        run_cells(records, todo, make, progress)
        with records.alone():
            write_page(out, suite)
    return records.cells


def write_page(out: Path, suite: ExactSuite) -> None:
    """Write exact.md from the records of a folder."""
    write_file(out / PAGE, text(suite, read_folder(out, suite, ExactCell)).encode())
