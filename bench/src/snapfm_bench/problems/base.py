"""Problem: a named benchmark = grid + simulator + laws + the params that the laws read; and what its builders share.

A PDE must not know a solver: nothing here imports project, structure or flow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from snapfm.errors import ShapeError, UnknownName
from snapfm.grid import Axis, Grid
from snapfm.laws import Law
from snapfm.seeds import base_seed, draw
from snapfm.text import meant

Params: TypeAlias = dict[str, Tensor]

# "grid" takes every spacing from the problem's grid. "release" keeps the numbers of the authors' code, so that results can
# be compared with theirs: it passed the flow step 1/100 to its laws as the physical time step.
Discretization: TypeAlias = Literal["grid", "release"]
_RELEASE_STEPS = 100  # flow steps of the release

T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    """One benchmark problem. Everything named `draw_…` takes (seed, start, count); sample i depends on (seed, i) alone.

    `draw_params` returns what the laws read at inference, `draw_truth` the same params with fields that obey them.
    `draw_training` returns fields of the training distribution with everything that was drawn for them, including the
    laws' params.
    """

    name: str
    summary: str
    equation: str
    grid: Grid
    laws: tuple[Law, ...]
    draw_params: Callable[[int, int, int], Params]
    draw_training: Callable[[int, int, int], tuple[Tensor, Params]]
    draw_truth: Callable[[int, int, int], tuple[Tensor, Params]]

    def params(self, count: int, generator: torch.Generator | None = None) -> Params:
        """Draw the laws' params for `count` samples, float64, leading axis `count`."""
        return self.draw_params(base_seed(generator), 0, _positive(count))

    def simulate(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw `count` ground-truth fields of the training distribution: (count, *shape), float64."""
        return self.draw_fields(base_seed(generator), 0, _positive(count))

    def draw_fields(self, seed: int, start: int, count: int) -> Tensor:
        """Draw fields of the training distribution, without what was drawn for them."""
        return self.draw_training(seed, start, count)[0]

    def truth(self, count: int, generator: torch.Generator | None = None) -> tuple[Tensor, Params]:
        """Simulate `count` ground-truth fields under the conditions used at inference, and the params that state them.

        What the params leave open (a diffusivity, a boundary value) follows the training distribution: these are the
        fields a constrained sampler should produce. One generator state draws the same params here and in `params`.
        """
        return self.draw_truth(base_seed(generator), 0, _positive(count))


@dataclass(frozen=True)
class Simulation:
    """How an equation is drawn and solved. A sample is described by one row of numbers.

    `inference` draws a row under the conditions used at inference, `training` one of the training distribution. The
    others map rows (b, numbers) to fields, to the laws' params, and to what else is known of training fields.
    """

    inference: Callable[[torch.Generator], Tensor]
    training: Callable[[torch.Generator], Tensor]
    fields: Callable[[Tensor], Tensor]
    params: Callable[[Tensor], Params]
    labels: Callable[[Tensor], Params]

    def problem(self, name: str, summary: str, equation: str, grid: Grid, laws: tuple[Law, ...]) -> Problem:
        """Join the simulation with laws on a grid."""

        def draw_params(seed: int, start: int, count: int) -> Params:
            return self.params(draw(seed, start, count, self.inference))

        def draw_training(seed: int, start: int, count: int) -> tuple[Tensor, Params]:
            rows = draw(seed, start, count, self.training)
            return self.fields(rows), {**self.params(rows), **self.labels(rows)}

        def draw_truth(seed: int, start: int, count: int) -> tuple[Tensor, Params]:
            rows = draw(seed, start, count, self.inference)
            return self.fields(rows), self.params(rows)

        return Problem(name, summary, equation, grid, laws, draw_params, draw_training, draw_truth)


def uniform(random: torch.Generator, limits: tuple[float, float]) -> Tensor:
    """Draw one float64 number between the limits."""
    low, high = limits
    return low + (high - low) * torch.rand((), generator=random, dtype=torch.float64)


def uniform_or(random: torch.Generator, limits: tuple[float, float], fixed: float | None) -> Tensor:
    """Draw one number between the limits, or return the fixed one without drawing."""
    return uniform(random, limits) if fixed is None else torch.tensor(fixed, dtype=torch.float64)


def choose(argument: str, name: str, variants: Mapping[str, T]) -> T:
    """Look up a variant; `argument` is how the caller wrote it, such as "burgers_bc_mass(mass)"."""
    if name not in variants:
        raise UnknownName(
            f"{argument} expects one of {list(variants)}; got {name!r}. {meant(name, variants)}Choose one of these names."
        )
    return variants[name]


def law_grid(argument: str, grid: Grid, discretization: Discretization) -> Grid:
    """Return the grid that laws read their spacing from; "release" has a time step of 1/100 per slice."""
    t = grid.axis("t")
    release = Axis("t", t.start, t.start + (t.size - 1) / _RELEASE_STEPS, t.size)
    return choose(argument, discretization, {"grid": grid, "release": Grid((*grid.axes[:-1], release))})


def _positive(count: int) -> int:
    if not isinstance(count, int) or count < 1:
        raise ShapeError(
            f"problem.params/simulate/truth(count) expects a whole number >= 1; got {count!r}. Ask for at least one."
        )
    return count
