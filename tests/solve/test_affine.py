"""Affine laws against closed forms and against numpy's dense least squares.

Tolerances come from the rounding unit and the condition of A: one solve with AAᵀ loses eps·cond(AAᵀ) of the step, and
solves repeated down to rounding lose eps·cond(A), with the number of terms of the longest sum as the factor.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import snapfm
from snapfm import Equality, Projector, Status
from snapfm.errors import LawError

EPS = np.finfo(np.float64).eps
Array = np.ndarray


def law(matrix: Array) -> Equality:
    """Write A u = b as a law, dense: every row sums over the whole field."""
    a = torch.from_numpy(np.ascontiguousarray(matrix))
    return Equality("rows", lambda u, p: (a * u.flatten()).sum(1) - p["b"])


def sparse_law(matrix: Array) -> Equality:
    """Write A u = b as a law that only reads the non-zeros."""
    rows, columns = (torch.from_numpy(index) for index in np.nonzero(matrix))
    values = torch.from_numpy(matrix[np.nonzero(matrix)])
    count = matrix.shape[0]
    return Equality(
        "rows", lambda u, p: torch.zeros(count, dtype=u.dtype).index_add(0, rows, values * u[columns]) - p["b"]
    )


class Trial:
    """A consistent system A u = b, a batch that breaks it, the projection, and numpy's answer."""

    def __init__(
        self, matrix: Array, rank: int, seed: int, *, count: int = 3, tolerance: float = 1e-8, sparse: bool = False
    ) -> None:
        rng = np.random.default_rng(seed)
        self.matrix, (self.m, self.n) = matrix, matrix.shape
        self.target = rng.normal(size=(count, self.n))
        self.b = self.target @ matrix.T
        self.u_hat = rng.normal(size=(count, self.n))
        self.project = Projector(
            [sparse_law(matrix) if sparse else law(matrix)], (self.n,), {"b": torch.from_numpy(self.b[:1])}, tolerance
        )
        self.result = self.project(torch.from_numpy(self.u_hat), {"b": torch.from_numpy(self.b)})
        self.u = self.result.u.numpy()
        _, singular, right = np.linalg.svd(matrix, full_matrices=False)
        self.smallest = singular[rank - 1] if rank else 1.0
        self.cond = singular[0] / self.smallest if rank else 1.0
        # û − pinv(A)(Aû − b) with pinv(A)A from the orthonormal row space, which loses nothing to the condition of A.
        basis = right[:rank]
        self.nearest = self.u_hat - (self.u_hat - self.target) @ basis.T @ basis

    @property
    def error(self) -> float:
        return float(np.abs(self.u - self.nearest).max())

    def rounding(self, cond: float) -> float:
        """Give eps·cond of the largest number in play, times the terms of the longest sum."""
        size = max(1.0, *(float(np.abs(x).max()) for x in (self.u_hat, self.target, self.u_hat - self.target)))
        return (self.m + self.n) * EPS * cond * size


def conditioned(m: int, n: int, cond: float, seed: int) -> Array:
    """Draw a full matrix with singular values from 1 down to 1/cond."""
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.normal(size=(m, m)))
    right, _ = np.linalg.qr(rng.normal(size=(n, m)))
    return left @ np.diag(np.geomspace(1.0, 1.0 / cond, m)) @ right.T


def with_repeats(matrix: Array) -> Array:
    """Add a duplicate, a sum, a scaled row and a difference of rows."""
    more = [matrix[0], matrix.sum(0), -2.5 * matrix[3], matrix[1] - matrix[2]]
    return np.vstack([matrix, *more])


# Closed forms.


