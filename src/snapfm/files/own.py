"""Samples of a user's own model under the user's own laws, all named as module:name: any velocity, any shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from snapfm.errors import ParamsError, SettingError, ShapeError
from snapfm.files.block import CERTIFICATE, described, drawn_block
from snapfm.files.engines import Report
from snapfm.files.layout import Drawn, Layout, Variable
from snapfm.files.named import Named
from snapfm.files.requests import DtypeName, check_drawing, versions
from snapfm.files.stream import KIND
from snapfm.project import Projector
from snapfm.sampling import Sampler
from snapfm.sampling.sample import default_sampler
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
        check_drawing(self)
        if not self.shape or min(self.shape) < 1:
            raise ShapeError(
                f"--shape expects the extents of a field, as in 64,64; got {self.shape}. Give one per axis."
            )
        if self.dims is not None and len(self.dims) != len(self.shape):
            raise ShapeError(
                f"--dims expects {len(self.shape)} names for fields of shape {self.shape}; got {list(self.dims)}. "
                "Name every axis."
            )

    def source(self, on_failure: OnFailure) -> OwnSampled:
        """Return what draws the samples."""
        return OwnSampled(self, on_failure)


class OwnSampled:
    """The source of such a recipe. The velocity is used as it is: in evaluation mode if it is a module."""

    command = "sample"

    def __init__(self, recipe: OwnRecipe, on_failure: OnFailure = "raise") -> None:
        self.recipe, self.on_failure = recipe, on_failure
        self.count, self.seed, self.dtype = recipe.count, recipe.seed, str(recipe.dtype)
        self.shape, self.threads = recipe.shape, recipe.threads
        self.block = min(recipe.batch, recipe.count)

    def __reduce__(self) -> tuple[type[OwnSampled], tuple[OwnRecipe, OnFailure]]:
        return OwnSampled, (self.recipe, self.on_failure)

    def asked(self) -> dict[str, Any]:
        """Return what decides the samples, in plain values; modules are identified by their files."""
        recipe = self.recipe
        return {
            KIND: "own", "velocity": recipe.velocity.identity(), "laws": recipe.laws.identity(),
            "params": None if recipe.params is None else recipe.params.identity(), "shape": list(self.shape),
            "count": self.count, "seed": self.seed, "dtype": self.dtype, "steps": recipe.steps, "batch": self.block,
            "tolerance": recipe.tolerance,
        }  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """Add what may change the last bits."""
        return {
            **self.asked(),
            "sampler": described(self.sampler),
            "versions": versions("numba"),
            "threads": self.threads or torch.get_num_threads(),
            "processor": torch.backends.cpu.get_cpu_capability(),
        }

    def layout(self) -> Layout:
        """Describe fields, params and certificates."""
        identity, recipe = self.identity(), self.recipe
        attributes = {
            "title": f"{self.count} sampled fields of {recipe.velocity.text}",
            "laws": [law.name for law in self.projector.laws],
            **{
                name: identity[name] for name in ("sampler", "steps", "tolerance", "batch", "seed", "count", "versions")
            },
            "snapfm": identity["versions"]["snapfm"],
        }
        dims = recipe.dims or tuple(f"axis{place}" for place in range(len(self.shape)))
        params = {
            name: Variable(
                str(value.dtype).removeprefix("torch."),
                {"long_name": f"{name}, a param of the laws"},
                tuple(value.shape[1:]),
                tuple(f"{name}_axis{place}" for place in range(value.ndim - 1)),
            )
            for name, value in self._params(0, 1).items()
        }
        return Layout(
            attributes, {"u": Variable(self.dtype, {"long_name": "field"}, self.shape, dims), **params, **CERTIFICATE}
        )

    def draw(self, start: int, stop: int, report: Report) -> Drawn:
        """Draw a full block of samples and keep those from start to stop − 1."""
        return drawn_block(
            self.velocity, self.projector, self._params(start, self.block), torch.Generator().manual_seed(self.seed),
            start=start, stop=stop, block=self.block, steps=self.recipe.steps, dtype=self.dtype, sampler=self.sampler,
            on_failure=self.on_failure, report=report,
        )  # fmt: skip

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

    @cached_property
    def sampler(self) -> Sampler:
        """The one that `sample` takes by default for this velocity."""
        return default_sampler(self.velocity, self.projector)

    @cached_property
    def projector(self) -> Projector:
        """The projector of the laws, built from the first sample's params."""
        return Projector(self.recipe.laws.laws(), self.shape, self._params(0, 1), self.recipe.tolerance, progress=False)

    def _params(self, start: int, count: int) -> dict[str, Tensor]:
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
