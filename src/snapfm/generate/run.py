"""Draw a file of samples from beginning to end, and sum up what became of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from snapfm.data import Written, archive, stream
from snapfm.errors import ProjectionFailed, Status
from snapfm.generate.recipe import Recipe
from snapfm.generate.sampled import Progress, Sampled
from snapfm.project.base import OnFailure


@dataclass(frozen=True)
class Generated:
    """A finished file of samples: what became of them all, and where the time of this call went."""

    asked: dict[str, Any]  # as in the file's attribute `recipe`
    written: Written
    statuses: dict[str, int]  # name of a status to its number of samples, if any
    violation: float | None  # largest of all samples; None if one of them is not a number
    seconds: dict[str, float]  # "velocity", "projection"

    @property
    def converged(self) -> int:
        """How many samples obey their laws."""
        return self.statuses.get(Status.CONVERGED.name, 0)

    @property
    def failed(self) -> int:
        """How many do not; the file marks them by their status."""
        return self.written.count - self.converged


def generate(
    recipe: Recipe, out: str | Path, progress: Progress | None = None, *, on_failure: OnFailure = "raise"
) -> Generated:
    """Draw the samples of a recipe into `out`, resuming a run that was stopped; `progress` is told how many are drawn.

    Samples that do not converge raise ProjectionFailed before their block is written; with on_failure="keep" they are
    written, marked by their status. A run stopped by them goes on with "keep".
    """
    with _threads(recipe.threads):
        source = Sampled(recipe, on_failure, progress)
        written = stream(source, out, progress)
    found = _sum_up(source, written)
    if found.failed and on_failure == "raise":
        raise ProjectionFailed(
            f"{out} is expected to hold converged samples; {found.failed} of {written.count} did not converge, which it was "
            "allowed to keep. Accept them with --keep-failed (on_failure='keep'), or draw into another file."
        )
    return found


def _sum_up(source: Sampled, written: Written) -> Generated:
    status, violation = (archive.read_variable(written.path, name) for name in ("status", "violation"))
    assert status is not None  # every file of samples has both
    assert violation is not None
    counts = np.bincount(status, minlength=len(Status))
    statuses = {kind.name: int(counts[kind]) for kind in Status if counts[kind]}
    worst = float(violation.max())
    return Generated(source.asked(), written, statuses, worst if math.isfinite(worst) else None, source.seconds)


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """Compute with a fixed number of torch's threads: another number may round differently."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
