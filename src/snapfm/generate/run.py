"""Draw a file of samples block by block, with their certificates, and summarize them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from snapfm.data import Written, stream
from snapfm.data.layout import Drawn, Layout, about, coordinates, drawn, field_variable
from snapfm.data.recipe import versions
from snapfm.data.stream import HERE, KIND
from snapfm.generate.block import described, drawn_block
from snapfm.generate.certificate import CERTIFICATE
from snapfm.generate.own import OwnRecipe, OwnSampled
from snapfm.generate.recipe import Recipe, find_model, located
from snapfm.generate.summary import Totals, totals
from snapfm.problems import defaults
from snapfm.project import Projector
from snapfm.project.base import OnFailure
from snapfm.runs import Engine, Progress, Report
from snapfm.sampling import Sampler
from snapfm.sampling.sample import default_sampler
from snapfm.seeds import base_seed

_DESCRIBED = ("sampler", "steps", "tolerance", "batch", "seed", "count", "versions")  # also attributes of the file


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
        self.count, self.seed, self.dtype = recipe.count, recipe.seed, str(recipe.dtype)
        self.block = min(recipe.batch, recipe.count)
        self.grid, self.shape, self.threads = self.problem.grid, self.problem.grid.shape, recipe.threads

    def __reduce__(self) -> tuple[type[Sampled], tuple[Recipe, OnFailure]]:
        # Model and projector are prepared where they are used, perhaps by a process in another folder.
        return Sampled, (replace(self.recipe, model=located(self.recipe.model)), self.on_failure)

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
            "sampler": described(self.sampler),
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
        variables = {"u": field_variable(self.problem, self.dtype), **params, **CERTIFICATE}
        return Layout(attributes, variables, coordinates(self.grid))

    def draw(self, start: int, stop: int, report: Report) -> Drawn:
        """Draw a full block of samples and keep those from start to stop − 1."""
        generator = self._generator()
        params = self._params(start, self.block, generator)
        return drawn_block(
            self.model.network, self.projector, params, generator, start=start, stop=stop, block=self.block,
            steps=self.recipe.steps, dtype=self.dtype, sampler=self.sampler, on_failure=self.on_failure, report=report,
        )  # fmt: skip

    @cached_property
    def sampler(self) -> Sampler:
        """The one that `sample` takes by default for this model."""
        return default_sampler(self.model.network, self.projector)

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


@dataclass(frozen=True)
class Generated:
    """A file of samples: the outcome of all samples, and where the time of this call went."""

    asked: dict[str, Any]  # as in the file's attribute `recipe`
    written: Written
    totals: Totals

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
    recipe: Recipe | OwnRecipe, out: str | Path, progress: Progress | None = None, *, on_failure: OnFailure = "raise",
    engine: Engine = HERE,
) -> Generated:  # fmt: skip
    """Draw the samples of a recipe into `out`, resuming a stopped run; `progress` is called with the number drawn so far.

    Samples that do not converge raise ProjectionFailed before their block is written; with on_failure="keep" they are
    written, marked by their status. A run stopped by them can be continued with "keep". `engine` computes the blocks: see
    snapfm.runs. With a share of the run, the result describes that share until the file is complete.
    """
    if recipe.threads is None:
        recipe = replace(recipe, threads=engine.threads or torch.get_num_threads())
    source = Sampled(recipe, on_failure) if isinstance(recipe, Recipe) else OwnSampled(recipe, on_failure)
    written = stream(source, out, progress, engine=engine, keep_failed=on_failure == "keep")
    return Generated(source.asked(), written, totals(written, on_failure))
