"""Problem: a named benchmark = grid + simulator + laws + the params its laws read.

A PDE cannot know a solver: nothing here imports project, structure or flow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.errors import ShapeError
from snapfm.grid import Grid
from snapfm.laws import Law
from snapfm.seeds import base_seed

Draw = Callable[[int, int, int], dict[str, Tensor]]
DrawBoth = Callable[[int, int, int], tuple[Tensor, dict[str, Tensor]]]


@dataclass(frozen=True)
class Problem:
    """One benchmark problem. Everything named `draw_…` takes (seed, start, count); sample i depends on (seed, i) alone.

    `draw_params` gives what the laws read at inference, `draw_truth` the same params with fields that obey them.
    `draw_training` gives fields of the training distribution with all that was drawn for them, the laws' params
    included.
    """

    name: str
    summary: str
    equation: str
    grid: Grid
    laws: tuple[Law, ...]
    draw_params: Draw
    draw_training: DrawBoth
    draw_truth: DrawBoth

    def params(self, count: int, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Draw the laws' params for `count` samples, float64, leading axis `count`."""
        return self.draw_params(base_seed(generator), 0, _positive(count))

    def simulate(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw `count` ground-truth fields of the training distribution: (count, *shape), float64."""
        return self.draw_fields(base_seed(generator), 0, _positive(count))

    def draw_fields(self, seed: int, start: int, count: int) -> Tensor:
        """Draw fields of the training distribution alone."""
        return self.draw_training(seed, start, count)[0]

    def truth(self, count: int, generator: torch.Generator | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """Simulate `count` ground-truth fields under the conditions asked at inference, and the params that state them.

        What the params leave open (a diffusivity, a boundary value) follows the training distribution: the fields a
        constrained sampler should give. One generator state gives the same params here and in `params`.
        """
        return self.draw_truth(base_seed(generator), 0, _positive(count))


def _positive(count: int) -> int:
    if not isinstance(count, int) or count < 1:
        raise ShapeError(
            f"problem.params/simulate/truth(count) expects a whole number >= 1; got {count!r}. Ask for at least one."
        )
    return count
