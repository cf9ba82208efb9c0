"""The slow path under stress: many threads, a fork, Control-C, laws that raise or overflow, budgets, saddles."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.solve.hidden import assert_rounded, hidden, is_opaque, opaque
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Projector, Status
from snapfm.compile import CompiledLaws
from snapfm.laws import Law
from snapfm.solve.budget import Budget
from snapfm.solve.memory import Workspaces

SHAPE = (3, 5)
EYE = torch.eye(3, dtype=torch.float64)
EVIDENCE = ("u", "status", "violation", "stationarity", "iterations", "distance", "second_order")


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow(*laws: Law, shape: tuple[int, ...] = SHAPE, **more: object) -> Projector:
    project = Projector([opaque(law) for law in laws], shape, **more)
    assert is_opaque(project)
    return project


def small() -> Projector:
    law = Equality("law", lambda u, p: torch.cumprod(1.0 + 0.3 * u, 0)[-1] - p["v"])
    return slow(law, Bounds(lower=-2.0), params={"v": torch.ones(1, 5, dtype=torch.float64)})


def large() -> Projector:  # a sparse augmented matrix
    law = Equality("law", lambda u, p: torch.logsumexp(u, 0) - 3.0 - p["v"])
    return slow(law, shape=(80, 10), params={"v": torch.ones(1, 10, dtype=torch.float64)})


# One projector, many threads.


@pytest.mark.parametrize("make", [small, large])
def test_threads_get_the_bits_and_gradients_of_the_same_call_made_alone(make: Callable[[], Projector]):
    project, rows = make(), 5 if make is small else 10
    inputs = [
        (randn(1 + k % 2, *project.shape, seed=k), 1.0 + 0.1 * randn(1 + k % 2, rows, seed=20 + k)) for k in range(8)
    ]

    def call(number: int) -> list[Tensor]:
        u_hat, v = (value.clone().requires_grad_() for value in inputs[number])
        result = project(u_hat, {"v": v})
        result.u.pow(3).sum().backward()
        return [result.u.detach(), result.violation, result.multipliers["law"], u_hat.grad, v.grad]

    alone = [call(number) for number in range(8)]
    project = make()  # one that has prepared nothing yet
    gate, wrong = threading.Barrier(8), []

    def work(number: int) -> None:
        try:
            gate.wait()
            found = call(number)
            wrong.extend(number for one, other in zip(found, alone[number]) if not torch.equal(one, other))
        except BaseException as failure:
            wrong.append(failure)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("make", [small, large])
def test_a_child_after_fork_gets_the_same_bits_and_gradients(make: Callable[[], Projector]):
    project = make()
    params = {"v": torch.ones(1, 5 if make is small else 10, dtype=torch.float64)}

    def bits() -> bytes:
        u_hat = randn(2, *project.shape).requires_grad_()
        u = project(u_hat, params).u
        u.pow(2).sum().backward()
        return u.detach().numpy().tobytes()[:512] + u_hat.grad.numpy().tobytes()[:512]

    expected = bits()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, bits())
        finally:
            os._exit(0)
    os.close(writing)
    ready = select.select([reading], [], [], 60.0)[0]
    if not ready:
        os.kill(child, 9)
    found = os.read(reading, 2 * len(expected)) if ready else b""
    os.waitpid(child, 0)
    os.close(reading)
    assert found == expected


def test_a_call_that_is_interrupted_leaves_the_projector_as_it_was(monkeypatch: pytest.MonkeyPatch):
    project, u_hat, params = small(), randn(3, *SHAPE), {"v": torch.ones(1, 5, dtype=torch.float64)}
    before, calls = project(u_hat, params), []

    def interrupted(self: CompiledLaws, u: Tensor, params: dict[str, Tensor], multipliers: Tensor) -> np.ndarray:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return hessian(self, u, params, multipliers)

    with monkeypatch.context() as patch:
        hessian = CompiledLaws.hessian
        patch.setattr(CompiledLaws, "hessian", interrupted)
        with pytest.raises(KeyboardInterrupt):
            project(u_hat, params)
    after = project(u_hat, params)
    assert all(torch.equal(getattr(before, name), getattr(after, name)) for name in EVIDENCE)


def test_a_workspace_is_lent_to_one_call_at_a_time_and_dropped_if_it_raises():
    made: list[int] = []
    spaces = Workspaces(lambda: made.append(len(made)) or len(made) - 1)
    with spaces.lend() as one, spaces.lend() as other:
        assert (one, other) == (0, 1)
    with spaces.lend() as again:
        assert again == 0
    with pytest.raises(KeyError), spaces.lend() as lost:
        raise KeyError
    with spaces.lend() as next_one, spaces.lend() as new:
        assert lost not in (next_one, new)


# Laws that raise, and numbers beyond the largest.

RAISING: dict[str, tuple[Callable[..., Tensor], Callable[[Tensor], Tensor]]] = {
    "inverse": (lambda u, p: torch.linalg.inv(u)[0] - 0.3, lambda u: u.fill_(1.0)),
    "cholesky": (lambda u, p: torch.linalg.cholesky(u + u.T + 2 * EYE)[0] - 2.0 * EYE[0], lambda u: u.fill_(-5.0)),
    "solve": (lambda u, p: torch.linalg.solve(u, EYE[0])[0] - 0.3, lambda u: u.fill_(1.0)),
}


@pytest.mark.filterwarnings("ignore::snapfm.errors.StructureWarning")
@pytest.mark.parametrize("name", RAISING)
def test_a_sample_whose_law_raises_is_nonfinite_and_harms_no_other(name: str):
    law, spoil = RAISING[name]
    project = slow(Equality("law", law), shape=(3, 3))
    u_hat = randn(4, 3, 3) + 3 * EYE
    spoilt, others = u_hat.clone(), [0, 2, 3]
    spoil(spoilt[1])
    lost = (Status.NONFINITE, Status.ITERATION_LIMIT)  # the latter if a start beside the input is cut short
    clean = project(u_hat, limit=30)
    for _ in range(2):
        result = project(spoilt, limit=30)
        assert result.status[1] in lost
        assert_rounded(result.select(torch.tensor(others)), clean.select(torch.tensor(others)))
    assert project(spoilt[1:2], limit=30).status[0] in lost
    assert project.check(spoilt).violation.isnan().tolist() == [False, True, False, False]
    grown = []
    for batch in (u_hat, spoilt):
        leaf = batch.clone().requires_grad_()
        project(leaf, limit=30).u[others].square().sum().backward()
        grown.append(leaf.grad[others])
    assert torch.allclose(grown[0], grown[1], rtol=1e-8, atol=1e-8)


@pytest.mark.filterwarnings("ignore::snapfm.errors.StructureWarning")
@pytest.mark.parametrize(
    "law",
    [
        lambda u, p: (torch.linalg.inv(p["a"]) @ u)[0].square() - 0.4,
        lambda u, p: torch.erf(torch.linalg.inv(p["a"]) @ hidden(u))[0] - 0.4,
        lambda u, p: torch.linalg.inv(p["a"])[0] - u[0],
    ],
    ids=["curved", "hidden", "affine"],
)
def test_params_for_which_a_law_raises_are_one_samples_trouble(law: Callable[..., Tensor]):
    a = randn(3, 3, 3) + 3 * EYE
    project = Projector([Equality("law", law)], (3, 3), {"a": a[:1]})
    u_hat, spoilt = 0.5 * randn(3, 3, 3, seed=1), a.clone()
    spoilt[1] = 1.0
    clean, result = project(u_hat, {"a": a}), project(u_hat, {"a": spoilt})
    assert result.status.tolist() == [Status.CONVERGED, Status.NONFINITE, Status.CONVERGED]
    kept = torch.tensor([0, 2])
    assert_rounded(result.select(kept), clean.select(kept))
    assert is_opaque(project) or torch.equal(result.u[kept], clean.u[kept])


def test_a_lost_sample_does_not_reach_the_gradient_of_shared_params():
    project = Projector(
        [Equality("law", lambda u, p: u.square().sum(0) - p["m"] ** 2)], (3, 4), {"m": torch.ones(1, 4)}
    )
    grown = []
    for lost in (False, True):
        u_hat, m = randn(3, 3, 4), torch.ones(1, 4, dtype=torch.float64, requires_grad=True)
        u_hat[1] = torch.nan if lost else u_hat[1]
        project(u_hat, {"m": m}).u[[0, 2]].pow(3).sum().backward()
        grown.append(m.grad)
    assert grown[1].isfinite().all()
    assert torch.equal(grown[0], grown[1])


@pytest.mark.parametrize(
    ("function", "size"),
    [
        (torch.exp2, 1e4), (torch.exp2, 1e300), (torch.expm1, 600.0), (torch.expm1, -1e4),
        (torch.sinh, -1e4), (torch.sinh, 1e300),
    ],
)  # fmt: skip
def test_laws_that_overflow_end_with_a_status(function: Callable[[Tensor], Tensor], size: float):
    project = slow(Equality("law", lambda u, p: function(u).sum(0) - 1.0))
    u_hat = randn(3, *SHAPE)
    calm = project(u_hat)
    u_hat[1] *= size
    result = project(u_hat, limit=60)
    assert result.status[1] != Status.CONVERGED or result.violation[1] <= project.tolerance
    assert torch.allclose(result.u[[0, 2]], calm.u[[0, 2]], rtol=1e-8, atol=1e-8)


# Budgets.


def test_no_sample_iterates_beyond_the_limit_restarts_and_restorations_included():
    impossible = slow(Equality("far", lambda u, p: torch.logsumexp(u, 0) - 9.0), Bounds(upper=1.0))
    assert (impossible(randn(2, *SHAPE), limit=50).iterations > 10).all()
    for limit in (1, 2, 7):
        result = impossible(randn(2, *SHAPE), limit=limit)
        assert (result.iterations == limit).all()
        assert (result.status == Status.ITERATION_LIMIT).all()
        assert result.u.isfinite().all()
        assert (result.u <= 1.0).all()


def test_a_sample_at_its_limit_is_no_worse_than_the_first_it_had():
    project = small()
    u_hat, params = randn(4, *SHAPE), {"v": 1.0 + 0.3 * randn(4, 5, seed=1)}
    begun = project.check(u_hat, params).violation
    for limit in (1, 2, 3, 4):
        assert (project(u_hat, params, limit=limit).violation <= begun).all()


def test_samples_not_begun_when_time_is_over_come_back_as_they_were():
    project, u_hat = small(), randn(5, *SHAPE)
    u_hat[3, 0, 0] = torch.nan
    params = {"v": torch.ones(1, 5, dtype=torch.float64)}
    result = project(u_hat, params, seconds=1e-9)
    assert result.status.tolist() == [Status.ITERATION_LIMIT] * 3 + [Status.NONFINITE, Status.ITERATION_LIMIT]
    assert result.iterations.tolist() == [0] * 5
    assert torch.equal(result.u.nan_to_num(), u_hat.nan_to_num())
    assert torch.equal(project.move(u_hat, params, seconds=1e-9).u.nan_to_num(), u_hat.nan_to_num())


def test_seconds_end_a_sample_that_goes_on_and_on():
    project = slow(Equality("least", lambda u, p: torch.sort(u, 0)[0][0] - 0.3))
    project(randn(1, *SHAPE), limit=30)  # compiles
    began = time.process_time()  # of this process alone: a machine that is busy elsewhere does not count
    result = project(randn(3, *SHAPE), seconds=0.3, limit=1_000_000)
    assert time.process_time() - began < 10.0  # a million iterations would take minutes
    assert result.status.tolist() == [Status.ITERATION_LIMIT] * 3
    assert (result.iterations > 0).all()


# Saddles.


def ellipse() -> Equality:
    return Equality("ellipse", lambda u, p: torch.square(u[0] / 2.0) + torch.square(u[1]) - 1.0)


def test_a_saddle_is_left():
    # From (1, 0) every step stays on the axis, and ends in (2, 0): stationary, but nearer fields lie to both sides.
    u_hat = torch.tensor([[1.0, 0.0], [1.9, 0.0], [0.3, 0.2]], dtype=torch.float64)
    result = slow(ellipse(), shape=(2,))(u_hat).raise_for_status()
    assert result.second_order.tolist() == [1, 1, 1]
    exact = torch.tensor([[4 / 3, 5**0.5 / 3], [2.0, 0.0]], dtype=torch.float64)
    assert torch.allclose(result.u[:2].abs(), exact, rtol=0, atol=1e-7)


def test_a_sample_that_stays_on_a_saddle_has_not_converged():
    project = slow(ellipse(), shape=(2,))
    u_hat, saddle = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    ended = [project(u_hat, limit=limit) for limit in range(1, 60, 3)]
    there = [result for result in ended if torch.allclose(result.u, saddle, rtol=0, atol=1e-7)]
    assert there  # some limits are enough to reach the saddle, and too few to leave it
    for result in there:
        assert result.status.tolist() in ([Status.STALLED], [Status.ITERATION_LIMIT])
        assert result.second_order.tolist() != [1] or result.violation > project.tolerance


def test_rows_and_bounds_that_hold_take_their_directions_out_of_the_curvature():
    # On the axis by its bound, (2, 0) is nearest; it would be a saddle if u[1] could become negative.
    u_hat = torch.tensor([[1.0, -0.1]], dtype=torch.float64)
    held = slow(ellipse(), Bounds(lower=torch.tensor([-3.0, 0.0]), upper=torch.tensor([3.0, 0.0])), shape=(2,))
    result = held(u_hat).raise_for_status()
    assert result.second_order.tolist() == [1]
    assert torch.allclose(result.u, torch.tensor([[2.0, 0.0]], dtype=torch.float64), rtol=0, atol=1e-7)
    steep = Inequality("outside", lambda u, p: 1e6 * (1.0 - torch.square(u[0] / 2.0) - torch.square(u[1])))
    result = slow(steep, shape=(2,), tolerance=1e-3)(u_hat).raise_for_status()
    assert result.second_order.tolist() == [1]
    assert torch.allclose(result.u[:, 0], torch.tensor([4 / 3], dtype=torch.float64), rtol=0, atol=0.2)


@pytest.mark.filterwarnings("ignore::snapfm.errors.StructureWarning")
def test_without_second_derivatives_nothing_is_claimed():
    lengths = torch.tensor([3, 3])
    law = Equality("law", lambda u, p: torch.segment_reduce(u.flatten(), "prod", lengths=lengths) - 1.0)
    result = slow(law, shape=(3, 2))(
        1.0 + 0.05 * randn(2, 3, 2)
    ).raise_for_status()  # torch has no second derivative of it
    assert result.second_order.tolist() == [-1, -1]


def test_the_budget_is_part_of_the_seam():
    project = small()
    with torch.no_grad():
        solved = project.method.solve(
            randn(2, *SHAPE), {"v": torch.ones(2, 5, dtype=torch.float64)}, 1e-8, None, Budget.of(500, 60.0)
        )
    assert solved.second_order is not None
    assert solved.second_order.tolist() == [1, 1]
    assert solved.second_order.dtype == torch.int8
