"""Second attempts on a device that is emulated: samples that Newton's first one leaves open, without the CPU."""

from __future__ import annotations

import pytest
import torch
from tests.device.emulated.machine import CHECKED
from tests.device.far import Far, emulated, far, near
from tests.project.device_laws import Case, Drift, noise
from torch import Tensor

import snapfm
from snapfm.solve.attempts.order import brief_barrier, order, penalized, restored

CLOSE = 1e-8
STEPS = 20


def bounded() -> Case:
    """Bounds and an inequality that noise breaks nearly everywhere: active sets cycle."""
    laws = [
        snapfm.Equality("energy", lambda u, p: (u**2).sum(0) - 3.0),
        snapfm.Inequality("first", lambda u, p: u[0] ** 3 + u[1] - 1.5),
        snapfm.Bounds(lower=-1.2, upper=1.2),
    ]
    return Case(laws, (6, 4), {})


def monotone() -> Case:
    """A chain of inequalities beside a total."""
    laws = [
        snapfm.Equality("mean", lambda u, p: u.sum(0) - 1.0),
        snapfm.Inequality("up", lambda u, p: u[:-1] - u[1:]),
        snapfm.Bounds(lower=-1.0, upper=1.0),
    ]
    return Case(laws, (12, 3), {})


def steps() -> Case:
    """Steps in time with a cubic: far from an answer, a linear model grows from one to the next."""
    return Case([snapfm.Equality("s", lambda u, p: u[1:] - u[:-1] + 0.5 * u[1:] ** 3 * u[:-1] - 0.1)], (7,), {})


def square() -> Case:
    """As many equations as unknowns: what obeys is a point."""

    def rows(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        return torch.stack([u[0] ** 2 + u[1] ** 2 - 1.0 + 0.2 * u[2], u[0] * u[1] - 0.2 * u[2], torch.exp(u[2]) - u[0]])

    return Case([snapfm.Equality("rows", rows)], (3,), {})


# Laws, the attempt, times that the field of noise is enlarged, and its seed: one that the CPU converges on with this attempt.
CASES = {
    "bounded": (bounded, brief_barrier, 2.0, 0),
    "monotone": (monotone, brief_barrier, 2.0, 1),
    "steps": (steps, penalized, 3.0, 1),
    "square": (square, restored, 5.0, 1),
}
BARRIERS = ("bounded", "monotone")


def given(name: str) -> tuple[snapfm.Projector, Tensor]:
    make, _, size, seed = CASES[name]
    case = make()
    return case.projector(), size * noise(3, *case.shape, seed=seed)


@pytest.mark.parametrize("name", CASES)
def test_the_attempt_is_the_first_that_the_cpu_would_make(name):
    project, _ = given(name)
    assert {order(part)[0] for part in project.method.parts} == {CASES[name][1]}


@pytest.mark.parametrize("name", BARRIERS)
def test_a_barrier_ends_as_on_the_cpu_and_the_cpu_is_not_asked(name):
    project, u_hat = given(name)
    here = project(u_hat)
    with emulated() as machine:
        there = project(far(u_hat))
    assert {"interior", "newton"} <= set(machine.launches)
    assert machine.reads == 1
    assert here.converged.all()
    assert torch.equal(near(there.status), here.status)
    assert torch.equal(near(there.iterations), here.iterations)
    assert torch.equal(near(there.second_order), here.second_order)
    assert torch.allclose(near(there.u), here.u, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["steps", "square"])
def test_other_attempts_are_made_when_the_device_has_been_looked_at(name):
    project, u_hat = given(name)
    here = project(u_hat)
    with emulated() as machine:
        there = project(far(u_hat))
    assert machine.reads == 2  # of all samples, and of those that were tried again; none went to the CPU
    assert ("restore" in machine.launches) == (name == "square")
    assert here.converged.all()
    assert torch.equal(near(there.status), here.status)
    assert torch.allclose(near(there.u), here.u, rtol=CLOSE, atol=CLOSE)
    assert torch.allclose(near(there.distance), here.distance, rtol=CLOSE)


@pytest.mark.parametrize("name", BARRIERS)
def test_moves_follow_barriers_and_wait_for_nothing(name):
    project, u_hat = given(name)
    with emulated() as machine:
        moved = project.move(far(u_hat))
    assert machine.reads == 0
    assert "interior" in machine.launches
    assert near(moved.warm.usable).all()
    assert float(project.check(near(moved.u)).violation.max()) <= project.tolerance


@pytest.mark.parametrize("name", BARRIERS)
def test_a_flow_with_inequalities_never_leaves_its_device(name):
    make, *_ = CASES[name]
    project = make().projector()

    def run(weight: Tensor) -> snapfm.Samples:
        generator = torch.Generator().manual_seed(5)
        return snapfm.sample(
            Drift(weight), project, {}, 2, STEPS, generator, dtype=torch.float64, on_failure="keep"
        )  # fmt: skip

    strong = torch.full((), -8.0, dtype=torch.float64)  # fields grow
    here = run(strong)
    with emulated() as machine:
        there = run(Far(strong.clone()))
    assert machine.reads == 1
    assert "interior" in machine.launches
    assert near(there.projection.converged).all()
    assert torch.allclose(near(there.u), here.u, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_sample_has_the_same_bits_in_any_batch(name):
    project, u_hat = given(name)
    with emulated():
        whole = project(far(u_hat))
        for i in range(len(u_hat)):
            assert torch.equal(near(project(far(u_hat[i : i + 1])).u)[0], near(whole.u)[i])


@pytest.mark.parametrize("name", CASES)
def test_no_access_leaves_the_memory_of_a_launch_and_threads_do_not_race(name):
    project, u_hat = given(name)
    with emulated(CHECKED) as machine:
        project(far(u_hat))
    assert all(report.strays == 0 for report in machine.reports), machine.launches
    assert all(report.races == 0 for report in machine.reports), machine.launches


def test_what_the_second_attempt_leaves_open_goes_to_the_cpu():
    project, u_hat = square().projector(), 5.0 * noise(3, 3, seed=2)
    here = project(u_hat)
    with emulated() as machine:
        there = project(far(u_hat))
    assert machine.reads == 3  # both looks, and the fields of what is open
    assert torch.equal(near(there.converged), here.converged)
    assert not here.converged.all()
    assert (near(there.iterations) <= project.limit).all()
