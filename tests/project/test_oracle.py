"""Laws that bring their own derivatives: the same answers and certificates as the same law in torch, alone and among others."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import coo_array, tril
from tests.solve.hidden import assert_rounded
from torch import Tensor

import snapfm
from snapfm import Bounds, Equality, Inequality, Oracle, Projector, Status
from snapfm.errors import LawError, ShapeError, UnsupportedLaw
from snapfm.kernels.operations import LANES
from snapfm.kernels.threads import workers
from snapfm.laws import Law

N = 6
PARAMS = {"r": torch.ones(1, dtype=torch.float64)}
ROWS = np.array([*[0] * N, 1, 1, 1])
COLUMNS = np.array([*range(N), 0, 1, 2])
PAIRS = ([*range(N), 1, 2, 2], [*range(N), 0, 0, 1])  # lower triangle of both Hessians together


def value(u: Any, p: Any) -> Any:
    return np.array([u @ u - p["r"], u[0] * u[1] * u[2] - 0.1])


def slopes(u: Any, p: Any) -> Any:
    return np.concatenate([2 * u, [u[1] * u[2], u[0] * u[2], u[0] * u[1]]])


def curvature(u: Any, p: Any, y: Any) -> Any:
    return np.concatenate([np.full(N, 2 * y[0]), y[1] * u[[2, 1, 0]]])


def dense(u: Any, p: Any) -> Any:
    return coo_array((slopes(u, p), (ROWS, COLUMNS)), shape=(2, N)).toarray()


def sparse(u: Any, p: Any) -> Any:
    return coo_array((slopes(u, p), (ROWS, COLUMNS)), shape=(2, N))


def dense_curvature(u: Any, p: Any, y: Any) -> Any:
    lower = coo_array((curvature(u, p, y), PAIRS), shape=(N, N)).toarray()
    return lower + np.tril(lower, -1).T


def sparse_curvature(u: Any, p: Any, y: Any) -> Any:
    return tril(coo_array(dense_curvature(u, p, y)))


def in_torch(u: Tensor, p: Any) -> Tensor:
    return torch.stack([u @ u - p["r"], u[0] * u[1] * u[2] - 0.1])


def oracle(**more: Any) -> Oracle:
    asked = {"pattern": (ROWS, COLUMNS), "hessian_pattern": PAIRS} | more
    return Oracle("sim", value, slopes, curvature, **asked)


OTHERS = [
    Equality("sum", lambda u, p: u.sum() - 1.0),
    Inequality("order", lambda u, p: u[0] - u[1].exp()),
    Bounds(lower=-1.0),
]


def inputs(count: int, seed: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    u_hat = 0.5 + 0.4 * torch.randn(count, N, generator=generator, dtype=torch.float64)
    return u_hat, {"r": 1.5 + torch.rand(count, generator=generator, dtype=torch.float64)}


def beside(project: Projector, count: int, params: dict[str, Tensor], seed: int = 0) -> Tensor:
    """Return inputs beside fields that obey: there the nearest one is unique, whatever way leads to it."""
    size = torch.tensor([0.3, 1.0, 3.0], dtype=torch.float64).repeat(count)[:count, None]
    obeying = project(size * inputs(count, seed)[0], params).raise_for_status().u
    return obeying + 0.05 * torch.randn(count, N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


WAYS: dict[str, Callable[[], Oracle]] = {
    "values on patterns": oracle,
    "dense": lambda: Oracle("sim", value, dense, dense_curvature),
    "sparse": lambda: Oracle("sim", value, sparse, sparse_curvature),
    "dense on patterns": lambda: Oracle("sim", value, dense, dense_curvature, pattern=(ROWS, COLUMNS), hessian_pattern=PAIRS),
    "both triangles": lambda: Oracle(
        "sim", value, sparse, lambda u, p, y: dense_curvature(u, p, y)[[*PAIRS[0], 0, 0, 1], [*PAIRS[1], 1, 2, 2]],
        pattern=(ROWS, COLUMNS), hessian_pattern=([*PAIRS[0], 0, 0, 1], [*PAIRS[1], 1, 2, 2]),
    ),
    "torch": lambda: Oracle(
        "sim", in_torch, lambda u, p: torch.func.jacrev(in_torch)(u, p),
        lambda u, p, y: torch.func.hessian(lambda x: (y * in_torch(x, p)).sum())(u), arrays="torch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_answers_and_certificates_are_those_of_the_law_in_torch(way: str):
    mine = Projector([WAYS[way](), *OTHERS], (N,), PARAMS)
    theirs = Projector([Equality("sim", in_torch), *OTHERS], (N,), PARAMS)
    params = inputs(9)[1]
    u_hat = beside(theirs, 9, params)
    one, other = mine(u_hat, params), theirs(u_hat, params)
    assert one.converged.all()
    assert torch.equal(one.second_order, other.second_order)
    assert torch.allclose(one.u, other.u, rtol=0, atol=1e-8)
    assert torch.allclose(one.multipliers["sim"], other.multipliers["sim"], rtol=0, atol=1e-6)
    assert float(one.violation.max()) <= 1e-8
    assert float(one.stationarity.max()) <= 1e-6
    assert set(one.by_law) == {"sim", "sum", "order", "bounds"}


def test_structure_says_where_derivatives_come_from():
    told = str(Projector([oracle(), *OTHERS], (N,), PARAMS).structure)
    assert "oracle: law 'sim' is evaluated by functions of its own" in told
    assert "slow path" not in told
    assert "given, no Hessian" in str(Projector([Oracle("sim", value, dense)], (N,), PARAMS).structure)


def test_limits_on_both_sides_are_inequalities():
    """1 ≤ |u|² ≤ 2 and u₀u₁u₂ = 0.1, against the same rows in torch."""
    radius = {"r": torch.zeros(1, dtype=torch.float64)}
    mine = Projector([oracle(lower=[1.0, 0.0], upper=[2.0, 0.0])], (N,), radius)
    theirs = Projector(
        [
            Inequality("upper", lambda u, p: u @ u - 2.0),
            Inequality("lower", lambda u, p: 1.0 - u @ u),
            Equality("product", lambda u, p: u[0] * u[1] * u[2] - 0.1),
        ],
        (N,),
    )
    u_hat = torch.cat([0.95 * beside(theirs, 9, {}), 1.05 * beside(theirs, 9, {})])  # inside both limits, and outside
    one, other = mine(u_hat, radius), theirs(u_hat)
    assert one.converged.all()
    assert torch.allclose(one.u, other.u, rtol=0, atol=1e-8)
    assert mine(inputs(1)[0] * torch.tensor([0.3, 1.0, 3.0], dtype=torch.float64)[:, None], radius).converged.all()
    names = ("upper", "product", "lower")  # the order of rows
    assert torch.allclose(
        one.multipliers["sim"], torch.cat([other.multipliers[name] for name in names], dim=1), atol=1e-6
    )
    assert (one.multipliers["sim"][:, [0, 2]].amax(0) > 0).all()  # each limit holds a sample back
    assert mine.structure.laws[0].kind == "mixed"
    assert torch.allclose(mine.check(u_hat, radius).violation, theirs.check(u_hat).violation)


def test_without_a_hessian_curvature_is_not_known():
    project = Projector([Oracle("ball", lambda u, p: u @ u - p["r"], lambda u, p: 2 * u[None])], (N,), PARAMS)
    u_hat, params = inputs(4)
    result = project(u_hat, params).raise_for_status()
    assert (result.second_order == -1).all()
    exact = u_hat * (params["r"].sqrt() / u_hat.norm(dim=1))[:, None]
    assert torch.allclose(result.u, exact, rtol=0, atol=1e-6)
    with pytest.raises(UnsupportedLaw, match="Oracle 'ball' has none"):
        project(u_hat.requires_grad_(), params).u.sum().backward()


def test_an_affine_value_needs_no_hessian():
    matrix = np.arange(2.0 * N).reshape(2, N) % 5
    law = Oracle("lines", lambda u, p: matrix @ u - 1.0, lambda u, p: matrix, hessian_pattern=([], []))
    project = Projector([law], (N,))
    u_hat = inputs(3)[0].requires_grad_()
    result = project(u_hat).raise_for_status()
    exact = (
        u_hat.detach().numpy() - (u_hat.detach().numpy() @ matrix.T - 1.0) @ np.linalg.inv(matrix @ matrix.T) @ matrix
    )
    assert np.allclose(result.u.detach().numpy(), exact, rtol=0, atol=1e-10)
    assert (result.second_order == 1).all()
    result.u[:, 0].sum().backward()
    assert np.allclose(
        u_hat.grad.numpy(), (np.eye(N) - matrix.T @ np.linalg.inv(matrix @ matrix.T) @ matrix)[0], atol=1e-10
    )


def test_a_warm_start_at_the_answer_takes_one_iteration():
    project, (u_hat, params) = Projector([oracle(), *OTHERS], (N,), PARAMS), inputs(5)
    cold = project(u_hat, params).raise_for_status()
    warm = project(u_hat, params, warm=cold).raise_for_status()
    assert int(warm.iterations.max()) == 1 < int(cold.iterations.max())
    assert torch.allclose(warm.u, cold.u, rtol=0, atol=1e-9)


def test_gradients_are_those_of_the_law_in_torch():
    params = inputs(5)[1]
    u_hat = beside(Projector([Equality("sim", in_torch), *OTHERS], (N,), PARAMS), 5, params)
    found = []
    for law in (oracle(), Equality("sim", in_torch)):
        field = u_hat.clone().requires_grad_()
        Projector([law, *OTHERS], (N,), PARAMS)(field, params).u.pow(3).sum().backward()
        found.append(field.grad)
    assert torch.allclose(*found, rtol=0, atol=1e-7)


def test_a_gradient_in_params_is_refused_where_an_oracle_may_read_them():
    extra = PARAMS | {"m": torch.ones(1, dtype=torch.float64)}
    total = Equality("sum", lambda u, p: u.sum() - p["m"])
    u_hat, params = inputs(3)
    for law, allowed in ((oracle(), False), (oracle(reads=["r"]), True)):
        m = torch.full((3,), 1.1, dtype=torch.float64, requires_grad=True)
        u = Projector([law, total], (N,), extra)(u_hat, params | {"m": m}).raise_for_status().u
        if not allowed:
            with pytest.raises(UnsupportedLaw, match="Oracle 'sim' may read them"):
                u.sum().backward()
            continue
        (u[:, 0]).sum().backward()
        shifted = Projector([law, total], (N,), extra)(u_hat, params | {"m": m.detach() + 1e-6}).u
        assert torch.allclose(m.grad, (shifted[:, 0] - u[:, 0].detach()) / 1e-6, atol=1e-4)


def test_the_excess_is_differentiable_twice():
    project = Projector([oracle()], (N,), PARAMS)
    u, params = inputs(2)
    assert torch.autograd.gradcheck(lambda x: project.excess(x, params), (u.requires_grad_(),))
    assert torch.autograd.gradgradcheck(lambda x: project.excess(x, params), (u,))


@pytest.mark.parametrize("others", [(), OTHERS], ids=["alone", "beside other laws"])
def test_a_batch_gives_the_answer_of_each_sample_alone(others: tuple[Law, ...]):
    """An Oracle is evaluated sample by sample: bit for bit, if torch evaluates no other law."""
    project, (u_hat, params) = Projector([oracle(), *others], (N,), PARAMS), inputs(11)
    whole = project(u_hat, params)
    for i in (0, 7, 10):
        alone = project(u_hat[i : i + 1], {"r": params["r"][i : i + 1]})
        assert_rounded(whole.select(torch.tensor([i])), alone)
        if not others:
            assert torch.equal(alone.u[0], whole.u[i])
            assert torch.equal(alone.multipliers["sim"][0], whole.multipliers["sim"][i])


class SimulatorDied(Exception):
    pass


@pytest.mark.parametrize("what", ["value", "jacobian", "hessian"])
@pytest.mark.parametrize("how", ["raises", "nan"])
def test_a_sample_whose_function_fails_harms_no_other(what: str, how: str):
    def fails(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(u: Any, p: Any, *more: Any) -> Any:
            if p["r"] < 0:
                if how == "raises":
                    raise SimulatorDied
                return function(u, p, *more) * np.nan
            return function(u, p, *more)

        return call

    functions = {"value": value, "jacobian": slopes, "hessian": curvature}
    functions[what] = fails(functions[what])
    law = Oracle("sim", *functions.values(), pattern=(ROWS, COLUMNS), hessian_pattern=PAIRS)
    project, clean = Projector([law, *OTHERS], (N,), PARAMS), Projector([oracle(), *OTHERS], (N,), PARAMS)
    u_hat, params = inputs(5)
    expected = clean(u_hat, params)
    params["r"][2] *= -1
    result = project(u_hat, params)
    kept = [0, 1, 3, 4]
    assert torch.equal(result.u[kept], expected.u[kept])
    assert result.converged[kept].all()
    if what == "hessian":  # it obeys at no point, and nothing says it could not
        assert int(result.status[2]) != Status.CONVERGED
    else:
        assert int(result.status[2]) == Status.NONFINITE


def test_a_projector_with_an_oracle_pickles_and_serves_threads():
    project, (u_hat, params) = (
        Projector([Oracle("sim", value, dense, dense_curvature), Bounds(lower=-1.0)], (N,), PARAMS),
        inputs(3),
    )
    expected = project(u_hat, params).u
    other = pickle.loads(pickle.dumps(project))
    assert torch.equal(other(u_hat, params).u, expected)
    found: list[Tensor] = []
    threads = [threading.Thread(target=lambda: found.append(project(u_hat, params).u)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(torch.equal(one, expected) for one in found)


@pytest.mark.parametrize("threads", [False, True])
def test_functions_run_one_at_a_time_unless_threads_are_allowed(threads: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("snapfm.solve.pieces.workers", lambda: 3)
    callers = set()

    def watched(u: Any, p: Any) -> Any:
        callers.add(threading.get_ident())
        return value(u, p)

    law = Oracle("sim", watched, slopes, curvature, pattern=(ROWS, COLUMNS), hessian_pattern=PAIRS, threads=threads)
    project, (u_hat, params) = Projector([law], (N,), PARAMS), inputs(40)
    project(u_hat, params)
    project.method.executor._pace = 1.0  # as if samples took long
    callers.clear()
    project(u_hat, params)
    assert (len(callers - {threading.get_ident()}) > 1) == threads


def test_a_budget_ends_a_slow_simulator():
    import time

    calls: list[None] = []

    def slow(u: Any, p: Any) -> Any:
        calls.append(None)
        time.sleep(0.02)
        return value(u, p)

    law = Oracle("sim", slow, slopes, curvature, pattern=(ROWS, COLUMNS), hessian_pattern=PAIRS)
    project, (u_hat, params) = Projector([law, *OTHERS], (N,), PARAMS), inputs(60)
    project(u_hat[:1], {"r": params["r"][:1]})  # compiled before
    calls.clear()
    result = project(u_hat, params, seconds=0.5)
    # Counted, as a busy machine makes all times longer: what fits into half a second, the tile it was at, and the judge's.
    assert len(calls) <= workers() * (0.5 / 0.02 + LANES) + len(u_hat)
    assert (result.status == Status.ITERATION_LIMIT).any()
    assert (project(u_hat[:2], {"r": params["r"][:2]}, limit=1).status == Status.ITERATION_LIMIT).all()


def test_infeasible_is_not_claimed_without_a_proof():
    """|h| has a local minimum near 1 and a root at 50: a row that cannot be looked into proves nothing."""
    law = Oracle(
        "far", lambda u, p: ((u - 1) ** 2 + 0.1) * (50 - u), lambda u, p: 2 * (u - 1) * (50 - u) - (u - 1) ** 2 - 0.1,
        lambda u, p, y: y * (2 * (50 - u) - 4 * (u - 1)), pattern=([0], [0]), hessian_pattern=([0], [0]),
    )  # fmt: skip
    result = Projector([law, Bounds(lower=0.0, upper=100.0)], (1,))(torch.ones(9, 1, dtype=torch.float64))
    assert Status.INFEASIBLE not in result.status.tolist()


def wrong_entry(u: Any, p: Any) -> Any:
    return slopes(u, p) * np.where(np.arange(N + 3) == 7, 1.01, 1.0)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: oracle(pattern=(ROWS[:-1], COLUMNS[:-1])), ("expects (8,) values", "got shape (9,)", "order of pattern")),
        (lambda: Oracle("sim", value, lambda u, p: slopes(u, p)[:-1], pattern=(ROWS[:-1], COLUMNS[:-1])),
         ("derivative of the function", "row 1", "unknown 2", "Correct")),
        (lambda: Oracle("sim", value, dense, pattern=(ROWS[:-1], COLUMNS[:-1])), ("every entry", "(1, 2) is not", "Add it")),
        (lambda: Oracle("sim", value, wrong_entry, pattern=(ROWS, COLUMNS)), ("row 1", "unknown 1")),
        (lambda: Oracle("sim", value, dense, lambda u, p, y: 1.5 * dense_curvature(u, p, y)), ("hessian", "derivative")),
        (lambda: oracle(hessian_pattern=(PAIRS[0][:-1], PAIRS[1][:-1])), ("hessian expects (8,) values", "got shape (9,)")),
        (lambda: Oracle("sim", value, dense, dense_curvature, hessian_pattern=(range(N), range(N))), ("with every",)),
        (lambda: Oracle("sim", value, lambda u, p: dense(u, p).T), ("a matrix (2, 6)", "got shape (6, 2)", "Return")),
        (lambda: Oracle("sim", value, lambda u, p: np.zeros(5)), ("jacobian expects a matrix (2, 6)", "got shape (5,)")),
        (lambda: Oracle("sim", lambda u, p: 1j * u, dense), ("value", "real numbers")),
        (lambda: Oracle("sim", lambda u, p: u[99], dense), ("value expects to run on one field", "IndexError", "Try it by hand")),
        (lambda: Oracle("sim", lambda u, p: p["q"], dense), ("KeyError", "['r']")),
        (lambda: Oracle("sim", lambda u, p: np.log(u - 1.0), dense), ("value expects", "finite", "6 others of 6", "example=")),
        (lambda: Oracle("sim", value, lambda u, p: dense(u, p) * np.nan), ("jacobian expects", "finite", "12 others")),
        (lambda: oracle(example=np.ones(4)), ("example=…) expects ONE field of shape (6,)", "got (4,)")),
        (lambda: oracle(lower=[0, 0, 0], upper=1.0), ("broadcast to the value", "(2,)", "(3,)")),
        (lambda: oracle(pattern=(ROWS, COLUMNS + 9)), ("within (2, 6)", "from 0")),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_mistakes_are_told_when_the_projector_is_made(make: Callable[[], Oracle], told: tuple[str, ...]):
    with pytest.raises((LawError, ShapeError)) as caught:
        Projector([make()], (N,), PARAMS)
    for part in told:
        assert part in str(caught.value)


def test_an_example_of_its_domain_helps():
    law = Oracle("log", lambda u, p: np.log(u - 1.0), lambda u, p: np.diag(1 / (u - 1.0)), example=[2.0, 3.0])
    result = Projector([law], (2,))(torch.tensor([[2.5, 1.9]], dtype=torch.float64)).raise_for_status()
    assert torch.allclose(result.u, torch.full((1, 2), 2.0, dtype=torch.float64), atol=1e-8)


def test_entries_outside_the_pattern_are_told_when_they_appear():
    """A pattern that holds at the example and nowhere else: a matrix shows it, and the call says so."""
    law = Oracle(
        "kink", lambda u, p: np.array([u[0] + max(0.0, u[1] - 2.0)]), lambda u, p: np.array([[1.0, float(u[1] > 2.0)]]),
        pattern=([0], [0]),
    )  # fmt: skip
    project = Projector([law], (2,))
    project(torch.ones(1, 2, dtype=torch.float64)).raise_for_status()
    with pytest.raises(LawError, match=r"\(0, 1\) is not in it"):
        project(torch.full((1, 2), 3.0, dtype=torch.float64))


def test_a_law_can_be_a_simulator_of_a_field_of_any_shape():
    """A field (2, 3) and values (2,): everything is flattened in the order of the arrays."""
    law = Oracle(
        "means", lambda u, p: u.mean(1), lambda u, p: np.kron(np.eye(2), np.full(3, 1 / 3)), hessian_pattern=([], [])
    )
    result = Projector([law], (2, 3))(torch.ones(1, 2, 3, dtype=torch.float64)).raise_for_status()
    assert torch.allclose(result.u, torch.zeros(1, 2, 3, dtype=torch.float64), atol=1e-12)


def test_sampling_and_scores_know_oracles():
    from snapfm.metrics.scores import constraint_errors

    law = oracle(lower=[1.0, 0.0], upper=[2.0, 0.0])
    u, params = inputs(3)
    (error,) = constraint_errors([law], u, params)
    worst = Projector([law], (N,), PARAMS).check(u, params).violation
    assert error.worst_row == pytest.approx(float(worst.max()))
    project = Projector([oracle()], (N,), PARAMS)
    out = snapfm.sample(lambda x, tau: -x, project, params, count=3, steps=2)
    assert out.projection.converged.all()


def test_a_law_without_a_value_outside_the_bounds_begins_inside():
    """√u₀ + √u₁ = 1 with u ≥ 0, from inputs where the root has no value; and one that has none anywhere."""
    law = Oracle(
        "roots", lambda u, p: np.array([np.sqrt(u).sum() - p["r"]]), lambda u, p: 0.5 / np.sqrt(u)[None],
        lambda u, p, y: np.diag(-0.25 * y[0] * u**-1.5),
    )  # fmt: skip
    project = Projector([law, Bounds(lower=1e-6)], (2,), PARAMS)
    u_hat = torch.tensor([[-0.5, 0.7], [0.3, 0.4], [-0.5, 0.7]], dtype=torch.float64)
    params = {"r": torch.tensor([1.0, 1.0, torch.nan], dtype=torch.float64)}
    result = project(u_hat, params)
    assert result.status.tolist() == [Status.CONVERGED, Status.CONVERGED, Status.NONFINITE]
    assert float(result.violation[:2].max()) <= 1e-8


@pytest.mark.parametrize("coupled", [False, True])
def test_bounds_of_mixed_sizes_are_found_active(coupled: bool):
    """A convex problem with unknowns of size 1e5 and others between 0 and 1, which rows join or not: the fine barrier's class."""
    rng = np.random.default_rng(3)
    inside = np.concatenate([rng.uniform(0, 3e4, 6), rng.uniform(0, 1, 10)])
    matrix = np.zeros((5, 16))
    matrix[0, :4] = matrix[1, 2:6] = 1.0  # two sums of large unknowns, three of small ones
    matrix[2, 6:10] = matrix[3, 9:13] = matrix[4, 12:] = 1.0
    if coupled:
        matrix = np.concatenate([np.eye(6, 16) - 3e4 * np.eye(6, 16, 6), matrix[2:]])
    law = Oracle("sums", lambda u, p: matrix @ (u - inside), lambda u, p: matrix, hessian_pattern=([], []))
    upper = torch.tensor([1e5] * 6 + [1.0] * 10, dtype=torch.float64)
    project = Projector([law, Bounds(lower=0.0, upper=upper)], (16,))
    u_hat = torch.from_numpy(inside + rng.standard_normal((8, 16)) * np.array([3e5] * 6 + [3.0] * 10))
    result = project(u_hat)
    assert result.converged.all(), result.status


