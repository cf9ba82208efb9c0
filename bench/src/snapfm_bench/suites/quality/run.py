"""A run of a suite: the cells that its folder lacks, each on disk when it is done; then the pages.

Cells go sampler by sampler, so that a run that is stopped early has compared all tasks on its first samplers. The only file of
sample quality that writes, except for the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from snapfm.files.engines import WHOLE, Share
from snapfm.metrics.moments import Moments
from snapfm_bench.flow.storage import write_file
from snapfm_bench.pages.document import NOT_YET
from snapfm_bench.record import Follow, Records, Report, check_name, npz, read_folder, run_cells
from snapfm_bench.suites.quality.cell import (
    QualityFixture,
    chosen_cell,
    model_digest,
    prepare,
    reference_cell,
    sampler_cell,
)
from snapfm_bench.suites.quality.pages import page, text
from snapfm_bench.suites.quality.pictures import Images, curve, pictured_task
from snapfm_bench.suites.quality.stored import Stored, stored_cell
from snapfm_bench.suites.quality.suite import REFERENCES, TRUE_FIELDS, Cells, QualityCell, QualitySuite

MOMENTS = "moments"  # folder of mean and spread of every cell, float32
TRUTH = "truth"


def run(
    suite: QualitySuite, out: Path, only: str | None = None, progress: Follow | None = None, share: Share = WHOLE,
    stored: Sequence[Stored] = (),
) -> Cells:  # fmt: skip
    """Run the cells that a folder lacks, then write its pages; return all cells it holds. `stored` are scored besides.

    A cell whose model has changed since, or was missing, is run again. `only` names one task. A share of the run computes every
    N-th task.
    """
    check_name("--only", f"task of suite '{suite.name}'", [task.name for task in suite.tasks], only)
    for given in stored:
        check_name("--stored", f"task of suite '{suite.name}'", [task.name for task in suite.tasks], given.task)
    mine = share.of([task.name for task in suite.tasks])
    files = {(given.task, given.name): given for given in stored}
    with Records(out, suite, QualityCell, share) as records:
        tasks = {task.name: task for task in suite.tasks}
        samplers = {one.name: one for one in suite.samplers}
        trials = {trial.name: trial for one in suite.samplers for trial in one.trials}
        selection = replace(suite, seed=suite.selection_seed, samples=suite.trial_samples or suite.samples)
        names = [name for one in suite.samplers for name in (*(trial.name for trial in one.trials), one.name)]
        todo = [
            (task, name)
            for name in (*suite.references, *names)
            for task in tasks
            if only in (None, task)
            and task in mine
            and not _finished(suite, records.cells.get((task, name)), model_digest(tasks[task].model))
        ]
        todo += [key for key in files if key not in records.cells and only in (None, key[0]) and key[0] in mine]
        prepared: dict[tuple[str, bool], QualityFixture] = {}

        def make(key: tuple[str, str], report: Report) -> QualityCell:
            task, name = key
            trial = name in trials
            if (task, trial) not in prepared:
                prepared[task, trial] = prepare(selection if trial else suite, tasks[task])
                if not trial:
                    _keep(out, (task, TRUTH), prepared[task, trial].truth.moments)
            here = prepared[task, trial]

            def tell(share: float) -> None:
                report("sampling", share)

            if trial:
                return sampler_cell(selection, here, trials[name], tell)[0]
            if key in files:
                cell, found = stored_cell(suite, here, files[key])
            elif name in suite.references:
                cell, found = reference_cell(suite, here, name)
            elif samplers[name].step_choices:
                cell, found = chosen_cell(suite, here, samplers[name], records.cells, tell)
            else:
                cell, found = sampler_cell(suite, here, samplers[name], tell)
            # Mean and spread first: a record without them would be a cell without pictures.
            if found is not None:
                _keep(out, key, found)
            else:
                _file(out, key).unlink(missing_ok=True)
            return cell

        run_cells(records, todo, make, progress)
        with records.alone():
            write_pages(out, suite)
    return records.cells


def write_pages(out: Path, suite: QualitySuite) -> None:
    """Write quality.md and index.html from the records and moments of a folder."""
    cells = read_folder(out, suite, QualityCell)
    shown = {TRUE_FIELDS: REFERENCES[TRUE_FIELDS]} | {one.name: one.title for one in suite.samplers}
    pictures = {}
    for task in suite.tasks:
        true = _load(out, (task.name, TRUTH))
        if true is not None:
            columns: list[tuple[str, Images | str]] = [("Truth", true)]
            for name, title in shown.items():
                cell = cells.get((task.name, name))
                columns.append((title, NOT_YET if cell is None else _load(out, (task.name, name)) or str(cell.status)))
            pictures[task.name] = pictured_task(columns, task.build().grid)
    write_file(out / "quality.md", text(suite, cells).encode())
    write_file(out / "index.html", page(suite, cells, pictures, curve(suite, cells)).encode())


def _finished(suite: QualitySuite, cell: QualityCell | None, model: str | None) -> bool:
    """Return whether a record is still valid: not if its model has changed, or was added later."""
    return cell is not None and (cell.sampler in suite.references or cell.model == model)


def _keep(out: Path, key: tuple[str, str], found: Moments) -> None:
    mean, spread = (one.numpy().astype(np.float32) for one in (found.mean, found.spread))
    write_file(_file(out, key), npz(np.savez_compressed, mean=mean, spread=spread))


def _load(out: Path, key: tuple[str, str]) -> Images | None:
    file = _file(out, key)
    if not file.is_file():
        return None
    with np.load(file) as packed:
        return {"mean": packed["mean"], "spread": packed["spread"]}


def _file(out: Path, key: tuple[str, str]) -> Path:
    return out / MOMENTS / f"{'.'.join(key)}.npz"
