"""Sampled: fields that a shipped or trained model draws under the laws of a problem."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from snapfm.files.block import CERTIFICATE, described, drawn_block
from snapfm.files.engines import Report
from snapfm.files.layout import Drawn, Layout
from snapfm.files.requests import versions
from snapfm.files.stream import KIND
from snapfm.project import Projector
from snapfm.sampling import Sampler
from snapfm.sampling.sample import default_sampler
from snapfm.seeds import base_seed
from snapfm.solve.base import OnFailure
from snapfm_bench.files.described import about, coordinates, drawn, field_variable
from snapfm_bench.files.recipe import SampleRecipe, find_model, located
from snapfm_bench.problems import defaults

_DESCRIBED = ("sampler", "steps", "tolerance", "batch", "seed", "count", "versions")  # also attributes of the file


class Sampled:
    """The source of a recipe: fields that a model draws under a problem's laws, with their certificates.

    Unknown problems and settings, and models that do not fit, are refused. Every block starts from the same generator, so
    params and noise of sample i depend on (seed, i) alone.
    """

    command = "sample"

    def __init__(self, recipe: SampleRecipe, on_failure: OnFailure = "raise") -> None:
        self.recipe, self.on_failure = recipe, on_failure
        self.problem = recipe.build()
        self.model = find_model(recipe.model, self.problem)
        self.count, self.seed, self.dtype = recipe.count, recipe.seed, str(recipe.dtype)
        self.block = min(recipe.batch, recipe.count)
        self.grid, self.shape, self.threads = self.problem.grid, self.problem.grid.shape, recipe.threads

    def __reduce__(self) -> tuple[type[Sampled], tuple[SampleRecipe, OnFailure]]:
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