def test_an_isolated_point_with_almost_dependent_rows_is_certified():
    """u₀² = 0 and u₁ = 0.5: the only point has no slope in u₀, so multipliers grow without bound towards it."""
    law = Oracle(
        "point", lambda u, p: np.array([u[0] ** 2 + u[0] * (u[1] - 0.5), u[1] - 0.5]),
        lambda u, p: np.array([[2 * u[0] + u[1] - 0.5, u[0]], [0.0, 1.0]]),
        lambda u, p, y: y[0] * np.array([[2.0, 1.0], [1.0, 0.0]]),
    )  # fmt: skip
    project, u_hat = Projector([law], (2,)), torch.tensor([[1.0, 1.0], [0.3, 0.2], [1e9, -1e9]], dtype=torch.float64)
    result = project(u_hat)
    assert float(result.violation[:2].max()) <= 1e-8
    assert result.converged[:2].all(), result.status
    for i in range(3):  # whatever becomes of the far one
        assert torch.equal(project(u_hat[i : i + 1]).u[0], result.u[i])


def counted(*functions: Callable[..., Any]) -> tuple[list[Callable[..., Any]], list[int]]:
    """Return functions that count their calls."""
    calls = [0] * len(functions)

    def counting(number: int) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            calls[number] += 1
            return functions[number](*given)

        return call

    return [counting(number) for number in range(len(functions))], calls


