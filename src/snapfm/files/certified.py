"""Certified sources: what all have in common, what all models have in common, and samples of a user's own model.

A user's model, laws and params are named as module:name: any velocity, any shape. projected.py has the fields that exist already,
snapfm_bench those of the benchmark problems.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from snapfm.errors import ParamsError, ProjectionFailed, SettingError, ShapeError
from snapfm.files.engines import Report
from snapfm.files.layout import CERTIFICATE, KIND, Drawn, Layout, Variable, axes_of, param_variable
from snapfm.files.requests import DtypeName, Named, check_dims, check_recipe, versions
from snapfm.laws import Law
from snapfm.project import Projection, Projector
from snapfm.sampling import Sampler, sample
from snapfm.sampling.sample import default_sampler
from snapfm.sampling.task import Velocity
from snapfm.solve.base import OnFailure


class Certified:
    """A Source made from a recipe, which is what travels to other processes; its samples have certificates."""

    command: str
    packages: ClassVar[tuple[str, ...]] = ("numba",)  # that may change the last bits, besides those of all sources

    def __init__(
        self, recipe: Any, on_failure: OnFailure, count: int, seed: int, shape: tuple[int, ...], dtype: str
    ) -> None:
        self.recipe, self.on_failure, self.threads = recipe, on_failure, recipe.threads
        self.count, self.seed, self.shape, self.dtype = count, seed, shape, dtype
        self.block = min(recipe.batch, count)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return type(self), (self.recipe, self.on_failure)

    def laws(self) -> Sequence[Law]:
        """Return the laws: by default those that the recipe names."""
        found: Sequence[Law] = self.recipe.laws.laws()
        return found

    def params(self, start: int, count: int) -> Mapping[str, Tensor]:
        """Return the params of samples start .. start + count − 1, with a leading axis of count or 1."""
        raise NotImplementedError

    @cached_property
    def projector(self) -> Projector:
        """The projector of the laws, always built from the first sample's params."""
        return Projector(self.laws(), self.shape, self.params(0, 1), self.recipe.tolerance, progress=False)

    def asked(self) -> dict[str, Any]:
        """Return what decides the samples, in plain values; sources add what else does."""
        return {
            "count": self.count, "dtype": self.dtype, "batch": self.block, "tolerance": self.recipe.tolerance,
        }  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """Add what may change the last bits: versions, the number of torch's threads, the processor's instruction set."""
        return {
            **self.asked(),
            "versions": versions(*self.packages),
            "threads": self.threads or torch.get_num_threads(),
            "processor": torch.backends.cpu.get_cpu_capability(),
        }

    def described(self, title: str, *names: str, **more: Any) -> dict[str, Any]:
        """Return the attributes of a file: a title, more, the entries of the identity of these names, and versions."""
        identity = self.identity()
        kept = {name: identity[name] for name in (*names, "tolerance", "batch", "count", "versions")}
        return {"title": title, **more, **kept, "snapfm": identity["versions"]["snapfm"]}

    def certificate(self, found: Projection, start: int) -> dict[str, Tensor]:
        """Return the variables of certificates; refuses samples that failed unless the caller keeps them."""
        failed, count = torch.nonzero(~found.converged).flatten().tolist(), len(found.status)
        if failed and self.on_failure == "raise":
            which = f"sample {start} is" if count == 1 else f"samples {start} to {start + count - 1} are"
            lines = [
                f"{which} expected to converge; {len(failed)} of {count} failed:",
                *found.failures(failed, start),
                "Samples before these are kept. Go on with --keep-failed (on_failure='keep'), which writes failed samples too, "
                "marked.",
            ]
            raise ProjectionFailed("\n".join(lines))
        return {name: getattr(found, name) for name in CERTIFICATE}


class Drawing(Certified):
    """Samples that a velocity draws under laws: subclasses say which velocity, laws and params.

    Every block starts from the same generator, so the noise of sample i depends on (seed, i) alone.
    """

    command = "sample"

    @cached_property
    def velocity(self) -> Velocity:
        """The velocity of the flow."""
        raise NotImplementedError

    def asked(self) -> dict[str, Any]:
        """Return what decides the samples, in plain values."""
        return {"seed": self.seed, "steps": self.recipe.steps, **super().asked()}

    def identity(self) -> dict[str, Any]:
        """Add the sampler: its name and settings, in values that a file gives back as they are."""
        settings = json.loads(json.dumps(asdict(cast(Any, self.sampler))))
        return {**super().identity(), "sampler": {"name": type(self.sampler).__name__, **settings}}

    def described(self, title: str, *names: str, **more: Any) -> dict[str, Any]:
        """Add sampler, steps and seed."""
        return super().described(title, "sampler", "steps", "seed", *names, **more)

    @cached_property
    def sampler(self) -> Sampler:
        """The one that `sample` takes by default for this velocity."""
        return default_sampler(self.velocity, self.projector)

    def generator(self) -> torch.Generator:
        """Return the generator of the noise, the same for every block."""
        return torch.Generator().manual_seed(self.seed)

    def draw(self, start: int, stop: int, report: Report) -> Drawn:
        """Draw a full block of samples and keep those from start to stop − 1.

        Rounding in networks depends on the batch size, so a last block is drawn in full too.
        """
        params = self.params(start, self.block)
        found = sample(
            self.velocity, self.projector, params, self.block, self.recipe.steps, self.generator(), sampler=self.sampler,
            dtype=getattr(torch, self.dtype), first=start, on_failure="keep",
            progress=lambda step, steps: report(step / steps),
        )  # fmt: skip
        assert found.projection is not None  # every sampler with a projector ends with a projection
        kept = slice(stop - start)
        values = {
            "u": found.u[kept],
            **{name: value.expand(self.block, *value.shape[1:])[kept] for name, value in params.items()},
            **self.certificate(found.projection.select(kept), start),
        }
        return Drawn({name: value.cpu().numpy() for name, value in values.items()}, found.seconds)


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
