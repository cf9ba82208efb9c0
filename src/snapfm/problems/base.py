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
Simulate = Callable[[int, int, int], Tensor]


@dataclass(frozen=True)
class Problem:
    """One benchmark problem. `draw_params` and `draw_fields` take (seed, start, count)."""

    name: str
    summary: str
    equation: str
    grid: Grid
    laws: tuple[Law, ...]
    draw_params: Draw
    draw_fields: Simulate

    def params(self, count: int, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Draw the laws' params for `count` samples, float64, leading axis `count`."""
        return self.draw_params(base_seed(generator), 0, _positive(count))

    def simulate(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw `count` ground-truth fields of the training distribution: (count, *shape), float64."""
        return self.draw_fields(base_seed(generator), 0, _positive(count))


def _positive(count: int) -> int:
    if not isinstance(count, int) or count < 1:
        raise ShapeError(f"problem.params/simulate(count) expects a whole number >= 1; got {count!r}. Ask for at least one.")
    return count
