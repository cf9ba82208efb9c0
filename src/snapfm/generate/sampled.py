"""Sampled: the fields a model draws under a problem's laws, with their certificates, as a source of `data`.

Every block starts from the same generator, so that params and noise of sample i depend on (seed, i) alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from snapfm.data.layout import about, drawn, field
from snapfm.data.recipe import versions
from snapfm.data.source import Arrays, Layout, Variable
from snapfm.data.stream import KIND
from snapfm.errors import Status
from snapfm.generate.failures import refuse_failed
from snapfm.generate.model import find_model
from snapfm.generate.recipe import Recipe
from snapfm.problems import defaults
from snapfm.project import Projector
from snapfm.project.base import OnFailure
from snapfm.sampling import PCFM, sample
from snapfm.seeds import base_seed

Progress = Callable[[float], None]

# Of the last projection of each sample; beside them come the laws' params.
CERTIFICATE = {
    "status": Variable(
        "int8",
        {
            "long_name": "what became of the sample",
            "flag_values": [int(status) for status in Status],
            "flag_meanings": " ".join(status.name.lower() for status in Status),
        },
    ),
    "violation": Variable("float64", {"long_name": "largest violation of a law, in its own units, in float64"}),
    "stationarity": Variable("float64", {"long_name": "what is left of u - û + Jᵀλ in the last projection"}),
    "iterations": Variable("int64", {"long_name": "iterations of the last projection"}),
    "distance": Variable("float64", {"long_name": "length of the last projection, ‖u - û‖₂"}),
}


class Sampled:
    """The source of a recipe; building it refuses unknown problems and settings, and models that do not fit."""

    command = "sample"

    def __init__(self, recipe: Recipe, on_failure: OnFailure = "raise", progress: Progress | None = None) -> None:
        self.recipe, self.on_failure, self.progress = recipe, on_failure, progress
        self.problem = recipe.build()
        self.model = find_model(recipe.model, self.problem)
        self.sampler = PCFM()
        self.count, self.seed, self.dtype = recipe.count, recipe.seed, str(recipe.dtype)
        self.block = min(recipe.batch, recipe.count)
        self.grid = self.problem.grid
        self.seconds = {"velocity": 0.0, "projection": 0.0}

    def asked(self) -> dict[str, Any]:
        """Give what decides the samples, in plain values; a model is known by its weights, wherever they lie."""
        recipe = self.recipe
        return {
            KIND: "sampled", "problem": recipe.problem, "count": self.count, "seed": self.seed, "dtype": self.dtype,
            "settings": dict(recipe.settings), "model": self.model.sha256, "steps": recipe.steps, "batch": self.block,
            "tolerance": recipe.tolerance,
        }  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """Add what may change the last bits: versions, the number of torch's threads, the processor's instructions."""
        return {
            **self.asked(),
            "network": dict(self.model.settings),
            "sampler": self._sampler(),
            "versions": versions("numba", "neuraloperator"),
            "threads": torch.get_num_threads(),
            "processor": torch.backends.cpu.get_cpu_capability(),
        }

    def layout(self) -> Layout:
        """Describe fields, params and certificates."""
        identity = self.identity()
        attributes = {
            "title": f"{self.count} sampled fields: {self.problem.equation}",
            **about(self.problem),
            "settings": defaults(self.problem.name) | dict(self.recipe.settings),
            "model": {"name": self.model.name, "sha256": self.model.sha256},
            **{
                name: identity[name] for name in ("sampler", "steps", "tolerance", "batch", "seed", "count", "versions")
            },
            "snapfm": identity["versions"]["snapfm"],
        }
        # Params keep every bit, whatever the fields do: certificates speak of these.
        params = drawn(self.grid, self._params(0, 1, self._generator()), "float64")
        return Layout(attributes, {"u": field(self.problem, self.dtype), **params, **CERTIFICATE})

    def draw(self, start: int, stop: int) -> Arrays:
        """Draw a block of samples, a whole one, and keep those from start to stop − 1."""
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
            progress=lambda step, steps: self._tell(start + (stop - start) * step / steps),
        )
        for name, seconds in found.seconds.items():
            self.seconds[name] += seconds
        certificate = found.projection
        assert certificate is not None  # PCFM ends with one
        if self.on_failure == "raise":
            refuse_failed(certificate, start, stop)
        values = {"u": found.u, **params, **{name: getattr(certificate, name) for name in CERTIFICATE}}
        return {name: value[: stop - start].numpy() for name, value in values.items()}

    @cached_property
    def projector(self) -> Projector:
        """The projector of the laws, built from the first sample's params wherever a run starts."""
        return Projector(
            self.problem.laws, self.grid.shape, self._params(0, 1, self._generator()), self.recipe.tolerance
        )

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def _params(self, start: int, count: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw params as problem.params(…, generator) would; the noise comes after, from the same generator."""
        return self.problem.draw_params(base_seed(generator), start, count)

    def _sampler(self) -> dict[str, Any]:
        return {"name": type(self.sampler).__name__, **asdict(self.sampler)}

    def _tell(self, done: float) -> None:
        if self.progress is not None:
            self.progress(done)
