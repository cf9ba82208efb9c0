"""The lane kernels underneath: packs, panels and the factor itself, pathology by pathology."""

from __future__ import annotations

import platform
import re

import numpy as np
import pytest
from numba import njit
from scipy.sparse import csr_array, tril

from snapfm.kernels.factor import ldl
from snapfm.kernels.factor.ordering import best
from snapfm.kernels.factor.panels import BLOCK, PANEL, schedule
from snapfm.kernels.numba.packs import WIDTH, absolute, add, div, fma, fnma, full, load, mul, pick, put, store, take

BURGERS_LIKE = [(24, 4), (9, 2), (1, 1), (40, 7)]


def chain(rows, reach, seed=0):
    """A Schur-like pattern: a chain of local rows, two that span it, a few that stand alone."""
    rng = np.random.default_rng(seed)
    j = np.zeros((rows + 5, 2 * rows + reach + 4))
    for i in range(rows):
        j[i, i : i + reach] = 1
    j[rows, :rows] = j[rows + 1, 3 : rows + 3] = 1
    j[rows + 2 :, -3:] = np.eye(3)
    shuffled = j[rng.permutation(len(j))]
    lower = csr_array(tril(csr_array(shuffled @ shuffled.T + np.eye(len(j)))))
    lower.sort_indices()
    return lower.indptr.astype(np.int64), lower.indices.astype(np.int64)


@njit
def _exercise(x, y, out):
    a, b = load(x, 1), load(y, 0)
    store(out, 0, add(a, b))
    store(out, 1, mul(a, b))
    store(out, 2, div(a, b))
    store(out, 3, fma(a, b, full(2.0)))
    store(out, 4, fnma(a, b, full(2.0)))
    store(out, 5, absolute(a))
    store(out, 6, pick(a, b, full(1.0), full(0.0)))


def test_packs_do_arithmetic_lane_by_lane():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(2 * WIDTH), rng.standard_normal(WIDTH)
    y[0] = 0.0
    x[WIDTH + 1] = np.nan
    a = x[WIDTH:]
    out = np.empty(7 * WIDTH)
    _exercise(x, y, out)
    with np.errstate(divide="ignore"):
        expected = [a + y, a * y, a / y, 2 + a * y, 2 - a * y, np.abs(a), np.where(a <= y, 1.0, 0.0)]
    np.testing.assert_allclose(out.reshape(7, WIDTH), expected, rtol=4 * np.finfo(float).eps, atol=1e-15)


@njit
def _through(x, offset, count, out):
    put(out, offset, count, take(x, offset, count))


@njit
def _padded(x, offset, count, out):
    store(out, 0, take(x, offset, count))


@pytest.mark.parametrize("count", range(1, WIDTH + 1))
def test_incomplete_tiles_touch_their_own_lanes_only(count):
    x, out = np.arange(3.0 + WIDTH), np.full(3 + WIDTH, -1.0)
    _through(x[: 3 + count].copy(), 3, count, out)
    assert out[3 : 3 + count].tolist() == x[3 : 3 + count].tolist()
    assert (np.delete(out, np.arange(3, 3 + count)) == -1).all()
    padded = np.empty(WIDTH)
    _padded(x[: 3 + count].copy(), 3, count, padded)
    assert padded.tolist() == [x[3 + min(k, count - 1)] for k in range(WIDTH)]


