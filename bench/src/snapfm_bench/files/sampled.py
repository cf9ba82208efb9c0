"""Sampled: fields that a shipped or trained model draws under the laws of a problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from snapfm.files.certified import Drawing
from snapfm.files.layout import CERTIFICATE, KIND, Layout
from snapfm.laws import Law
from snapfm.seeds import base_seed
from snapfm.solve.base import OnFailure
from snapfm_bench.files.described import about, coordinates, drawn, field_variable
from snapfm_bench.files.recipe import SampleRecipe, find_model, located
from snapfm_bench.flow import VelocityNetwork
from snapfm_bench.problems import defaults


class Sampled(Drawing):
    """The source of a recipe: fields that a model draws under a problem's laws, with their certificates.

    Unknown problems and settings, and models that do not fit, are refused.
    """

    packages = ("numba", "neuraloperator")

    def __init__(self, recipe: SampleRecipe, on_failure: OnFailure = "raise") -> None:
        self.problem = recipe.build()
        self.model = find_model(recipe.model, self.problem)
        self.grid = self.problem.grid
        super().__init__(recipe, on_failure, recipe.count, recipe.seed, self.grid.shape, recipe.dtype)

    def __reduce__(self) -> tuple[type[Sampled], tuple[SampleRecipe, OnFailure]]:
        # Model and projector are prepared where they are used, perhaps by a process in another folder.
        return Sampled, (replace(self.recipe, model=located(self.recipe.model)), self.on_failure)

    def asked(self) -> dict[str, Any]:
        """Return what decides the samples, in plain values; a model is identified by its weights, not by its path."""
        recipe: SampleRecipe = self.recipe
        return {
            KIND: "sampled", "problem": recipe.problem, "settings": dict(recipe.settings), "model": self.model.sha256,
            **super().asked(),
        }  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """Add the settings of the network."""
        return {**super().identity(), "network": dict(self.model.settings)}

    def layout(self) -> Layout:
        """Describe fields, params and certificates."""
        attributes = self.described(
            f"{self.count} sampled fields: {self.problem.equation}",
            **about(self.problem),
            settings=defaults(self.problem.name) | dict(self.recipe.settings),
            model={"name": self.model.name, "sha256": self.model.sha256, "training": self.model.training},
        )
        # Params are stored in float64 even if fields are not: the certificates refer to them.
        params = drawn(self.grid, self.params(0, 1), "float64")
        variables = {"u": field_variable(self.problem, self.dtype), **params, **CERTIFICATE}
        return Layout(attributes, variables, coordinates(self.grid))

    @cached_property
    def velocity(self) -> VelocityNetwork:
        """The network of the model."""
        return self.model.network

    def laws(self) -> Sequence[Law]:
        """Return the laws of the problem."""
        return self.problem.laws

    def params(self, start: int, count: int) -> dict[str, Tensor]:
        """Draw params as problem.params(…, generator) would."""
        return self.problem.draw_params(base_seed(super().generator()), start, count)

    def generator(self) -> torch.Generator:
        """Return the generator after the draw that decided the params: the noise follows."""
        generator = super().generator()
        base_seed(generator)
        return generator
