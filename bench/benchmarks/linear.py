"""Linear solvers on the patterns of the problems: Lanes against Fronts, which factorizes sample by sample, µs per sample.

The ratio is what carries over to another machine. All run on one thread. Each time is the least of several taken in
turns, so that a busy machine hurts all alike.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import block_array, csr_array, diags_array, eye_array, kron

from snapfm.compile.sparsity.pattern import Pattern
from snapfm.linear import Fronts, Lanes

LANES = (16, 64)  # two tiles, what Newton has under way at a time; and the batch of ECOSYSTEM.md
_SECONDS = 1.5  # spent on each case


def run() -> dict[str, Any]:
    """Time every case at each number of lanes."""
    found = cases()
    return {
        f"{lanes} lanes": {name: measure(matrix, positive, lanes) for name, (matrix, positive) in found.items()}
        for lanes in LANES
    }


def burgers(flux_steps: int, points: int = 101, times: int = 101) -> csr_array:
    """Pattern of the Jacobian of Burgers' mass and flux rows on the unknowns behind the initial slice."""
    free = times - 1
    rows: list[int] = []
    columns: list[int] = []
    for t in range(free):
        rows += [t] * points
        columns += [i * free + t for i in range(points)]
    count = free
    for t in range(flux_steps):
        for i in range(1, points - 1):
            touched = [(i, t + 1), (i, t), (i - 1, t), (i + 1, t)]
            inside = [j * free + s - 1 for j, s in touched if s > 0]
            rows += [count] * len(inside)
            columns += inside
            count += 1
    return csr_array((np.ones(len(rows)), (rows, columns)), shape=(count, points * free))


def band(size: int, width: int) -> csr_array:
    """A banded pattern."""
    offsets = list(range(-width, width + 1))
    return csr_array(diags_array([np.ones(size - abs(k)) for k in offsets], offsets=offsets))


def cases() -> dict[str, tuple[csr_array, int]]:
    """Symmetric patterns by name, each with the number of its positive unknowns (0: all)."""
    found = {f"burgers flux {k}, schur": (csr_array(burgers(k) @ burgers(k).T), 0) for k in (5, 10, 40)}
    for k in (5, 40):
        j = burgers(k)
        augmented = block_array([[eye_array(j.shape[1]), j.T], [j, eye_array(j.shape[0])]])
        found[f"burgers flux {k}, augmented"] = (csr_array(augmented), j.shape[1])
    grid = kron(band(100, 1), eye_array(100)) + kron(eye_array(100), band(100, 1))
    found["grid 100 x 100"] = (csr_array(grid), 0)
    found["tridiagonal 1000"] = (band(1000, 1), 0)
    found["band 1000, width 5"] = (band(1000, 5), 0)
    return found


def measure(matrix: csr_array, positive: int, lanes: int) -> dict[str, float]:
    """Time one pattern with random values."""
    rows, columns = (csr_array(matrix) + eye_array(matrix.shape[0])).nonzero()
    below = columns <= rows
    pattern = Pattern.from_coordinates(rows[below], columns[below], matrix.shape)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((pattern.nnz, lanes))
    weight = np.zeros((pattern.rows, lanes))  # rows of absolute values: dominance makes any pattern definite
    row, column, off = pattern.row_of(), pattern.indices, pattern.row_of() != pattern.indices
    np.add.at(weight, row[off], np.abs(values[off]))
    np.add.at(weight, column[off], np.abs(values[off]))
    values[~off] = 1.0 + weight
    signs = None
    if positive:
        values[~off] = np.where(np.arange(pattern.rows) < positive, 1.0, -1e-8)[:, None]
        signs = np.where(np.arange(pattern.rows) < positive, 1, -1)
    start = time.perf_counter()
    prepared = Lanes().prepare(pattern, signs)
    seconds = time.perf_counter() - start
    work, fronts = prepared.workspace(), Fronts().prepare(pattern, signs).workspace()
    rhs, out = rng.standard_normal((pattern.rows, lanes)), np.empty((pattern.rows, lanes))
    one, one_rhs = np.ascontiguousarray(values[:, :1]), np.ascontiguousarray(rhs[:, :1])

    def by_fronts() -> None:
        fronts.factorize(one)
        fronts.solve(one_rhs, np.empty_like(one_rhs))

    least = _least([lambda: work.factorize(values), lambda: work.solve(rhs, out), work.log_determinant, by_fronts])
    figures = {
        name: taken * 1e6 / lanes for name, taken in zip(("factor", "solve", "log_determinant"), least, strict=False)
    }
    figures |= {"fronts": least[3] * 1e6, "faster": least[3] * lanes / (least[0] + least[1])}
    order = prepared.order
    sizes = {"rows": pattern.rows, "entries": pattern.nnz, "fill": order.fill, "flops": order.flops}
    return sizes | {"prepare_ms": seconds * 1e3} | figures


def _least(timed: list[Callable[[], Any]]) -> list[float]:
    """Run the functions in turns and return the least time of each."""
    least = [np.inf] * len(timed)
    for function in timed:  # compiles and warms
        function()
    end = time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        for k, function in enumerate(timed):
            start = time.perf_counter()
            function()
            least[k] = min(least[k], time.perf_counter() - start)
    return least


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
