"""Linear solvers on the patterns of the problems: Lanes against SciPy's splu sample by sample, µs a sample, one run.

Lanes twice: with factors in float64, and in float32 with answers refined to float64; beside the times of the latter
stands in how many lanes float64 factors were needed after all.

The ratio is what carries over to another machine. Each time is the least of several taken in turns, so that a busy
machine hurts all alike.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from scipy.sparse import block_array, csc_array, csr_array, diags_array, eye_array, kron
from scipy.sparse.linalg import splu

from snapfm.kernels.gram import gram, plan
from snapfm.linear import Lanes, lower_triangle
from snapfm.linear.double import DoubleWorkspace
from snapfm.linear.single import SingleWorkspace
from snapfm.structure.pattern import Pattern

LANES = (16, 64)  # two tiles, what Newton has under way at a time; and the batch of ECOSYSTEM.md
_SECONDS = 1.5  # spent on each case


def run() -> dict[str, Any]:
    """Time every case, and the Gram matrices of one, at each number of lanes."""
    found = cases()
    return {
        f"{lanes} lanes": {name: measure(matrix, positive, lanes) for name, (matrix, positive) in found.items()}
        | {"gram of burgers flux 5": measure_gram(lanes)}
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
    whole = Pattern.from_coordinates(*matrix.nonzero(), matrix.shape)
    pattern = lower_triangle(whole)
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
    planned = Lanes().prepare(pattern, signs).plan
    prepared = time.perf_counter() - start
    work, single = DoubleWorkspace(planned), SingleWorkspace(planned)
    rhs, out = rng.standard_normal((pattern.rows, lanes)), np.empty((pattern.rows, lanes))
    full = _full(pattern, values[:, 0])

    def factor() -> None:
        work.factorize(values)

    def solve() -> None:
        work.solve(rhs, out)

    def factor_single() -> None:
        single.factorize(values)

    def solve_single() -> None:
        single.solve(rhs, out)

    def library() -> None:
        options = {"SymmetricMode": True}
        splu(full, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options).solve(rhs[:, 0])

    threads = numba.config.NUMBA_NUM_THREADS
    timed = [(factor, 1), (solve, 1), (factor, threads), (solve, threads), (library, 1)]
    timed += [(factor_single, 1), (solve_single, 1), (factor_single, threads), (solve_single, threads)]
    least = _least(timed)
    names = ("factor_1_thread", "solve_1_thread", "factor", "solve")
    figures = {name: seconds * 1e6 / lanes for name, seconds in zip(names, least)}
    fastest = min(least[0] + least[1], least[2] + least[3])  # a second thread is worth nothing on a busy machine
    figures |= {"splu": least[4] * 1e6, "faster": least[4] * lanes / fastest}
    figures |= {f"{name}_float32": seconds * 1e6 / lanes for name, seconds in zip(names, least[5:])}
    figures["doubled_float32"] = len(single.doubled)
    sizes = {"rows": pattern.rows, "entries": pattern.nnz, "fill": planned.fill, "flops": planned.flops}
    return sizes | {"threads": threads, "prepare_ms": prepared * 1e3} | figures


def measure_gram(lanes: int) -> dict[str, float]:
    """Time S = J diag(w) Jᵀ on Burgers flux 5, µs a sample: all products, and without those that never change."""
    j = burgers(5)
    j.sort_indices()
    arrays = (j.indptr.astype(np.int64), j.indices.astype(np.int64), j.shape[1])
    row = np.repeat(np.arange(j.shape[0]), np.diff(j.indptr))
    mass = row < 100
    touched = np.zeros(j.shape[1], bool)
    touched[j.indices[~mass]] = True
    plans = {"all products": plan(*arrays), "constant ones once": plan(*arrays, np.where(mass, 1.0, np.nan), ~touched)}
    values, weights = np.ones((j.nnz, lanes)), np.ones((j.shape[1], lanes))
    out = np.empty((len(plans["all products"].indices), lanes))
    threads = numba.config.NUMBA_NUM_THREADS

    def fill(name: str) -> Callable[[], None]:
        return lambda: gram(plans[name], values.reshape(-1), weights.reshape(-1), lanes, out.reshape(-1))

    least = _least([(fill(name), threads) for name in plans])
    return {name: seconds * 1e6 / lanes for name, seconds in zip(plans, least)}


def _full(pattern: Pattern, values: np.ndarray) -> csc_array:
    lower = pattern.csr(values)
    return csc_array(lower + lower.T - diags_array(lower.diagonal()))


def _least(timed: list[tuple[Callable[[], None], int]]) -> list[float]:
    """Run the functions in turns, each on its number of threads, and give the least time of each."""
    least = [np.inf] * len(timed)
    for function, threads in timed:  # compiles and warms
        numba.set_num_threads(threads)
        function()
    end = time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        for k, (function, threads) in enumerate(timed):
            numba.set_num_threads(threads)
            start = time.perf_counter()
            function()
            least[k] = min(least[k], time.perf_counter() - start)
    return least


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
