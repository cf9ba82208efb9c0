"""One battery for every linear solver: what linear.base promises, error paths included."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from tests.linear import dense
from tests.linear.counting import Counted
from tests.solve.marching_laws import example

from snapfm import Equality, Projector
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.errors import DtypeError, ShapeError
from snapfm.linear import Automatic, Fronts, Lanes, Outcome
from snapfm.project.metric import Metric
from snapfm.sampling.conditional.conditioning import Conditioning
from snapfm.solve import linearized, step_solver, tangent

EPS = np.finfo(np.float64).eps
SOLVERS = [Lanes(), Fronts()]


def name_of(solver):
    return type(solver).__name__


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
@every_family
def test_agrees_with_the_dense_oracle(solver, family):
    matrices, values, work = prepared(solver, family, 3)
    rhs = np.random.default_rng(2).standard_normal((matrices.shape[1], 3))
    pivots, x, logs = work.factorize(values), work.solve(rhs.copy()), work.log_determinant()
    for lane, matrix in enumerate(matrices):
        oracle = dense.factorize(matrix, signs_of(family))
        assert pivots.status[lane] == oracle.status
        assert (pivots.negative[lane], pivots.weak[lane]) == (oracle.negative, oracle.weak)
        bound = 8 * len(x) * EPS * np.linalg.cond(matrix)
        exact = oracle.solve(rhs[:, lane])
        assert np.abs(x[:, lane] - exact).max() <= 2 * bound * np.abs(exact).max()
        assert logs[lane] == pytest.approx(oracle.log_determinant(), rel=len(x) * EPS, abs=2 * bound)


@every_solver
@every_family
def test_log_determinant_is_that_of_numpy_and_of_the_lane_alone(solver, family):
    matrices, values, work = prepared(solver, family, 13)
    work.factorize(values)
    logs = work.log_determinant()
    bounds = [8 * matrices.shape[1] * EPS * np.linalg.cond(a) for a in matrices]
    assert (np.abs(logs - np.linalg.slogdet(matrices)[1]) <= bounds + len(values) * EPS * np.abs(logs)).all()
    assert np.array_equal(work.log_determinant(), logs)
    for lane in (0, 12):
        work.factorize(np.ascontiguousarray(values[:, [lane]]))
        assert work.log_determinant().tolist() == [logs[lane]]


@every_solver
def test_log_determinant_beyond_the_range_of_the_determinant(solver):
    matrices = np.stack([1e200 * np.eye(5), 1e-200 * np.eye(5)])
    pattern, values = from_dense(matrices)
    work = solver.prepare(pattern).workspace()
    work.factorize(values)
    np.testing.assert_allclose(work.log_determinant(), [1000 * np.log(10), -1000 * np.log(10)], rtol=8 * EPS)


@every_solver
def test_log_determinant_of_lanes_without_one(solver):
    matrices = np.stack([np.diag([2.0, 3.0]), np.diag([2.0, 0.0]), np.diag([np.nan, 3.0])])
    pattern, values = from_dense(matrices)
    work = solver.prepare(pattern).workspace()
    work.factorize(values)
    np.testing.assert_allclose(work.log_determinant(), [np.log(6), -np.inf, np.nan], rtol=4 * EPS)


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
def test_the_row_of_a_weak_pivot_is_left_out(solver):
    matrices = np.array([[[2.0, 0, 0], [0, 0, 0], [0, 0, 4]], np.zeros((3, 3)), np.eye(3)])
    pattern, values = from_dense(matrices)
    work = solver.prepare(pattern).workspace()
    pivots = work.factorize(values)
    assert pivots.status.tolist() == [Outcome.SINGULAR, Outcome.SINGULAR, Outcome.FACTORED]
    assert pivots.weak.tolist() == [1, 3, 0]
    assert work.solve(np.ones((3, 3))).T.tolist() == [[0.5, 0.0, 0.25], [0.0] * 3, [1.0] * 3]


@every_solver
def test_a_rank_deficient_matrix_is_solved_on_its_independent_rows(solver):
    """Every row twice: half of the pivots are weak, and the others solve a consistent system."""
    j = np.random.default_rng(14).standard_normal((3, 6, 40))
    j = np.repeat(j, 2, axis=1)
    matrices = j @ j.transpose(0, 2, 1)
    pattern, values = from_dense(matrices)
    work = solver.prepare(pattern).workspace()
    pivots = work.factorize(values)
    assert pivots.status.tolist() == [Outcome.SINGULAR] * 3
    assert pivots.weak.tolist() == [6] * 3
    assert pivots.negative.tolist() == [0] * 3
    rhs = np.ascontiguousarray(np.einsum("kij,j->ik", matrices, np.ones(12)))
    x = work.solve(rhs.copy())
    assert ((x == 0.0).sum(0) == 6).all()
    for lane, matrix in enumerate(matrices):
        independent = np.linalg.cond(matrix[::2, ::2])
        assert np.abs(matrix @ x[:, lane] - rhs[:, lane]).max() <= 96 * EPS * independent * np.abs(rhs).max()


@every_solver
def test_a_zero_diagonal_without_signs_is_singular_not_wrong(solver):
    """[[0, 1], [1, 0]] is regular, but has no LDLᵀ without pivoting."""
    pattern, values = from_dense(np.array([[[0.0, 1.0], [1.0, 0.0]]]))
    work = solver.prepare(pattern).workspace()
    pivots = work.factorize(values)
    assert pivots.status.tolist() == [Outcome.SINGULAR]
    assert pivots.weak.tolist() == [2]
    assert work.solve(np.ones((2, 1))).ravel().tolist() == [0.0, 0.0]


@every_solver
def test_one_by_one(solver):
    pattern, values = from_dense(np.array([0.0, 4.0, -4.0]).reshape(3, 1, 1))
    work = solver.prepare(pattern).workspace()
    pivots = work.factorize(values)
    assert pivots.status.tolist() == [Outcome.SINGULAR, Outcome.FACTORED, Outcome.FACTORED]
    assert pivots.negative.tolist() == [0, 0, 1]
    assert pivots.smallest.tolist()[1:] == [4.0, 4.0]
    assert work.solve(np.ones((1, 3))).ravel().tolist() == [0.0, 0.25, -0.25]


@every_solver
def test_pivots_may_have_either_sign_whatever_signs_say(solver):
    matrices = np.stack([np.diag([2.0, -1.0, -3.0]), np.diag([2.0, 1.0, 3.0]), np.diag([-2.0, -1.0, -3.0])])
    pattern, values = from_dense(matrices)
    pivots = solver.prepare(pattern, np.array([1, -1, -1])).workspace().factorize(values)
    assert pivots.status.tolist() == [Outcome.FACTORED] * 3
    assert pivots.negative.tolist() == [2, 0, 3]


@every_solver
def test_inertia_of_a_saddle_point_with_indefinite_curvature(solver):
    """W has negative eigenvalues; where J fixes their directions, as many pivots as rows are negative, and no more."""
    matrices = augmented(np.random.default_rng(12), 6)
    for lane, shift in enumerate([0.0, 1.5, 2.5, 3.5, 4.5, 9.0]):
        matrices[lane, np.arange(4), np.arange(4)] -= shift
    pattern, values = from_dense(matrices)
    work = solver.prepare(pattern, augmented_signs()).workspace()
    pivots = work.factorize(values)
    assert pivots.status.tolist() == [Outcome.FACTORED] * 6
    assert pivots.negative.tolist() == [int((np.linalg.eigvalsh(a) < 0).sum()) for a in matrices]
    assert (pivots.negative > 9).any()


@every_solver
def test_dependent_rows_of_the_augmented_matrix_have_weak_pivots(solver):
    """With δ = 0, the diagonal of a row says nothing about its pivot; its neighbours do."""
    matrices = augmented(np.random.default_rng(12), 4, soft=0.0)
    matrices[2, 22] = matrices[2, 21]  # lane 2: two rows of J are one
    matrices[2, :, 22] = matrices[2, :, 21]
    pattern, values = from_dense(matrices)
    pivots = solver.prepare(pattern, augmented_signs()).workspace().factorize(values)
    assert pivots.status.tolist() == [0, 0, Outcome.SINGULAR, 0]
    assert pivots.weak.tolist() == [0, 0, 1, 0]
    assert pivots.negative.tolist() == [9, 9, 8, 9]


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


@every_solver
def test_pivots_are_not_overwritten_by_the_next_factorization(solver):
    _, values, work = prepared(solver, band, 3)
    first = work.factorize(values)
    kept = [first.status.copy(), first.negative.copy(), first.weak.copy(), first.smallest.copy()]
    work.factorize(-2.0 * values)
    assert all(map(np.array_equal, kept, (first.status, first.negative, first.weak, first.smallest)))


@every_solver
def test_hot_calls_allocate_the_pivots_only(solver):
    _, values, work = prepared(solver, definite, 16)
    rhs = np.ones((26, 16))
    work.factorize(values)
    work.solve(rhs)
    tracemalloc.start()
    work.factorize(values)
    work.solve(rhs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4096  # pivots and views of arguments


@every_solver
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
    with pytest.raises(ShapeError, match=r"log_determinant\(\) expects factors; got none yet\. Call factorize"):
        work.log_determinant()
    with pytest.raises(ShapeError, match=r"factorize\(values\) expects \(118, lanes\).*got \(2, 118\)\. Put the"):
        work.factorize(np.ascontiguousarray(values.T))
    with pytest.raises(DtypeError, match=r"factorize\(values\) expects contiguous float64; got float32"):
        work.factorize(values.astype(np.float32))
    with pytest.raises(DtypeError, match=r"Convert before the hot loop"):
        work.factorize(np.asfortranarray(values))
    work.factorize(values)
    with pytest.raises(ShapeError, match=r"solve\(rhs\) expects \(31, 2\); got \(31, 3\)\. Put the batch last"):
        work.solve(np.ones((31, 3)))
    with pytest.raises(DtypeError, match=r"solve\(rhs\) expects contiguous float64; got float32"):
        work.solve(np.ones((31, 2), np.float32))
    with pytest.raises(DtypeError, match=r"solve\(out\) expects contiguous float64"):
        work.solve(np.ones((31, 2)), np.ones((2, 31)).T)
    with pytest.raises(ShapeError, match=r"solve\(out\) expects the shape of rhs, \(31, 2\); got \(31, 1\)"):
        work.solve(np.ones((31, 2)), np.ones((31, 1)))


@every_solver
def test_wrong_patterns_are_named(solver):
    upper = Pattern.from_coordinates([0, 0, 1], [0, 1, 1], (2, 2))
    with pytest.raises(ShapeError, match=r"prepare\(pattern\) expects the lower triangle.*got 2 x 2 with 3 entries"):
        solver.prepare(upper)
    with pytest.raises(ShapeError, match=r"add every diagonal entry"):
        solver.prepare(Pattern.from_coordinates([0, 1], [0, 0], (2, 2)))  # no diagonal entry in row 1
    lower = Pattern.from_coordinates([0, 1, 1], [0, 0, 1], (2, 2))
    with pytest.raises(ShapeError, match=r"prepare\(signs\) expects 2 numbers, each \+1 or -1; got 1"):
        solver.prepare(lower, np.array([1]))
    with pytest.raises(ShapeError, match=r"Leave signs out if the matrix is definite"):
        solver.prepare(lower, np.array([1, 0]))


def stencil(power):
    law = Equality("stencil", lambda u, p: u[1:] ** power + 0.3 * u[:-1] - p["b"])
    given = 1.0 + 0.1 * torch.randn(3, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return [law], (9,), {"b": torch.ones(1, 8, dtype=torch.float64)}, given


SERVED = {
    "march": lambda: example("reaction–diffusion", 3),
    "solve 8 affine rows in closed form": lambda: stencil(1),
    "iterate": lambda: stencil(2),
}


@every_solver
@pytest.mark.parametrize("stage", SERVED)
def test_a_solver_that_is_given_serves_every_solve(solver, stage, monkeypatch):
    """Projections, gradients and draws, of every stage that solves: nothing else factorizes, and answers are the same."""
    laws, shape, params, given = SERVED[stage]()
    first = {name: value[:1] for name, value in params.items()}
    plain = Projector(laws, shape, first)
    expected = plain(given, params).u
    counted = Counted(solver)

    def refused(*arguments, **more):
        raise AssertionError("another solver was used")

    def only_counted(kind):
        prepare = kind.prepare
        return lambda self, *arguments: prepare(self, *arguments) if counted.busy else refused()

    for kind in (Lanes, Fronts, Automatic):
        monkeypatch.setattr(kind, "prepare", only_counted(kind))
    for module, name in ((linearized, "splu"), (tangent, "splu"), (step_solver, "solve_step")):
        monkeypatch.setattr(module, name, refused)
    project = Projector(laws, shape, first, linear=counted)
    assert stage in " ".join(str(project.structure).split())

    def spent():
        count, counted.factors = counted.factors, 0
        return count

    spent()
    u_hat = given.clone().requires_grad_()
    result = project(u_hat, {name: value.clone().requires_grad_() for name, value in params.items()})
    assert result.converged.all()
    assert spent() > 0 or len(project.method.plan.reduction.affine)  # that of a closed form was made beforehand
    torch.testing.assert_close(result.u.detach(), expected, rtol=0.0, atol=1e-9)
    result.u.square().sum().backward()
    assert torch.isfinite(u_hat.grad).all()
    assert spent() > 0 or len(project.method.plan.reduction.affine)
    near = Conditioning(project, Metric(1.0), params, 3, rounds=1)
    white, along = torch.zeros(3, given[0].numel()).double(), torch.zeros(3, 0).double()
    drawn, _ = near.draw(result.u.detach().flatten(1), torch.arange(3), [Metric(1.0)] * 3, white, along)
    assert spent() > 0
    torch.testing.assert_close(drawn.reshape(given.shape), expected, rtol=0.0, atol=1e-6)
