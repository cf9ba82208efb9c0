"""One battery for every linear solver: what linear.base promises, error paths included."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from snapfm.errors import DtypeError, ShapeError
from snapfm.linear import Dense, Lanes, Levels, Library, Outcome, lower_triangle
from snapfm.structure.pattern import Pattern

EPS = np.finfo(np.float64).eps
# Factors in float32 are no excuse: answers are refined in float64, to a backward error of max(4, √n) EPS, which all
# tolerances below leave room for.
SOLVERS = [Lanes(), Lanes(precision="float32"), Dense(), Levels(), Library()]


def name_of(solver):
    return type(solver).__name__ + (" float32" if getattr(solver, "precision", None) == "float32" else "")


every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=name_of)


def from_dense(matrices):
    """Pattern of the lower triangle and values (nnz, lanes) of a stack of dense symmetric matrices (lanes, n, n)."""
    used = np.tril((matrices != 0).any(0) | np.eye(matrices.shape[1], dtype=bool))
    row, column = np.nonzero(used)
    pattern = Pattern.from_coordinates(row, column, used.shape)
    return pattern, np.ascontiguousarray(matrices[:, row, column].T)


def identity(rng, lanes):
    return np.broadcast_to(np.eye(7), (lanes, 7, 7)).copy()


def single(rng, lanes):
    return rng.uniform(1, 2, (lanes, 1, 1))


def arrow(rng, lanes, first=False):
    matrices = np.zeros((lanes, 23, 23))
    dense = 0 if first else -1
    matrices[:, dense, :] = matrices[:, :, dense] = rng.standard_normal((lanes, 23))
    return matrices + 40 * np.eye(23)


def arrow_up(rng, lanes):
    return arrow(rng, lanes, first=True)


def band(rng, lanes):
    n = 31
    matrices = np.zeros((lanes, n, n))
    for k in range(1, 4):
        matrices[:, np.arange(k, n), np.arange(n - k)] = rng.standard_normal((lanes, n - k))
    return matrices + matrices.transpose(0, 2, 1) + 12 * np.eye(n)


def definite(rng, lanes):
    """J diag(w) Jᵀ with two rows that span everything: the shape of a Schur matrix of flux and mass rows."""
    j = np.zeros((lanes, 26, 40))
    for i in range(24):
        j[:, i, i : i + 4] = rng.standard_normal((lanes, 4))
    j[:, 24, :20] = j[:, 25, 20:] = 1.0
    return j * rng.uniform(0.5, 2, (lanes, 1, 40)) @ j.transpose(0, 2, 1)


def augmented(rng, lanes, soft=1e-8):
    """[[W, Jᵀ], [J, -δ]] with a tridiagonal W and independent rows."""
    n, m = 21, 9
    matrices = np.zeros((lanes, n + m, n + m))
    matrices[:, np.arange(n), np.arange(n)] = rng.uniform(2, 3, (lanes, n))
    matrices[:, np.arange(1, n), np.arange(n - 1)] = rng.uniform(-0.9, 0.9, (lanes, n - 1))
    for i in range(m - 1):
        matrices[:, n + i, 2 * i : 2 * i + 4] = rng.standard_normal((lanes, 4))
    matrices[:, n + m - 1, :n] = 1.0
    matrices += np.tril(matrices, -1).transpose(0, 2, 1)
    matrices[:, np.arange(n, n + m), np.arange(n, n + m)] = -soft
    return matrices


def augmented_signs():
    return np.repeat([1, -1], [21, 9])


FAMILIES = [identity, single, arrow, arrow_up, band, definite, augmented]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)


def signs_of(family):
    return augmented_signs() if family is augmented else None


def prepared(solver, family, lanes, seed=0):
    matrices = family(np.random.default_rng(seed), lanes)
    pattern, values = from_dense(matrices)
    return matrices, values, solver.prepare(pattern, signs_of(family)).workspace()


@every_solver
@every_family
@pytest.mark.parametrize("lanes", [1, 8, 13])
def test_solves_to_rounding(solver, family, lanes):
    matrices, values, work = prepared(solver, family, lanes)
    rhs = np.random.default_rng(1).standard_normal((matrices.shape[1], lanes))
    pivots = work.factorize(values)
    assert (pivots.status == Outcome.FACTORED).all()
    x = work.solve(rhs.copy())
    for lane in range(lanes):
        left = np.abs(matrices[lane] @ x[:, lane] - rhs[:, lane]).max()
        size = np.abs(matrices[lane]).sum(1).max() * np.abs(x[:, lane]).max() + np.abs(rhs[:, lane]).max()
        assert left <= 8 * len(x) * EPS * size
        exact = np.linalg.solve(matrices[lane], rhs[:, lane])
        bound = 8 * len(x) * EPS * np.linalg.cond(matrices[lane])
        assert np.abs(x[:, lane] - exact).max() <= bound * np.abs(exact).max()


@every_solver
@every_family
def test_inertia_is_that_of_the_eigenvalues(solver, family):
    matrices, values, work = prepared(solver, family, 5)
    pivots = work.factorize(values)
    assert pivots.negative.tolist() == [int((np.linalg.eigvalsh(a) < 0).sum()) for a in matrices]
    assert pivots.weak.tolist() == [0] * 5


@every_solver
def test_indefinite_inertia(solver):
    rng = np.random.default_rng(3)
    matrices = definite(rng, 6)
    matrices[2:4] -= 3 * np.eye(26)  # well inside the spectrum: some pivots turn negative, none is small
    pattern, values = from_dense(matrices)
    pivots = solver.prepare(pattern).workspace().factorize(values)
    expected = [int((np.linalg.eigvalsh(a) < 0).sum()) for a in matrices]
    assert pivots.negative.tolist() == expected
    assert expected[0] == 0
    assert expected[2] > 0


@every_solver
def test_smallest_pivot(solver):
    matrices = np.stack([np.diag([3.0, -0.25, 7.0]), np.diag([2.0, 5.0, 9.0])])
    pattern, values = from_dense(matrices)
    assert solver.prepare(pattern).workspace().factorize(values).smallest.tolist() == [0.25, 2.0]


@every_solver
def test_repeated_rows_are_flagged_and_spare_the_others(solver):
    rng = np.random.default_rng(5)
    j = rng.standard_normal((9, 5, 8))
    j[4, 3] = 2 * j[4, 1] - j[4, 0]  # lane 4: one row depends on two others
    j[7, 2] = 0.0  # lane 7: a row without a gradient
    matrices = j @ j.transpose(0, 2, 1)
    pattern, values = from_dense(matrices)
    work = solver.prepare(pattern).workspace()
    pivots = work.factorize(values)
    bad = [4, 7]
    assert [Outcome(s) for s in pivots.status[bad].tolist()] == [Outcome.SINGULAR] * 2
    assert pivots.weak[bad].tolist() == [1, 1]
    good = [lane for lane in range(9) if lane not in bad]
    assert (pivots.status[good] == Outcome.FACTORED).all()
    rhs = rng.standard_normal((5, 9))
    x = work.solve(rhs.copy())
    alone = solver.prepare(pattern).workspace()
    alone.factorize(np.ascontiguousarray(values[:, good]))
    assert np.array_equal(x[:, good], alone.solve(np.ascontiguousarray(rhs[:, good])))


@every_solver
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["diagonal", "below"])
def test_a_non_finite_lane_spares_the_others(solver, poison, where):
    _, values, work = prepared(solver, definite, 11)
    rhs = np.random.default_rng(2).standard_normal((26, 11))
    clean = work.factorize(values)
    kept = [np.array(part) for part in (clean.status, clean.negative, clean.weak, clean.smallest)]
    before = work.solve(rhs.copy())
    spoiled = values.copy()
    spoiled[0 if where == "diagonal" else 1, 6] = poison
    pivots = work.factorize(spoiled)
    after = work.solve(rhs.copy())
    others = np.arange(11) != 6
    assert pivots.status[6] == Outcome.NONFINITE
    for part, was in zip((pivots.status, pivots.negative, pivots.weak, pivots.smallest), kept):
        assert np.array_equal(part[others], was[others])
    assert np.array_equal(after[:, others], before[:, others])


@every_solver
@every_family
def test_bits_do_not_depend_on_the_call_the_place_or_the_batch(solver, family):
    matrices, values, work = prepared(solver, family, 13)
    rhs = np.random.default_rng(4).standard_normal((matrices.shape[1], 13))
    work.factorize(values)
    x = work.solve(rhs.copy())
    work.factorize(values)
    assert np.array_equal(work.solve(rhs.copy()), x)
    order = np.random.default_rng(6).permutation(13)
    work.factorize(np.ascontiguousarray(values[:, order]))
    assert np.array_equal(work.solve(np.ascontiguousarray(rhs[:, order])), x[:, order])
    for lane in (0, 12):
        work.factorize(np.ascontiguousarray(values[:, [lane]]))
        assert np.array_equal(work.solve(np.ascontiguousarray(rhs[:, [lane]])), x[:, [lane]])


@every_solver
def test_several_sides_are_solved_as_if_one_by_one(solver):
    _, values, work = prepared(solver, augmented, 5)
    work.factorize(values)
    rhs = np.random.default_rng(7).standard_normal((30, 3, 5))
    together = work.solve(rhs.copy())
    for side in range(3):
        assert np.array_equal(together[:, side], work.solve(np.ascontiguousarray(rhs[:, side])))


@every_solver
def test_one_factor_serves_many_lanes(solver):
    _, values, work = prepared(solver, definite, 1)
    rhs = np.random.default_rng(8).standard_normal((26, 19))
    work.factorize(values)
    shared = work.solve(rhs.copy())
    work.factorize(np.repeat(values, 19, axis=1))
    assert np.array_equal(shared, work.solve(rhs.copy()))


@every_solver
def test_in_place_or_into_out(solver):
    _, values, work = prepared(solver, band, 3)
    work.factorize(values)
    rhs = np.random.default_rng(9).standard_normal((31, 3))
    given, out = rhs.copy(), np.empty_like(rhs)
    assert work.solve(given, out) is out
    assert np.array_equal(given, rhs)
    assert work.solve(given) is given
    assert np.array_equal(given, out)


@every_solver
def test_torch_in_torch_out(solver):
    _, values, work = prepared(solver, definite, 3)
    rhs = np.random.default_rng(9).standard_normal((26, 3))
    work.factorize(values)
    expected = work.solve(rhs.copy())
    pivots = work.factorize(torch.from_numpy(values))
    assert isinstance(pivots.status, torch.Tensor)
    given = torch.from_numpy(rhs)
    assert work.solve(given) is given
    assert np.array_equal(given.numpy(), expected)


@every_solver
def test_more_lanes_after_fewer(solver):
    _, values, work = prepared(solver, band, 17)
    rhs = np.ones((31, 17))
    work.factorize(values)
    expected = work.solve(rhs.copy())
    work.factorize(np.ascontiguousarray(values[:, :2]))
    work.solve(np.ones((31, 2)))
    work.factorize(values)
    assert np.array_equal(work.solve(rhs.copy()), expected)


@every_solver
def test_what_is_prepared_serves_many_threads_each_with_a_workspace_of_its_own(solver):
    matrices = [band(np.random.default_rng(seed), 9) for seed in range(4)]
    pattern, _ = from_dense(matrices[0])
    values, rhs = [from_dense(one)[1] for one in matrices], np.random.default_rng(9).standard_normal((31, 9))
    prepared = solver.prepare(pattern)

    def solved(number):
        work = prepared.workspace()
        work.factorize(values[number])
        return work.solve(rhs.copy())

    alone = [solved(number) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(solved, [number for number in range(4) for _ in range(6)]))
    assert all(np.array_equal(one, alone[number // 6]) for number, one in enumerate(together))
    first, second = prepared.workspace(), prepared.workspace()
    first.factorize(values[0])
    second.factorize(values[1])
    assert np.array_equal(first.solve(rhs.copy()), alone[0])


@pytest.mark.parametrize("solver", [Lanes(refinements=1), Lanes(precision="float32")], ids=name_of)
def test_hot_calls_of_lanes_allocate_nothing(solver):
    _, values, work = prepared(solver, definite, 16)
    rhs = np.ones((26, 16))
    first = work.factorize(values)
    work.solve(rhs)
    tracemalloc.start()
    second = work.factorize(values)
    work.solve(rhs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert second is first
    assert peak < 4096  # views of arguments; the smallest buffer, one vector of one tile, has more


@pytest.mark.parametrize("solver", [Lanes(), Lanes(precision="float32"), Levels(), Library()], ids=name_of)
def test_known_signs_make_the_augmented_matrix_stable(solver):
    """Without any regularisation: rows of J are eliminated behind the unknowns they touch, never with a zero pivot."""
    matrices = augmented(np.random.default_rng(12), 4, soft=0.0)
    pattern, values = from_dense(matrices)
    work = solver.prepare(pattern, augmented_signs()).workspace()
    pivots = work.factorize(values)
    assert pivots.status.tolist() == [Outcome.FACTORED] * 4
    assert pivots.negative.tolist() == [9] * 4
    x = work.solve(np.ones((30, 4)))
    assert max(np.abs(a @ x[:, k] - 1).max() for k, a in enumerate(matrices)) <= 1e3 * EPS * np.abs(x).max()


@every_solver
def test_wrong_arguments_are_named(solver):
    pattern, values = from_dense(band(np.random.default_rng(0), 2))
    work = solver.prepare(pattern).workspace()
    with pytest.raises(ShapeError, match=r"solve\(rhs\) expects factors; got none yet\. Call factorize"):
        work.solve(np.ones((31, 2)))
    with pytest.raises(ShapeError, match=r"factorize\(values\) expects \(118, lanes\).*got \(2, 118\)\. Put the"):
        work.factorize(np.ascontiguousarray(values.T))
    with pytest.raises(DtypeError, match=r"factorize\(values\) expects contiguous float64; got float32"):
        work.factorize(values.astype(np.float32))
    with pytest.raises(DtypeError, match=r"Convert before the hot loop"):
        work.factorize(np.asfortranarray(values))
    work.factorize(values)
    with pytest.raises(ShapeError, match=r"solve\(rhs\) expects \(31, 2\) or \(31, sides, 2\); got \(31, 3\)"):
        work.solve(np.ones((31, 3)))
    with pytest.raises(ShapeError, match=r"expects out of the shape of rhs, \(31, 2\); got \(31, 1\)"):
        work.solve(np.ones((31, 2)), np.ones((31, 1)))


@every_solver
def test_wrong_patterns_are_named(solver):
    upper = Pattern.from_coordinates([0, 0, 1], [0, 1, 1], (2, 2))
    with pytest.raises(ShapeError, match=r"prepare\(pattern\) expects the lower triangle.*got 2 x 2 with 3 entries"):
        solver.prepare(upper)
    with pytest.raises(ShapeError, match=r"Use lower_triangle\(pattern\)"):
        solver.prepare(Pattern.from_coordinates([0, 1], [0, 0], (2, 2)))  # no diagonal entry in row 1
    fixed = lower_triangle(upper)
    assert fixed.indices.tolist() == [0, 1]
    with pytest.raises(ShapeError, match=r"prepare\(signs\) expects 2 numbers, each \+1 or -1; got 1"):
        solver.prepare(fixed, np.array([1]))


def test_every_outcome_has_advice():
    assert all(outcome.advice for outcome in Outcome)