@pytest.mark.parametrize(("rows", "reach"), BURGERS_LIKE)
def test_schedules_are_complete(rows, reach):
    indptr, indices = chain(rows, reach)
    size = len(indptr) - 1
    plan = schedule(indptr, indices, best(indptr, indices).perm)
    assert len(np.unique(plan.slot)) == size
    assert plan.width.sum() == size
    assert set(plan.head.tolist()) <= {PANEL, BLOCK}
    assert sorted(plan.entry_from.tolist()) == list(range(len(indices)))
    assert len(np.unique(plan.entry_to)) == len(indices)
    assert plan.entry_to.min() >= PANEL  # never in the row of zeros
    assert plan.entry_to.max() < plan.packs
    assert (np.diff(plan.base) == plan.head + PANEL * np.diff(plan.row_ptr)).all()
    panel = np.repeat(np.arange(len(plan.width)), np.diff(plan.row_ptr))
    assert (plan.rows // PANEL > panel).all()
    reached = np.repeat(np.arange(len(plan.width)), np.diff(plan.update_ptr))
    assert (plan.updates[:, 3] // PANEL < reached).all()
    assert (plan.head[reached] == BLOCK).all()  # nothing is subtracted from leaves


def factorized(indptr, indices, values, signs=None, tiny=1e-14):
    """Run the kernel; give the factor unpacked to dense L, D⁻¹ in the order of the slots, and the outcome."""
    lanes, size = values.shape[1], len(indptr) - 1
    tiles = -(-lanes // WIDTH)
    plan = schedule(indptr, indices, best(indptr, indices, signs).perm)
    factor, inverse = np.empty((tiles, plan.packs * WIDTH)), np.empty((tiles, plan.slots * WIDTH))
    scale, tally = np.empty((tiles, plan.slots * WIDTH)), np.empty((tiles, ldl.TALLY * WIDTH))
    status, counts, smallest = np.empty(lanes, np.int8), np.empty((2, lanes), np.int64), np.empty(lanes)
    ldl.factorize(
        plan, values.reshape(-1), lanes, signs is not None, tiny,
        factor, inverse, scale, tally, status, counts[0], counts[1], smallest,
    )  # fmt: skip
    assert size == len(plan.slot)
    return plan, factor.reshape(tiles, -1, WIDTH), inverse.reshape(tiles, -1, WIDTH), status, counts, smallest


def unpacked(plan, factor, inverse):
    """Dense L of one lane from its panels."""
    lower = np.eye(plan.slots)
    for k, (base, head) in enumerate(zip(plan.base, plan.head)):
        own = np.arange(PANEL * k, PANEL * k + PANEL)
        if head == BLOCK:
            block = factor[base : base + BLOCK].reshape(PANEL, PANEL)
            lower[np.ix_(own, own)] = np.tril(block, -1) + np.eye(PANEL)
        rows = plan.rows[plan.row_ptr[k] : plan.row_ptr[k + 1]]
        below = factor[base + head : plan.base[k + 1]].reshape(-1, PANEL)
        lower[np.ix_(rows, own)] = below * inverse[own]
    return lower


@pytest.mark.parametrize(("rows", "reach"), BURGERS_LIKE)
@pytest.mark.parametrize("lanes", [1, 8, 11])
def test_factors_multiply_back_to_the_matrix(rows, reach, lanes):
    indptr, indices = chain(rows, reach)
    size = len(indptr) - 1
    rng = np.random.default_rng(1)
    values = rng.standard_normal((len(indices), lanes))
    values[indptr[1:] - 1] = 2.0 * rows + 10 + rng.random((size, lanes))
    plan, factor, inverse, status, counts, smallest = factorized(indptr, indices, values)
    assert not status.any()
    assert not counts.any()
    row = np.repeat(np.arange(size), np.diff(indptr))
    for lane in range(lanes):
        tile, at = divmod(lane, WIDTH)
        lower = unpacked(plan, factor[tile, :, at], inverse[tile, :, at])
        pivots = 1.0 / inverse[tile, plan.slot, at]
        lower = lower[np.ix_(plan.slot, plan.slot)]
        product = lower * pivots @ lower.T
        matrix = np.zeros((size, size))
        matrix[row, indices] = matrix[indices, row] = values[:, lane]
        np.testing.assert_allclose(product, matrix, atol=32 * np.finfo(float).eps * np.abs(matrix).max())
        assert smallest[lane] == pytest.approx(np.abs(pivots).min(), rel=1e-15)


def test_zero_diagonal_and_one_by_one():
    one = (np.array([0, 1]), np.array([0]))
    values = np.array([[0.0, 4.0, -4.0, np.nan, np.inf]])
    *_, status, counts, smallest = factorized(*one, values)
    assert status.tolist() == [ldl.SINGULAR, 0, 0, ldl.NONFINITE, ldl.NONFINITE]
    assert counts[0].tolist()[:3] == [0, 0, 1]
    assert counts[1].tolist()[:3] == [1, 0, 0]
    assert smallest.tolist()[:3] == [0.0, 4.0, 4.0]
    *_, inverse, status, counts, _ = factorized(*one, values, signs=np.array([1]))  # a pivot may have either sign
    assert status.tolist() == [ldl.SINGULAR, 0, 0, ldl.NONFINITE, ldl.NONFINITE]
    assert inverse[0, 0, :3].tolist() == [0.0, 0.25, -0.25]  # the row of a weak pivot is left out


def test_scale_of_a_zero_diagonal_comes_from_its_neighbours():
    """[[w, a], [a, 0]]: the second pivot is -a² / w. It is weak below tiny times that, not below zero."""
    indptr, indices = np.array([0, 1, 3]), np.array([0, 0, 1])
    values = np.array([[2.0, 2.0], [3.0, 3.0], [0.0, 4.5 - 1e-15]])  # lane 1: the contributions cancel
    *_, status, counts, _ = factorized(indptr, indices, values, signs=np.array([1, -1]))
    assert counts.tolist() == [[1, 0], [0, 1]]
    assert status.tolist() == [ldl.FACTORED, ldl.SINGULAR]


@pytest.mark.skipif((platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="reads x86 registers")
def test_the_inner_loop_uses_whole_registers():
    @njit(error_model="numpy")
    def axpy(x, y, out):
        for k in range(len(x) // WIDTH):
            store(out, k, fnma(load(x, k), load(y, k), load(out, k)))

    axpy(*np.ones((3, 4 * WIDTH)))
    (assembly,) = axpy.inspect_asm().values()
    words = re.findall(r"v?f?n?m?(?:add|sub|mul)\w*pd\s.*%([xyz])mm", assembly)
    assert words  # packed arithmetic
    with open("/proc/cpuinfo") as file:  # the widest the machine has, and no narrower
        flags = file.read()
    wanted = "z" if "avx512f" in flags else "y" if "avx2" in flags else "x"
    assert set(words) == {wanted}
