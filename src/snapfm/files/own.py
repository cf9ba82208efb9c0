"""Samples of a user's own model under the user's own laws, all named as module:name: any velocity, any shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from snapfm.errors import ParamsError, SettingError, ShapeError
from snapfm.files.certified import Drawing
from snapfm.files.layout import CERTIFICATE, KIND, Layout, Variable, axes_of, param_variable
from snapfm.files.requests import DtypeName, Named, check_dims, check_recipe
from snapfm.sampling.task import Velocity
from snapfm.solve.base import OnFailure


@dataclass(frozen=True)
class OwnRecipe:
    """Which samples a file holds: those of `velocity` under `laws`, sample i from the noise of (seed, i).

    `params` are those of the laws: a dict of tensors with a leading axis of size 1, or a function params(seed, start, count)
    whose sample i depends only on (seed, i). `dims` names the axes of a field.
    """

    velocity: Named
    laws: Named
    shape: tuple[int, ...]
    count: int
    params: Named | None = None
    dims: tuple[str, ...] | None = None
    steps: int = 20
    seed: int = 0
    batch: int = 32
    tolerance: float = 1e-8
    dtype: DtypeName = "float64"
    threads: int | None = None

    def __post_init__(self) -> None:
        check_recipe("sample", self)
        if not self.shape or min(self.shape) < 1:
            raise ShapeError(
                f"--shape expects the extents of a field, as in 64,64; got {self.shape}. Give one per axis."
            )
        check_dims(self.dims, self.shape)

    def source(self, on_failure: OnFailure) -> OwnSampled:
        """Return what draws the samples."""
        return OwnSampled(self, on_failure)


class OwnSampled(Drawing):
    """The source of such a recipe. The velocity is used as it is: in evaluation mode if it is a module."""

    def __init__(self, recipe: OwnRecipe, on_failure: OnFailure = "raise") -> None:
        super().__init__(recipe, on_failure, recipe.count, recipe.seed, recipe.shape, recipe.dtype)

    def asked(self) -> dict[str, Any]:
        """Return what decides the samples, in plain values; modules are identified by their files."""
        recipe: OwnRecipe = self.recipe
        return {
            KIND: "own", "velocity": recipe.velocity.identity(), "laws": recipe.laws.identity(),
            "params": None if recipe.params is None else recipe.params.identity(), "shape": list(self.shape),
            **super().asked(),
        }  # fmt: skip

    def layout(self) -> Layout:
        """Describe fields, params and certificates."""
        title, laws = f"{self.count} sampled fields of {self.recipe.velocity.text}", self.projector.laws
        params = {
            name: param_variable(name, value, f"{name}, a param of the laws")
            for name, value in self.params(0, 1).items()
        }
        dims = self.recipe.dims or axes_of(len(self.shape))
        return Layout(
            self.described(title, laws=[law.name for law in laws]),
            {"u": Variable(self.dtype, {"long_name": "field"}, self.shape, dims), **params, **CERTIFICATE},
        )

    @cached_property
    def velocity(self) -> Velocity:
        """The user's velocity."""
        found = self.recipe.velocity.load()
        if not callable(found):
            raise SettingError(
                f"--velocity expects a function or module of torch, velocity(u, tau); '{self.recipe.velocity.text}' is "
                f"{type(found).__name__}. Name another object."
            )
        return found.eval() if isinstance(found, torch.nn.Module) else found

    def params(self, start: int, count: int) -> dict[str, Tensor]:
        """Return what the user's params give for these samples."""
        if self.recipe.params is None:
            return {}
        found = self._given(self.seed, start, count) if callable(self._given) else self._given
        if not isinstance(found, Mapping) or not all(
            isinstance(value, Tensor) and value.ndim and len(value) in (1, count) for value in found.values()
        ):
            raise ParamsError(
                f"--params expects a dict of tensors with a leading axis of 1 or, for {count} samples, {count}, or a function "
                f"params(seed, start, count) that returns one; '{self.recipe.params.text}' gives something else. Stack "
                "them along a first axis."
            )
        return dict(found)

    @cached_property
    def _given(self) -> Any:
        assert self.recipe.params is not None
        return self.recipe.params.load()