@pytest.mark.parametrize(("nx", "nt", "count"), [(100, 100, 5), (3, 2, 1), (17, 5, 4)])
def test_heat_is_an_overwritten_slice_and_a_mean_defect_taken_off(nx: int, nt: int, count: int):
    problem = snapfm.problem("heat-ic-mass", nx=nx, nt=nt, phase=None)
    params = problem.params(count, torch.Generator().manual_seed(1))
    u_hat = torch.randn(count, nx, nt, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    result = Projector(problem.laws, problem.grid.shape, params)(u_hat, params)

    closed = u_hat.clone()
    closed[:, :, 0] = params["u0"]
    defect = u_hat[:, :-1, 1:].sum(1) - params["u0"][:, :-1].sum(1)[:, None]
    closed[:, :-1, 1:] -= (defect / (nx - 1))[:, None, :]
    assert float((result.u - closed).abs().max()) <= 1e-12
    assert torch.equal(result.u[:, -1, 1:], u_hat[:, -1, 1:])  # no law reads the repeated end point
    assert result.converged.all()
    assert float(result.violation.max()) <= 1e-12


def test_equal_neighbours_give_the_mean():
    # u[i] = u[i+1] around a ring: n rows of rank n − 1, and the nearest constant is the mean.
    n = 50
    project = Projector([Equality("ring", lambda u, p: u - u.roll(1))], (n,))
    u_hat = torch.from_numpy(np.random.default_rng(0).normal(size=(4, n)))
    result = project(u_hat)
    assert len(project.structure.presolve.redundant) == 1
    cond = (n / np.pi) ** 2  # of the ring's Laplacian AAᵀ: eigenvalues 2 − 2cos(2πk/n), k ≥ 1
    assert float((result.u - u_hat.mean(1, keepdim=True)).abs().max()) <= n * EPS * cond * float(u_hat.abs().max())
    assert result.converged.all()


def test_a_chain_that_pins_every_unknown_is_the_recursion():
    n = 12

    def chain(u: torch.Tensor, p: dict[str, torch.Tensor]) -> torch.Tensor:
        return u[1:] - 0.5 * u[:-1] - 1.0

    laws = [Equality("start", lambda u, p: u[0] - p["start"]), Equality("chain", chain)]
    start = torch.tensor([3.0, -1.0, 0.25], dtype=torch.float64)
    result = Projector(laws, (n,), {"start": start[:1]})(torch.zeros(3, n, dtype=torch.float64), {"start": start})
    truth = torch.empty(3, n, dtype=torch.float64)
    truth[:, 0] = start
    for i in range(1, n):
        truth[:, i] = 0.5 * truth[:, i - 1] + 1.0
    # Rows u[i+1] − u[i]/2: AAᵀ is tridiagonal with eigenvalues within (1 − ½)² .. (1 + ½)².
    assert float((result.u - truth).abs().max()) <= n * EPS * 9 * float(truth.abs().max())
    assert result.converged.all()


@pytest.mark.parametrize("extra", [0, 1])
def test_laws_that_pin_every_unknown_leave_nothing_of_the_input(extra: int):
    weights = torch.tensor([2.0, -4.0, 0.5, 8.0, 1.0], dtype=torch.float64)  # powers of two: division is exact
    laws = [Equality("pins", lambda u, p: weights * u.flip(0) - p["v"])]
    laws += [Equality("total", lambda u, p: u.sum() - (p["v"] / weights).sum())] * extra
    v = torch.from_numpy(np.random.default_rng(3).normal(size=(3, 5)))
    project = Projector(laws, (5,), {"v": v[:1]})
    result = project(torch.from_numpy(np.random.default_rng(4).normal(size=(3, 5))), {"v": v})
    truth = (v / weights).flip(1)
    assert float((result.u - truth).abs().max()) <= 2 * EPS * float(truth.abs().max() + 10)
    assert len(project.structure.presolve.fixed) == 5
    assert result.converged.all()


# Random systems against numpy.


def assert_nearest(trial: Trial) -> None:
    assert trial.result.status.tolist() == [Status.CONVERGED] * len(trial.u)
    assert trial.error <= trial.rounding(trial.cond**2)


@pytest.mark.parametrize("cond", [1.0, 1e2, 3e3])  # cond(AAᵀ) up to 1e7, the worst of the benchmark sets
@pytest.mark.parametrize("seed", range(4))
def test_full_rows_agree_with_numpy(cond: float, seed: int):
    assert_nearest(Trial(conditioned(9, 23, cond, seed), rank=9, seed=seed))


@pytest.mark.parametrize("cond", [1.0, 1e2, 3e3])
@pytest.mark.parametrize("seed", range(4))
def test_redundant_rows_are_dropped_and_change_nothing(cond: float, seed: int):
    trial = Trial(with_repeats(conditioned(9, 23, cond, seed)), rank=9, seed=seed)
    assert_nearest(trial)
    assert len(trial.project.structure.presolve.redundant) == 4


@pytest.mark.parametrize("cond", [1e4, 1e6, 1e7])
@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_nearly_dependent_rows_are_as_exact_as_their_residual_allows(cond: float, repeats: bool, seed: int):
    matrix = conditioned(9, 23, cond, seed)
    trial = Trial(with_repeats(matrix) if repeats else matrix, rank=9, seed=seed)
    assert trial.result.converged.all()
    # u − û lies in the row space, so the error is pinv(A) times the residual that is left: ‖Au − b‖ / σ_min.
    left = np.linalg.norm(trial.u @ trial.matrix.T - trial.b, axis=1).max()
    off_the_row_space = np.sqrt(trial.n) * float(trial.result.stationarity.max())
    rounding = trial.rounding(trial.cond)  # of computing the residual itself, here and in numpy's answer
    assert trial.error <= left / trial.smallest + off_the_row_space + rounding
    assert left <= np.sqrt(trial.m) * trial.project.tolerance


@pytest.mark.parametrize("cond", [1.0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("seed", range(3))
def test_repeated_solves_reach_the_rounding_of_the_condition_itself(cond: float, seed: int):
    # Asked for more than rounding can give, the solves go on until they lose eps·cond(A) instead of eps·cond(AAᵀ).
    trial = Trial(conditioned(9, 23, cond, seed), rank=9, seed=seed, tolerance=1e-300)
    assert trial.error <= trial.rounding(trial.cond)


@pytest.mark.parametrize("seed", range(6))
def test_sparse_rows_agree_with_numpy(seed: int):
    rng = np.random.default_rng(seed)
    matrix = np.where(rng.random((30, 80)) < 0.08, rng.normal(size=(30, 80)), 0.0)
    matrix[np.arange(30), rng.permutation(80)[:30]] += 3.0
    assert_nearest(Trial(matrix, rank=30, seed=seed, sparse=True))
    assert_nearest(Trial(with_repeats(matrix), rank=30, seed=seed, sparse=True))


@pytest.mark.parametrize("scale", [1e-6, 1e4])
def test_rows_of_other_units_give_the_same_field(scale: float):
    matrix = conditioned(5, 12, 10.0, seed=6)
    plain, scaled = Trial(matrix, rank=5, seed=6), Trial(matrix * scale, rank=5, seed=6)
    assert_nearest(scaled)
    assert float(np.abs(plain.u - scaled.u).max()) <= 2 * plain.rounding(plain.cond**2)


def test_rows_of_very_different_units_are_not_taken_for_redundant():
    matrix = np.random.default_rng(7).normal(size=(9, 23)) * np.geomspace(1.0, 1e-7, 9)[:, None]
    trial = Trial(matrix, rank=9, seed=7)
    assert len(trial.project.structure.presolve.redundant) == 0
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    assert trial.error <= trial.rounding(np.linalg.cond(unit) ** 2)


@pytest.mark.parametrize(("m", "n"), [(12, 12), (20, 12), (40, 3)])
def test_as_many_rows_as_unknowns_or_more_give_the_one_solution(m: int, n: int):
    trial = Trial(np.random.default_rng(8).normal(size=(m, n)), rank=n, seed=8)
    assert_nearest(trial)
    assert float(np.abs(trial.u - trial.target).max()) <= trial.rounding(trial.cond**2)
    assert len(trial.project.structure.presolve.redundant) == m - n


def test_divergence_free_fields_of_two_channels_agree_with_numpy():
    shape = (2, 4, 5)  # periodic: the divergences add up to zero, so one row is redundant

    def divergence(u: torch.Tensor, p: dict[str, torch.Tensor]) -> torch.Tensor:
        return u[0].roll(-1, 0) - u[0] + u[1].roll(-1, 1) - u[1]

    project = Projector([Equality("divergence", divergence)], shape)
    u_hat = torch.from_numpy(np.random.default_rng(9).normal(size=(3, *shape)))
    result = project(u_hat)
    matrix = torch.func.jacrev(lambda u: divergence(u, {}))(u_hat[0]).reshape(20, 40).numpy()
    flat = u_hat.reshape(3, 40).numpy()
    nearest = flat - flat @ matrix.T @ np.linalg.pinv(matrix).T
    singular = np.linalg.svd(matrix, compute_uv=False)
    bound = 60 * EPS * (singular[0] / singular[18]) ** 2 * np.abs(flat).max()
    assert float(np.abs(result.u.reshape(3, 40).numpy() - nearest).max()) <= bound
    assert len(project.structure.presolve.redundant) == 1
    assert result.converged.all()


# Small whole-number systems of any rank: hypothesis looks for zero rows, zero columns, pins and repeats.

whole = hnp.arrays(
    np.int64, hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6), elements=st.integers(-3, 3)
)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(matrix=whole)
def test_any_small_system_agrees_with_numpy(matrix: Array):
    rank = int(np.linalg.matrix_rank(matrix))
    if rank == 0:  # nothing in the field could move such rows: refused when the projector is built
        with pytest.raises(LawError, match=r"^law '.*' expects a residual that changes with u"):
            Trial(matrix.astype(np.float64), rank=rank, seed=10)
        return
    trial = Trial(matrix.astype(np.float64), rank=rank, seed=10)
    assert_nearest(trial)
    presolve = trial.project.structure.presolve
    assert len(presolve.pins) + len(presolve.kept) == rank
    assert len(presolve.redundant) == len(matrix) - rank


# What a projection is.


@pytest.mark.parametrize("cond", [1.0, 3e3])
def test_projecting_again_changes_nothing(cond: float):
    trial = Trial(with_repeats(conditioned(9, 23, cond, seed=11)), rank=9, seed=11)
    again = trial.project(trial.result.u, {"b": torch.from_numpy(trial.b)})
    assert again.converged.all()
    assert float((again.u - trial.result.u).abs().max()) <= trial.rounding(trial.cond**2)


@pytest.mark.parametrize("cond", [1.0, 3e3])
def test_a_field_that_obeys_comes_back_as_it_was(cond: float):
    trial = Trial(with_repeats(conditioned(9, 23, cond, seed=12)), rank=9, seed=12)
    lawful = torch.from_numpy(trial.target)
    result = trial.project(lawful, {"b": torch.from_numpy(trial.b)})
    assert result.converged.all()
    # The residual of the target is rounding; pinv(A) makes at most cond(A) of it.
    assert float((result.u - lawful).abs().max()) <= trial.rounding(trial.cond)


def test_no_other_lawful_field_is_nearer():
    trial = Trial(conditioned(9, 23, 10.0, seed=13), rank=9, seed=13)
    _, _, right = np.linalg.svd(trial.matrix)
    free = right[9:]  # directions that keep A u
    rng = np.random.default_rng(13)
    for size in (1e-3, 1.0):
        other = trial.u + size * rng.normal(size=(len(trial.u), len(free))) @ free
        here = ((trial.u - trial.u_hat) ** 2).sum(1)
        there = ((other - trial.u_hat) ** 2).sum(1)
        assert (there > here).all()
        # Pythagoras: the step is at right angles to every lawful direction.
        gap = np.abs(there - here - ((other - trial.u) ** 2).sum(1))
        assert float(gap.max()) <= trial.rounding(trial.cond**2) * max(1.0, float(there.max()))
