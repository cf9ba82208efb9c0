"""Grid: the axes a field lives on, their spacing and quadrature weights.

Physical spacing, the time step included, always comes from here; flow time never does. A grid knows no law and no
equation. Imports errors only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from snapfm.errors import ShapeError, UnknownName

Rule = Literal["left", "trapezoid", "full"]


@dataclass(frozen=True)
class Axis:
    """One axis with both end points on the grid, so that its spacing is length / (size - 1).

    On a periodic axis the last point repeats the first.
    """

    name: str
    start: float
    stop: float
    size: int
    periodic: bool = False

    def __post_init__(self) -> None:
        if self.size < 2 or not self.stop > self.start:
            raise ShapeError(
                f"Axis('{self.name}') expects at least 2 points and stop > start; got size={self.size}, "
                f"start={self.start}, stop={self.stop}. Give the end points in increasing order."
            )

    @property
    def spacing(self) -> float:
        """Distance between neighboring points."""
        return (self.stop - self.start) / (self.size - 1)

    def points(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """Coordinates of the points, both ends included."""
        return torch.linspace(self.start, self.stop, self.size, dtype=dtype)

    def weights(self, rule: Rule, dtype: torch.dtype = torch.float64) -> Tensor:
        """Quadrature weights: 'left' leaves the last point out, 'full' counts every point, 'trapezoid' halves the ends."""
        weight = torch.full((self.size,), self.spacing, dtype=dtype)
        if rule == "left":
            weight[-1] = 0.0
        elif rule == "trapezoid":
            weight[0] = weight[-1] = 0.5 * self.spacing
        elif rule != "full":
            raise UnknownName(
                f"axis.weights(rule) expects one of ['left', 'trapezoid', 'full']; got {rule!r}. Use one of the three."
            )
        return weight


@dataclass(frozen=True)
class Grid:
    """The axes of one field, in the order of its dimensions; time, where there is one, is last and named 't'."""

    axes: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one field."""
        return tuple(axis.size for axis in self.axes)

    def axis(self, name: str) -> Axis:
        """Look up an axis by name."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise UnknownName(
            f"grid.axis(name) expects one of {[axis.name for axis in self.axes]}; got '{name}'. Use an axis of the grid."
        )

    def spacing(self, name: str) -> float:
        """Distance between neighboring points of the named axis."""
        return self.axis(name).spacing
