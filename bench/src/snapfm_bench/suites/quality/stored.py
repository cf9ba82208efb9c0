"""Fields that others released, scored beside samples that are drawn here: rows named "stored files".

A user who has fetched such files names them on the command line; none is shipped. They are scored by the laws and the truth of a
task under its own conditions, so they have to be fields of these. How they were drawn, and how long that took, is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from snapfm.errors import DataError, ParamsError
from snapfm.metrics.moments import moments
from snapfm_bench.machine import machine_and_threads
from snapfm_bench.record import CellState
from snapfm_bench.suites.quality.cell import Outcome, QualityFixture, score
from snapfm_bench.suites.quality.suite import STORED, QualityCell, QualitySuite


@dataclass(frozen=True)
class Stored:
    """An array of a file: fields (b, *axes), whose axes have the names of the task's grid."""

    task: str
    file: Path
    array: str
    axes: tuple[str, ...] = ()  # none: those of the grid, in its order

    @property
    def name(self) -> str:
        """Return the name of its row in records."""
        return f"{STORED}{self.file.stem}.{self.array}"


def parse(words: str) -> Stored:
    """Read TASK=FILE:ARRAY or TASK=FILE:ARRAY:AXES, such as heat=heat2.npz:exa_gpu:t,x."""
    task, _, rest = words.partition("=")
    file, _, names = rest.partition(":")
    array, _, axes = names.partition(":")
    if not (task and file and array):
        raise ParamsError(
            f"--stored expects TASK=FILE:ARRAY or TASK=FILE:ARRAY:AXES; got {words!r}. Write --stored heat=heat2.npz:exa_gpu:t,x."
        )
    return Stored(task, Path(file), array, tuple(axes.split(",")) if axes else ())


def stored_cell(suite: QualitySuite, here: QualityFixture, given: Stored) -> Outcome:
    """Score released fields as samples of a task."""
    u = fields(given, [axis.name for axis in here.problem.grid.axes], here.problem.grid.shape)
    # Conditions that all samples share are repeated; others are those of the task's first samples.
    params = {name: value[: len(u)] if len(value) > 1 else value for name, value in here.params.items()}
    scores = score(here.problem.laws, u, params, here.truth, suite.bootstrap, suite.seed)
    cell = QualityCell(here.task.name, given.name, CellState.DONE, len(u), machine=machine_and_threads(), **scores)
    return cell, moments(u)


def fields(given: Stored, axes: Sequence[str], shape: Sequence[int]) -> Tensor:
    """Read the fields (b, *shape) of a file, axes in the order of the grid."""
    try:
        with np.load(given.file, allow_pickle=False) as packed:
            found = packed[given.array]
    except (OSError, ValueError, KeyError) as cause:
        raise DataError(
            f"--stored expects an array {given.array!r} in {given.file}; got none ({cause}). Name another."
        ) from cause
    own = given.axes or tuple(axes)
    if sorted(own) != sorted(axes):
        raise ParamsError(
            f"--stored expects the axes {', '.join(axes)} in some order; got {', '.join(own)}. Name each once."
        )
    if found.ndim == len(axes) + 1:
        found = found.transpose(0, *(1 + own.index(axis) for axis in axes))
    if found.shape[1:] != tuple(shape) or not len(found):
        raise DataError(
            f"--stored expects fields of shape {tuple(shape)}, axes {', '.join(axes)}; got {found.shape[1:]}. Say their order, "
            f"as in FILE:ARRAY:{','.join(reversed(axes))}, or choose the task with their grid."
        )
    return torch.from_numpy(np.ascontiguousarray(found)).double()