def test_an_affine_oracle_with_bounds_is_solved_with_two_evaluations():
    """At the input and at the answer; the judge evaluates the answer once more."""
    rows = np.array([[1.0, 2.0, -1.0, 0.5], [0.0, 1.0, 1.0, 1.0]])
    (values, jacobian), calls = counted(lambda u, p: rows @ u - 1.0, lambda u, p: rows)
    law = Oracle("affine", values, jacobian, hessian_pattern=([], []))
    project = Projector([law, Bounds(0.0, 0.6)], (4,))
    calls[:] = 0, 0
    found = project(torch.tensor([[3.0, -2.0, 1.0, 4.0]], dtype=torch.float64)).raise_for_status()
    assert int(found.iterations) == 1
    assert calls[0] <= 3
    assert calls[1] <= 2


def test_a_field_is_evaluated_once_and_without_multipliers_no_hessian_is_asked_for():
    seen: list[bytes] = []

    def remembered(u: Any, p: Any) -> Any:
        seen.append(u.tobytes())
        return slopes(u, p)

    (bends,), calls = counted(curvature)
    law = Oracle("sim", value, remembered, bends, pattern=(ROWS, COLUMNS), hessian_pattern=PAIRS)
    project = Projector([law], (N,), PARAMS)
    u_hat, params = inputs(1)
    seen.clear()
    calls[0] = 0
    found = project(u_hat, params).raise_for_status()
    assert int(found.iterations) > 1
    assert len(seen) == len(set(seen))
    obeying = found.u
    calls[0] = 0
    project(obeying, params).raise_for_status()  # multipliers are zero at a field that obeys
    assert calls[0] == 0


def test_no_thread_is_started_and_the_budget_holds(monkeypatch: pytest.MonkeyPatch):
    def slow(u: Any, p: Any) -> Any:
        time.sleep(0.02)
        return value(u, p) + 1e3  # cannot hold: |u|² = r − 1000

    project = Projector([Oracle("sim", slow, dense, dense_curvature)], (N,), PARAMS)
    u_hat, params = inputs(1)
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail("a thread was started"))
    project(u_hat, params, limit=1)  # compiles
    began = time.monotonic()
    assert int(project(u_hat, params, seconds=0.3).status) == Status.ITERATION_LIMIT
    assert time.monotonic() - began < 3.0


def test_control_c_inside_a_callback_ends_the_call_at_once():
    calls = -1000  # while it is prepared

    def interrupted(u: Any, p: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:  # of the call, not of preparing
            raise KeyboardInterrupt
        return value(u, p) + 1e3

    project = Projector([Oracle("sim", interrupted, dense, dense_curvature)], (N,), PARAMS)
    u_hat, params = inputs(1)
    calls = 0
    with pytest.raises(KeyboardInterrupt):
        project(u_hat, params)
    assert calls == 6
