"""A run of a suite: what its folder lacks, each cell on disk when it is done; then the pages.

Cells go sampler by sampler, so that a run that is stopped early has compared all tasks on its first samplers. The only file of
sample quality that writes, except for the records.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from snapfm.errors import DataError
from snapfm.evidence import record
from snapfm.evidence.page.document import NOT_YET
from snapfm.evidence.quality.cell import Prepared, model_digest, prepare, reference_cell, sampler_cell
from snapfm.evidence.quality.pages import page, text
from snapfm.evidence.quality.pictures import Pictured, curve, pictured_task
from snapfm.evidence.quality.suite import REFERENCES, TRUE_FIELDS, Cell, Cells, SamplerEntry, Suite, Task
from snapfm.evidence.record import RECORDS, Records, Tell, Told, check_name, check_same, npz, run_cells
from snapfm.flow.storage import write_file
from snapfm.metrics.moments import Moments

MOMENTS = "moments"  # folder of mean and spread of every cell, float32
TRUTH = "truth"


@dataclass(frozen=True)
class _Place:
    task: Task
    name: str
    sampler: SamplerEntry | None = None  # None: a reference row

    @property
    def key(self) -> tuple[str, str]:
        return self.task.name, self.name


def run(suite: Suite, out: Path, only: str | None = None, progress: Told | None = None) -> Cells:
    """Run what a folder lacks of a suite, then write its pages; give all cells it holds.

    A cell whose model has changed since, or was missing, is run again. `only` names one task.
    """
    check_name("--only", f"task of suite '{suite.name}'", [task.name for task in suite.tasks], only)
    with Records(out, suite, Cell) as records:
        digests = {task.name: model_digest(task.model) for task in suite.tasks}
        rows = [*((name, None) for name in REFERENCES), *((one.name, one) for one in suite.samplers)]
        places = [_Place(task, name, sampler) for name, sampler in rows for task in suite.tasks]
        todo = [
            place
            for place in places
            if only in (None, place.task.name) and not _finished(records.cells.get(place.key), digests[place.task.name])
        ]
        prepared: dict[str, Prepared] = {}

        def make(place: _Place, tell: Tell) -> Cell:
            name = place.task.name
            if name not in prepared:
                prepared[name] = prepare(suite, place.task)
                _keep(out, (name, TRUTH), prepared[name].truth.moments)
            if place.sampler is None:
                found = reference_cell(suite, prepared[name], place.name)
            else:
                found = sampler_cell(suite, prepared[name], place.sampler, lambda share: tell("sampling", share))
            # Mean and spread first: a record without them would be a cell without pictures.
            if found.moments is not None:
                _keep(out, place.key, found.moments)
            else:
                _file(out, place.key).unlink(missing_ok=True)
            return found.cell

        run_cells(records, todo, make, progress)
    write_pages(out, suite)
    return records.cells


def read_folder(folder: Path, suite: Suite) -> Cells:
    """Read the cells of a run of this suite that exists."""
    file = folder / RECORDS
    found, cells = record.read(file, Suite, Cell) if file.is_file() else (None, {})
    if found is None:
        raise DataError(f"--page-only expects {RECORDS} in --out {folder}; got none. Run the suite first.")
    check_same(folder, found, suite)
    return cells


def write_pages(out: Path, suite: Suite) -> None:
    """Write quality.md and index.html from what a folder holds."""
    cells = read_folder(out, suite)
    shown = {TRUE_FIELDS: REFERENCES[TRUE_FIELDS]} | {one.name: one.title for one in suite.samplers}
    pictures = {}
    for task in suite.tasks:
        true = _load(out, (task.name, TRUTH))
        if true is not None:
            columns = [Pictured("Truth", true)]
            for name, title in shown.items():
                cell = cells.get((task.name, name))
                found = _load(out, (task.name, name)) if cell is not None else None
                columns.append(Pictured(title, found, NOT_YET if cell is None else str(cell.status)))
            pictures[task.name] = pictured_task(columns, task.build().grid)
    write_file(out / "quality.md", text(suite, cells).encode())
    write_file(out / "index.html", page(suite, cells, pictures, curve(suite, cells)).encode())


def _finished(cell: Cell | None, model: str | None) -> bool:
    """Tell whether a record still holds: a cell of another model, or of one that has come since, does not."""
    return cell is not None and (cell.sampler in REFERENCES or cell.model == model)


def _keep(out: Path, key: tuple[str, str], found: Moments) -> None:
    mean, spread = (one.numpy().astype(np.float32) for one in (found.mean, found.spread))
    write_file(_file(out, key), npz(np.savez_compressed, mean=mean, spread=spread))


def _load(out: Path, key: tuple[str, str]) -> dict[str, NDArray[np.float32]] | None:
    file = _file(out, key)
    if not file.is_file():
        return None
    with np.load(file) as packed:
        return {"mean": packed["mean"], "spread": packed["spread"]}


def _file(out: Path, key: tuple[str, str]) -> Path:
    return out / MOMENTS / f"{'.'.join(key)}.npz"
