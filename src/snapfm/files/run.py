"""Draw a file of samples block by block, with their certificates, and summarize them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from snapfm.files.engines import Engine, Progress
from snapfm.files.layout import Source
from snapfm.files.stream import HERE, Written, stream
from snapfm.files.summary import FileTotals, totals
from snapfm.solve.base import OnFailure


class SampleRequest(Protocol):
    """A frozen dataclass that says which samples a file holds: OwnRecipe, or the recipes of snapfm_bench for its problems."""

    @property
    def threads(self) -> int | None:
        """Threads of the network; None for torch's current number."""
        ...

    def source(self, on_failure: OnFailure) -> Source:
        """Return what draws the samples."""
        ...


@dataclass(frozen=True)
class Generated:
    """A file of samples: the outcome of all samples, and where the time of this call went."""

    asked: dict[str, Any]  # as in the file's attribute `recipe`
    written: Written
    totals: FileTotals

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
        return {name: self.written.figures.get(name, 0.0) for name in ("velocity", "projection")}


def generate(
    recipe: SampleRequest, out: str | Path, progress: Progress | None = None, *, on_failure: OnFailure = "raise",
    engine: Engine = HERE,
) -> Generated:  # fmt: skip
    """Draw the samples of a recipe into `out`, resuming a stopped run; `progress` is called with the number drawn so far.

    Samples that do not converge raise ProjectionFailed before their block is written; with on_failure="keep" they are
    written, marked by their status. A run stopped by them can be continued with "keep". `engine` computes the blocks: see
    snapfm.files.engines. With a share of the run, the result describes that share until the file is complete.
    """
    if recipe.threads is None:
        recipe = replace(recipe, threads=engine.threads or torch.get_num_threads())  # type: ignore[type-var]
    source = recipe.source(on_failure)
    written = stream(source, out, progress, engine=engine, keep_failed=on_failure == "keep")
    return Generated(source.asked(), written, totals(written, on_failure))
