"""Variants of a problem by name, and the release's clock as one of them.

"grid" takes every spacing from the problem's grid. "release" keeps the numbers of the authors' code, so that results
can be compared with theirs: it passed the flow step 1/100 to its laws as the physical time step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, TypeVar

from snapfm.errors import UnknownName
from snapfm.grid import Axis, Grid

Discretization: TypeAlias = Literal["grid", "release"]

_RELEASE_STEPS = 100  # flow steps of the release, whose step it took for dt

T = TypeVar("T")


def choose(argument: str, name: str, variants: Mapping[str, T]) -> T:
    """Look a variant up; `argument` is how the caller wrote it, such as "burgers_bc_mass(mass)"."""
    if name not in variants:
        raise UnknownName(f"{argument} expects one of {list(variants)}; got {name!r}. Choose one of these names.")
    return variants[name]


def law_grid(argument: str, grid: Grid, discretization: Discretization) -> Grid:
    """Give the grid that laws read their spacing from; "release" runs its clock at 1/100 per slice."""
    t = grid.axis("t")
    release = Axis("t", t.start, t.start + (t.size - 1) / _RELEASE_STEPS, t.size)
    return choose(argument, discretization, {"grid": grid, "release": Grid((*grid.axes[:-1], release))})
