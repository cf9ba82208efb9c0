"""A run of a suite: cell after cell, each kept on disk when it is done, none repeated; then the pages.

Cells go sampler by sampler, so that a run that is stopped early has compared all tasks on its first samplers. The only file
of quality that writes, but for the ledger.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from snapfm.errors import UnknownName
from snapfm.flow.storage import write_file
from snapfm.metrics.moments import Moments
from snapfm.quality.cell import Outcome, Prepared, digest, prepare, reference_cell, sampler_cell
from snapfm.quality.curve import curve
from snapfm.quality.ledger import Ledger, read_folder
from snapfm.quality.page import page
from snapfm.quality.picture import Pictured, pictured_task
from snapfm.quality.record import REFERENCES, TRUE_FIELDS, Cell
from snapfm.quality.suite import SamplerEntry, Suite, TaskEntry
from snapfm.quality.text import text

MOMENTS = "moments"  # folder of mean and spread of every cell, float32
TRUTH = "truth"

Cells = dict[tuple[str, str], Cell]


@dataclass(frozen=True)
class Now:
    """What runs now, and how far the whole is."""

    task: str
    sampler: str
    step: int
    steps: int
    done: int  # cells of this run
    left: int  # cells after this one
    finished: Cell | None = None  # told once when the cell is done


Progress = Callable[[Now], None]


def run(suite: Suite, out: Path, only: str | None = None, progress: Progress | None = None) -> Cells:
    """Run what a folder lacks of a suite, then write its pages; give all cells it holds.

    A cell whose model has changed since, or was missing, is run again. `only` names one task.
    """
    names = [task.name for task in suite.tasks]
    if only is not None and only not in names:
        raise UnknownName(
            f"--only expects a task of suite '{suite.name}', one of {names}; got {only!r}. Use one of these."
        )
    with Ledger(out, suite) as ledger:
        digests = {task.name: digest(task.model) for task in suite.tasks}
        todo = [
            (task, sampler)
            for task, sampler in _cells(suite)
            if only in (None, task.name)
            and not _finished(ledger.cells.get((task.name, _name(sampler))), digests[task.name])
        ]
        prepared: dict[str, Prepared] = {}
        for done, (task, sampler) in enumerate(todo):
            left = len(todo) - done - 1

            def tell(step: int, steps: int, cell: Cell | None = None) -> None:
                if progress is not None:
                    progress(Now(task.name, _name(sampler), step, steps, done, left, cell))  # noqa: B023  # called in here

            tell(0, 1)
            if task.name not in prepared:
                prepared[task.name] = prepare(suite, task)
                _keep(out, task.name, TRUTH, prepared[task.name].truth.moments)
            here = prepared[task.name]
            if isinstance(sampler, str):
                outcome = reference_cell(suite, here, sampler)
            else:
                outcome = sampler_cell(suite, here, sampler, tell)
            _record(out, ledger, outcome)
            tell(1, 1, outcome.cell)
        cells = ledger.cells
    write_pages(out, suite)
    return cells


def write_pages(out: Path, suite: Suite) -> Path:
    """Write quality.md and index.html from what a folder holds; give the path of the latter."""
    cells = read_folder(out, suite)
    pictures = {}
    for task in suite.tasks:
        true = _load(out, task.name, TRUTH)
        if true is not None:
            shown = [(TRUE_FIELDS, REFERENCES[TRUE_FIELDS]), *((one.name, one.title) for one in suite.samplers)]
            columns = [_column(out, task.name, name, title, cells) for name, title in shown]
            pictures[task.name] = pictured_task([Pictured("Truth", true), *columns], task.build().grid)
    write_file(out / "quality.md", text(suite, cells).encode())
    write_file(out / "index.html", page(suite, cells, pictures, curve(suite, cells)).encode())
    return out / "index.html"


def _column(out: Path, task: str, name: str, title: str, cells: Cells) -> Pictured:
    cell = cells.get((task, name))
    instead = "not run yet" if cell is None else str(cell.status)
    return Pictured(title, _load(out, task, name) if cell is not None else None, instead)


def _cells(suite: Suite) -> Iterator[tuple[TaskEntry, str | SamplerEntry]]:
    samplers: list[str | SamplerEntry] = [*REFERENCES, *suite.samplers]
    for sampler in samplers:
        for task in suite.tasks:
            yield task, sampler


def _name(sampler: str | SamplerEntry) -> str:
    return sampler if isinstance(sampler, str) else sampler.name


def _finished(cell: Cell | None, digest: str | None) -> bool:
    """Tell whether a record still holds: a cell of another model, or of one that has come since, does not."""
    return cell is not None and (cell.sampler in REFERENCES or cell.model == digest)


def _record(out: Path, ledger: Ledger, outcome: Outcome) -> None:
    """Keep mean and spread first: a record without them would be a cell without pictures."""
    cell = outcome.cell
    if outcome.moments is not None:
        _keep(out, cell.task, cell.sampler, outcome.moments)
    else:
        _file(out, cell.task, cell.sampler).unlink(missing_ok=True)
    ledger.append(cell)


def _keep(out: Path, task: str, name: str, found: Moments) -> None:
    packed = io.BytesIO()
    np.savez_compressed(
        packed, mean=found.mean.numpy().astype(np.float32), spread=found.spread.numpy().astype(np.float32)
    )
    write_file(_file(out, task, name), packed.getvalue())


def _load(out: Path, task: str, name: str) -> dict[str, NDArray[np.float32]] | None:
    file = _file(out, task, name)
    if not file.is_file():
        return None
    with np.load(file) as packed:
        return {"mean": packed["mean"], "spread": packed["spread"]}


def _file(out: Path, task: str, name: str) -> Path:
    return out / MOMENTS / f"{task}.{name}.npz"
