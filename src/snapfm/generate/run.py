"""Draw a file of samples block by block, with their certificates, and summarize them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from snapfm.data import Written, archive, stream
from snapfm.data.layout import Drawn, Layout, Variable, about, drawn, field_variable
from snapfm.data.recipe import versions
from snapfm.data.stream import HERE, KIND
from snapfm.errors import ProjectionFailed, Status
from snapfm.generate.recipe import Recipe, find_model
from snapfm.problems import defaults
from snapfm.project import Projection, Projector
from snapfm.project.base import OnFailure
from snapfm.runs import Engine, Progress, Report
from snapfm.sampling import PCFM, sample
from snapfm.seeds import base_seed

NEVER, NEVER_COMPUTED = -1, "NEVER_COMPUTED"  # status of samples whose block was given up: the fill value of a file
_LISTED = 8  # failed samples named in a message; the rest are counted
_DESCRIBED = ("sampler", "steps", "tolerance", "batch", "seed", "count", "versions")  # also attributes of the file

# Variables of the last projection of each sample, stored with the laws' params.
CERTIFICATE = {
    "status": Variable(
        "int8",
        {
            "long_name": "what became of the sample",
            "flag_values": [*(int(status) for status in Status), NEVER],
            "flag_meanings": " ".join([*(status.name.lower() for status in Status), NEVER_COMPUTED.lower()]),
        },
    ),
    "violation": Variable("float64", {"long_name": "largest violation of a law, in its own units, in float64"}),
    "stationarity": Variable("float64", {"long_name": "what is left of u - û + Jᵀλ in the last projection"}),
    "iterations": Variable("int64", {"long_name": "iterations of the last projection"}),
    "distance": Variable("float64", {"long_name": "length of the last projection, ‖u - û‖₂"}),
}


class Sampled:
    """The source of a recipe: fields that a model draws under a problem's laws, with their certificates.

    Unknown problems and settings, and models that do not fit, are refused. Every block starts from the same generator, so
    params and noise of sample i depend on (seed, i) alone.
    """

    command = "sample"

    def __init__(self, recipe: Recipe, on_failure: OnFailure = "raise") -> None:
        self.recipe, self.on_failure = recipe, on_failure
        self.problem = recipe.build()
        self.model = find_model(recipe.model, self.problem)
        self.sampler = PCFM()
        self.count, self.seed, self.dtype = recipe.count, recipe.seed, str(recipe.dtype)
        self.block = min(recipe.batch, recipe.count)
        self.grid, self.threads = self.problem.grid, recipe.threads

    def __reduce__(self) -> tuple[type[Sampled], tuple[Recipe, OnFailure]]:
        return Sampled, (self.recipe, self.on_failure)  # model and projector are prepared where they are used

    def asked(self) -> dict[str, Any]:
        """Return what decides the samples, in plain values; a model is identified by its weights, not by its path."""
        recipe = self.recipe
        return {
            KIND: "sampled", "problem": recipe.problem, "count": self.count, "seed": self.seed, "dtype": self.dtype,
            "settings": dict(recipe.settings), "model": self.model.sha256, "steps": recipe.steps, "batch": self.block,
            "tolerance": recipe.tolerance,
        }  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """Add what may change the last bits: versions, the number of torch's threads, the processor's instruction set."""
        return {
            **self.asked(),
            "network": dict(self.model.settings),
            "sampler": {"name": type(self.sampler).__name__, **asdict(self.sampler)},
            "versions": versions("numba", "neuraloperator"),
            "threads": self.threads or torch.get_num_threads(),
            "processor": torch.backends.cpu.get_cpu_capability(),
        }

    def layout(self) -> Layout:
        """Describe fields, params and certificates."""
        identity = self.identity()
        attributes = {
            "title": f"{self.count} sampled fields: {self.problem.equation}",
            **about(self.problem),
            "settings": defaults(self.problem.name) | dict(self.recipe.settings),
            "model": {"name": self.model.name, "sha256": self.model.sha256, "training": self.model.training},
            **{name: identity[name] for name in _DESCRIBED},
            "snapfm": identity["versions"]["snapfm"],
        }
        # Params are stored in float64 even if fields are not: the certificates refer to them.
        params = drawn(self.grid, self._params(0, 1, self._generator()), "float64")
        return Layout(attributes, {"u": field_variable(self.problem, self.dtype), **params, **CERTIFICATE})

    def draw(self, start: int, stop: int, report: Report) -> Drawn:
        """Draw a full block of samples and keep those from start to stop − 1."""
        generator = self._generator()
        params = self._params(start, self.block, generator)
        found = sample(
            self.model.network,
            self.projector,
            params,
            self.block,
            self.recipe.steps,
            generator,
            sampler=self.sampler,
            dtype=getattr(torch, self.dtype),
            first=start,
            on_failure="keep",
            progress=lambda step, steps: report(step / steps),
        )
        certificate = found.projection
        assert certificate is not None  # PCFM always ends with a projection
        if self.on_failure == "raise":
            _refuse_failed(certificate, start, stop)
        values = {"u": found.u, **params, **{name: getattr(certificate, name) for name in CERTIFICATE}}
        return Drawn({name: value[: stop - start].numpy() for name, value in values.items()}, found.seconds)

    @cached_property
    def projector(self) -> Projector:
        """The projector of the laws, always built from the first sample's params."""
        return Projector(
            self.problem.laws, self.grid.shape, self._params(0, 1, self._generator()), self.recipe.tolerance
        )

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def _params(self, start: int, count: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw params as problem.params(…, generator) would; the noise follows from the same generator."""
        return self.problem.draw_params(base_seed(generator), start, count)


def _refuse_failed(certificate: Projection, start: int, stop: int) -> None:
    """Raise ProjectionFailed if any of the samples start .. stop − 1, the first of a block, did not converge.

    The message names samples by their numbers in the whole run, not in the block.
    """
    failed = [place for place, ok in enumerate(certificate.converged[: stop - start].tolist()) if not ok]
    if not failed:
        return
    lines = [f"samples {start} to {stop - 1} are expected to converge; {len(failed)} of them failed:"]
    for place in failed[:_LISTED]:
        status = Status(int(certificate.status[place]))
        lines.append(f"  sample {start + place}: {status.name}, {_worst(certificate, place)}; {status.advice}.")
    if len(failed) > _LISTED:
        lines.append(f"  … and {len(failed) - _LISTED} more")
    lines.append(
        "Samples before these are kept. Go on with --keep-failed (on_failure='keep'), which writes failed samples too, marked."
    )
    raise ProjectionFailed("\n".join(lines))


def _worst(certificate: Projection, place: int) -> str:
    """Name the law with the largest violation; NaN counts as the largest."""
    sizes = {name: float(value[place]) for name, value in certificate.by_law.items()}
    law, size = max(sizes.items(), key=lambda item: math.inf if math.isnan(item[1]) else item[1])
    return f"law '{law}' is off by {size:.1e} (tolerance {certificate.tolerance:.0e})"


@dataclass(frozen=True)
class Generated:
    """A finished file of samples: what became of them all, and where the time of this call went."""

    asked: dict[str, Any]  # as in the file's attribute `recipe`
    written: Written
    statuses: dict[str, int]  # from the name of a status to its number of samples, if any
    violation: float | None  # largest of all samples; None if one of them is not a number

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of network and projection in this call, added up over all processes."""
        return {name: self.written.figures.get(name, 0.0) for name in ("velocity", "projection")}

    @property
    def converged(self) -> int:
        """How many samples obey their laws."""
        return self.statuses.get(Status.CONVERGED.name, 0)

    @property
    def failed(self) -> int:
        """How many samples do not; the file marks them by their status."""
        return sum(self.statuses.values()) - self.converged


def generate(
    recipe: Recipe, out: str | Path, progress: Progress | None = None, *, on_failure: OnFailure = "raise",
    engine: Engine = HERE,
) -> Generated:  # fmt: skip
    """Draw the samples of a recipe into `out`, resuming a stopped run; `progress` is called with the number drawn so far.

    Samples that do not converge raise ProjectionFailed before their block is written; with on_failure="keep" they are
    written, marked by their status. A run stopped by them can be continued with "keep". `engine` computes the blocks: see
    snapfm.runs. With a share of the run, what is returned speaks of the samples that are there.
    """
    if recipe.threads is None:
        recipe = replace(recipe, threads=engine.threads or torch.get_num_threads())
    source = Sampled(recipe, on_failure)
    written = stream(source, out, progress, engine=engine, keep_failed=on_failure == "keep")
    found = _sum_up(source, written)
    if found.failed and on_failure == "raise":
        raise ProjectionFailed(
            f"{out} is expected to hold converged samples; {found.failed} of {written.count} did not converge, which it was "
            "allowed to keep. Accept them with --keep-failed (on_failure='keep'), or draw into another file."
        )
    return found


def _sum_up(source: Sampled, written: Written) -> Generated:
    there = archive.read_variable(written.store, archive.MARK)
    status, violation = (archive.read_variable(written.store, name) for name in ("status", "violation"))
    assert there is not None  # every file of samples has all three
    assert status is not None
    assert violation is not None
    counts = Counter(status[there >= 0].tolist())
    statuses = {kind.name: counts[int(kind)] for kind in Status if counts[int(kind)]}
    if counts[NEVER]:
        statuses[NEVER_COMPUTED] = counts[NEVER]
    worst = float(violation[there >= 0].max(initial=0.0))
    return Generated(source.asked(), written, statuses, worst if math.isfinite(worst) else None)
