"""Certified sources: what the samples of a model and projected fields have in common, and what is common to all models."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from snapfm.errors import ProjectionFailed
from snapfm.files.engines import Report
from snapfm.files.layout import CERTIFICATE, Drawn
from snapfm.files.requests import versions
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
