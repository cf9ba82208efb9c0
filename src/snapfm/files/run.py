"""Draw or project samples into a file, block by block, and sum up what became of all of them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from snapfm.errors import ProjectionFailed, Status
from snapfm.files import archive
from snapfm.files.engines import Engine, Progress
from snapfm.files.layout import BY_LAW, NEVER, NEVER_COMPUTED, Source
from snapfm.files.projected import Projecting
from snapfm.files.stream import HERE, Written, stream
from snapfm.solve.base import OnFailure

_SLICE = 100_000  # samples whose certificates are read at a time


class SampleRequest(Protocol):
    """A frozen dataclass that says which samples a file holds: OwnRecipe, or the recipes of snapfm_bench for its problems."""

    @property
    def threads(self) -> int | None:
        """Threads of the network; None for torch's current number."""

    def source(self, on_failure: OnFailure) -> Source:
        """Return what draws the samples."""


@dataclass(frozen=True)
class FileTotals:
    """Statuses and violations of all samples that are there."""

    statuses: dict[str, int]  # from the name of a status to its number of samples, if any
    violation: float | None  # largest of all samples; None if one of them is not a number
    before: tuple[float, ...] = ()  # largest violation of each law before and after, of files of projected fields
    after: tuple[float, ...] = ()

    @property
    def converged(self) -> int:
        """How many samples obey their laws."""
        return self.statuses.get(Status.CONVERGED.name, 0)

    @property
    def failed(self) -> int:
        """How many samples do not; the file marks them by their status."""
        return sum(self.statuses.values()) - self.converged


@dataclass(frozen=True)
class Generated:
    """A file of samples: the outcome of all samples, and where the time of this call went."""

    asked: dict[str, Any]  # as in the file's attribute `recipe`
    written: Written
    totals: FileTotals
    work: ClassVar[tuple[str, ...]] = ("velocity", "projection")

    @property
    def statuses(self) -> dict[str, int]:
        """The number of samples with each status, by its name."""
        return self.totals.statuses

    @property
    def violation(self) -> float | None:
        """Largest violation of all samples; None if one of them is NaN."""
        return self.totals.violation

    @property
    def converged(self) -> int:
        """The number of certified samples."""
        return self.totals.converged

    @property
    def failed(self) -> int:
        """The number of other samples; the file marks them by their status."""
        return self.totals.failed

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of network and projection in this call, added up over all processes."""
        return {name: self.written.figures.get(name, 0.0) for name in self.work}


@dataclass(frozen=True)
class ProjectedFile(Generated):
    """A file of projected fields: the outcome of all of them, and seconds of reading and projection."""

    laws: tuple[str, ...]
    work: ClassVar[tuple[str, ...]] = ("reading", "projection")


def generate(
    recipe: SampleRequest, out: str | Path, progress: Progress | None = None, *, on_failure: OnFailure = "raise",
    engine: Engine = HERE,
) -> Generated:  # fmt: skip
    """Draw the samples of a recipe into `out`, resuming a stopped run; `progress` is called with the number drawn so far.

    Samples that do not converge raise ProjectionFailed before their block is written; with on_failure="keep" they are
    written, marked by their status. A run stopped by them can be continued with "keep". `engine` computes the blocks: see
    snapfm.files.engines. With a share of the run, the result describes that share until the file is complete.
    """
    return Generated(*_outcome(_source(recipe, on_failure, engine), out, progress, on_failure, engine))


def project_file(
    recipe: Projecting, out: str | Path, progress: Progress | None = None, *, on_failure: OnFailure = "raise",
    engine: Engine = HERE,
) -> ProjectedFile:  # fmt: skip
    """Project the fields of a file into `out`, resuming a stopped run; see `generate` for the rest."""
    source = _source(recipe, on_failure, engine)
    outcome = _outcome(source, out, progress, on_failure, engine)
    return ProjectedFile(*outcome, tuple(source.layout().attributes["laws"]))


def _source(recipe: Any, on_failure: OnFailure, engine: Engine) -> Source:
    """Build the source of a recipe, with the threads that all processes of the run will use."""
    if recipe.threads is None:
        recipe = replace(recipe, threads=engine.threads or torch.get_num_threads())
    source: Source = recipe.source(on_failure)
    return source


def _outcome(
    source: Source, out: str | Path, progress: Progress | None, on_failure: OnFailure, engine: Engine
) -> tuple[dict[str, Any], Written, FileTotals]:
    written = stream(source, out, progress, engine=engine, keep_failed=on_failure == "keep")
    return source.asked(), written, totals(written, on_failure)


def totals(written: Written, on_failure: OnFailure) -> FileTotals:
    """Sum up a file, or of an unfinished one the share that was computed here, from the file itself, in slices.

    Refuses a file that was allowed to keep failed samples, unless the caller allows it too.
    """
    counts, worst = Counter[int](), 0.0
    by_law: dict[str, np.ndarray] = {}
    slices = (slice(k, min(k + _SLICE, last)) for first, last in written.spans for k in range(first, last, _SLICE))
    for some in slices:
        there, status, violation, *sizes_by_law = written.read((archive.MARK, "status", "violation", *BY_LAW), some)
        assert there is not None  # every file of certified samples has these three
        assert status is not None
        assert violation is not None
        kept = there >= 0
        counts.update(status[kept].tolist())
        worst = float(np.max(violation[kept], initial=worst))  # NaN wins
        for name, sizes in zip(BY_LAW, sizes_by_law, strict=True):
            if sizes is not None:
                largest = sizes[kept].max(axis=0, initial=0.0)
                by_law[name] = np.maximum(by_law.get(name, largest), largest)
    statuses = {kind.name: counts[int(kind)] for kind in Status if counts[int(kind)]}
    if counts[NEVER]:
        statuses[NEVER_COMPUTED] = counts[NEVER]
    largest_by_law = {name: tuple(sizes.tolist()) for name, sizes in by_law.items()}
    found = FileTotals(statuses, worst if math.isfinite(worst) else None, **largest_by_law)
    if found.failed and on_failure == "raise":
        raise ProjectionFailed(
            f"{written.path} is expected to hold converged samples; {found.failed} of {written.count} did not converge, which it "
            "was allowed to keep. Accept them with --keep-failed (on_failure='keep'), or write to another file."
        )
    return found
