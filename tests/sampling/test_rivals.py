"""PCFM's rivals on flows whose ends can be derived."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from tests.sampling.toys import (
    EPS,
    MEAN,
    SHAPE,
    Gaussian,
    Watched,
    bent,
    curved,
    mixed,
    noise,
    pinned,
    run,
    seeded,
    summed,
    task,
)
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Projector, Status
from snapfm.errors import ParamsError
from snapfm.sampling import ECI, PCFM, DFlow, EndProjection, Flow, Guidance, Projected
from snapfm.sampling.gradient import row_weights
from snapfm.seeds import base_seed, stream

C = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
U0 = torch.randn(3, SHAPE[0], generator=seeded(1), dtype=torch.float64)
GAUSSIAN, POINT = Gaussian(MEAN, 0.5), Gaussian(MEAN, 0.0)
CASES: dict[str, tuple[Callable[[], Projector], dict[str, Tensor]]] = {
    "value": (pinned, {"c": C}),
    "sum": (summed, {"c": C}),
    "values and sums": (mixed, {"u0": U0}),
    "sphere": (curved, {"c": C.abs() + 5.0}),
}


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> tuple[Projector, dict[str, Tensor]]:
    make, params = CASES[request.param]
    return make(), params


def close(a: Tensor, b: Tensor, steps: int = 1) -> bool:
    """Equal but for the rounding of some dozens of operations per step, on numbers of order ten."""
    return torch.allclose(a, b, rtol=0.0, atol=64 * steps * EPS * 10)


# Projection only at the end.


@pytest.mark.parametrize("flow", [Flow(), Flow(solver="adaptive")], ids=["euler", "adaptive"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_end_projection_is_that_of_the_plain_flow_to_the_bit(case: Any, flow: Flow, dtype: torch.dtype):
    project, params = case
    plain = run(flow, GAUSSIAN, project, params, dtype=dtype)
    out = run(EndProjection(flow), GAUSSIAN, project, params, dtype=dtype)
    assert torch.equal(out.u, project(plain.u, params).u)
    assert out.projection.status.tolist() == [Status.CONVERGED] * 3
    assert out.calls == plain.calls


# Projected sampling.


def test_projected_sampling_by_hand(case: Any):
    project, params = case
    out = run(Projected(warm=False), GAUSSIAN, project, params, steps=4)
    u = noise(3, 0)
    for step in range(3):
        u = project.move(u + 0.25 * GAUSSIAN(u, step / 4), params).u
    u = project(u + 0.25 * GAUSSIAN(u, 0.75), params).u
    assert close(out.u, u, 4)
    assert torch.equal(out.u, out.projection.u)
    assert out.projection.status.tolist() == [Status.CONVERGED] * 3


def test_projecting_every_state_drags_noise_onto_laws_of_clean_fields():
    """A flow that stands still: PCFM and the end projection leave the noise but for the law, and so does this, at once."""
    watched = Watched(pinned())
    out = run(Projected(), lambda u, tau: 0 * u, watched, {"c": C}, steps=3)
    assert len(watched.results) == 3
    for result in watched.results:
        assert torch.equal(result.u, out.u)  # already feasible after the first step
    expected = noise(3, 0)
    expected[:, 0, 0] = C
    assert close(out.u, expected)


# ECI.


@pytest.mark.parametrize("mixing", [1, 3])
@pytest.mark.parametrize("renew", [None, 1, 2])
def test_eci_on_a_point_mass_ends_at_its_projection(case: Any, mixing: int, renew: int | None):
    """Every shot hits the point, whatever the noise, so every correction is its projection."""
    project, params = case
    out = run(ECI(mixing, renew), POINT, project, params, steps=3)
    expected = project(MEAN.expand(3, *SHAPE), params).u
    # A shot from τ divides what it reads of the noise by 1 − τ and multiplies it again.
    assert torch.allclose(out.u, expected, rtol=0.0, atol=1e-7 if "energy" in out.projection.by_law else 1e-13)
    assert out.projection.status.tolist() == [Status.CONVERGED] * 3
    assert out.calls == 3 * mixing


def test_eci_by_hand_with_noise_drawn_again():
    project, params = summed(), {"c": C}
    out = run(ECI(mixing=2, renew=3, warm=False), GAUSSIAN, project, params, steps=3)
    seed = base_seed(seeded())
    streams = [stream(seed, index) for index in range(3)]

    def draw() -> Tensor:
        return torch.stack([torch.randn(SHAPE, generator=one, dtype=torch.float64) for one in streams])

    held = draw()
    u, count = held, 0
    for step in range(3):
        tau, later = step / 3, (step + 1) / 3
        for turn in range(2):
            count += 1
            if count in (3, 6):
                held = draw()
            landed = project(u + (1 - tau) * GAUSSIAN(u, tau), params).u
            back = tau if turn == 0 else later
            u = back * landed + (1 - back) * held
    assert close(out.u, u, 6)


def test_eci_without_mixing_and_new_noise_is_pcfm(case: Any):
    project, params = case
    eci = run(ECI(mixing=1, renew=None), GAUSSIAN, project, params, steps=5)
    pcfm = run(PCFM(), GAUSSIAN, project, params, steps=5)
    assert torch.allclose(eci.u, pcfm.u, rtol=0.0, atol=1e-8)  # but for PCFM's last projection, of a feasible field
    assert eci.calls == pcfm.calls


def test_a_given_value_is_overwritten_and_its_neighbours_follow_the_flow():
    """Points are independent in this flow: those without a law end where they would without any."""
    watched = Watched(pinned())
    with_law = run(ECI(mixing=2, renew=3), GAUSSIAN, watched, {"c": C}).u
    free = run(ECI(mixing=2, renew=3), GAUSSIAN, Projector([], SHAPE), None).u
    assert torch.equal(with_law[:, 0, 0], C)
    assert torch.equal(with_law.flatten(1)[:, 1:], free.flatten(1)[:, 1:])


# Gradient guidance.


@pytest.mark.parametrize("weight", [0.01, 0.2])
@pytest.mark.parametrize("steps", [1, 7])
def test_guidance_shrinks_the_violation_by_a_known_factor(weight: float, steps: int):
    """With a constant velocity the shot end y moves by −η∇(y₀₀ − c)² per step: y₀₀ − c shrinks by 1 − 2η."""
    speed = MEAN.expand(3, *SHAPE)
    out = run(Guidance(weight), lambda u, tau: speed.clone(), pinned(), {"c": C}, steps=steps)
    end = noise(3, 0) + speed
    expected = end.clone()
    expected[:, 0, 0] = C + (1 - 2 * weight) ** steps * (end[:, 0, 0] - C)
    assert close(out.u, expected, steps)
    assert out.projection is None
    assert out.calls == 2 * steps - 1


def test_guidance_weighs_physics_apart():
    speed = MEAN.expand(3, *SHAPE)
    out = run(Guidance(0.1, physics=0.2), lambda u, tau: speed.clone(), summed(), {"c": C}, steps=4)
    before = (noise(3, 0) + speed).flatten(1).sum(1) - C
    after = out.u.flatten(1).sum(1) - C
    assert torch.allclose(after, (1 - 2 * 0.1 * 0.2 * MEAN.numel()) ** 4 * before, rtol=1e-12, atol=1e-13)


def test_guidance_takes_the_mean_of_two_velocities():
    """One step of two, by hand: v(u, 0) and v(u, ½) of the same state, not differentiated."""
    out = run(Guidance(0.1), bent, pinned(), {"c": C}, steps=2)
    u = noise(3, 0)
    for tau, mean in ((0.0, True), (0.5, False)):
        speed = 0.5 * (bent(u, tau) + bent(u, tau + 0.5)) if mean else bent(u, tau)
        broken = (u + (1 - tau) * speed)[:, 0, 0] - C
        u = u + 0.5 * speed
        u[:, 0, 0] -= 0.1 * 2 * broken
    assert close(out.u, u, 2)


def test_guidance_through_the_network_differentiates_it():
    out = run(Guidance(0.1, through_network=True), bent, curved(), {"c": C.abs()}, steps=1)
    plain = run(Guidance(0.1), bent, curved(), {"c": C.abs()}, steps=1)
    at = noise(3, 0).requires_grad_()
    loss = 0.1 * 0.01 * ((at + bent(at, 0.0)).square().flatten(1).sum(1) - C.abs()).square()
    (slope,) = torch.autograd.grad(loss.sum(), at)
    with torch.no_grad():
        assert close(out.u, at + bent(at, 0.0) - slope)
    assert not torch.allclose(out.u, plain.u, rtol=0.0, atol=1e-3)


@pytest.mark.parametrize("through_network", [False, True])
def test_guidance_lowers_violations_but_obeys_no_law(case: Any, through_network: bool):
    project, params = case

    def broken(weight: float) -> Tensor:
        out = run(Guidance(weight, through_network=through_network), GAUSSIAN, project, params, steps=30)
        return (row_weights(project, 0.01) * project.excess(out.u, params).square()).sum(1)

    plain, guided = broken(1e-12), broken(0.01)
    assert bool((guided < 0.95 * plain).all())
    assert bool((guided > project.tolerance).all())


def test_rows_are_weighed_by_what_they_say():
    laws = [
        Equality("sums", lambda u, p: u[:, 1:].sum(0)),
        Equality("values", lambda u, p: 2 * u[:, 0]),
        Equality("square", lambda u, p: u[0, 1:2] ** 2),
        Inequality("cap", lambda u, p: u[1, 1:3] - 1.0),
        Bounds(-9.0, 9.0),
    ]
    weights = row_weights(Projector(laws, SHAPE), 0.25)
    assert weights.tolist() == [0.25] * 4 + [1.0] * 3 + [0.25] + [0.25] * 2 + [0.25] * 15


# D-Flow.


def test_dflow_reaches_the_laws(case: Any):
    project, params = case
    out = run(DFlow(), GAUSSIAN, project, params, steps=6)
    assert float(project.check(out.u, params).violation.max()) <= project.tolerance
    assert out.projection is None  # it certifies nothing


@pytest.mark.parametrize("make", [pinned, summed])
def test_dflow_through_a_linear_flow_ends_at_the_nearest_feasible_field(make: Callable[[], Projector]):
    """This flow scales all points alike, so the gradient in the noise points where the projection does."""
    project = make()
    out = run(DFlow(tolerance=1e-12), GAUSSIAN, project, {"c": C}, steps=6)
    nearest = run(EndProjection(), GAUSSIAN, project, {"c": C}, steps=6)
    assert torch.allclose(out.u, nearest.u, rtol=0.0, atol=1e-11)
    if make is pinned:
        plain = run(Flow(), GAUSSIAN, project, {"c": C}, steps=6)
        assert torch.equal(out.u.flatten(1)[:, 1:], plain.u.flatten(1)[:, 1:])


def test_dflow_leaves_feasible_flows_alone():
    project, plain = summed(), run(Flow(), GAUSSIAN, None, None)
    out = run(DFlow(), GAUSSIAN, project, {"c": plain.u.flatten(1).sum(1)})
    assert torch.equal(out.u, plain.u)
    assert out.calls == 4 * (1 + 1 + 1)  # the flow there, once more for its gradient, and the flow returned


def test_the_slope_of_dflow_is_that_of_the_whole_flow(monkeypatch: pytest.MonkeyPatch):
    found: list[tuple[Tensor, Tensor]] = []

    def look(objective: Any, slope: Any, start: Tensor, *rest: Any, **settings: Any) -> Tensor:
        found.append(slope(start))
        assert torch.equal(objective(start), found[0][0])
        return start

    monkeypatch.setattr("snapfm.sampling.gradient.descend", look)
    project, params = mixed(), {"u0": U0}
    run(DFlow(physics=0.3), bent, project, params, steps=4)
    at = noise(3, 0).requires_grad_()
    u = at
    for step in range(4):
        u = u + 0.25 * bent(u, step / 4)
    value = (row_weights(project, 0.3) * project.excess(u, params).square()).sum(1)
    (slope,) = torch.autograd.grad(value.sum(), at)
    assert torch.allclose(found[0][0], value.detach(), rtol=64 * EPS, atol=0.0)
    assert torch.allclose(found[0][1], slope, rtol=0.0, atol=64 * EPS * float(slope.abs().max()))


class Counted(torch.autograd.Function):
    """Doubles its input, and keeps count of how many graphs through it are alive."""

    alive: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()
    most = 0

    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        if u.requires_grad:
            Counted.alive.add(ctx)
            Counted.most = max(Counted.most, len(Counted.alive))
        return 2 * u

    @staticmethod
    def backward(ctx: Any, along: Tensor) -> Tensor:
        return 2 * along


def test_dflow_holds_the_network_of_one_step_at_a_time():
    Counted.most = 0
    run(DFlow(iterations=2), lambda u, tau: Counted.apply(u), summed(), {"c": C}, steps=12)
    assert 1 <= Counted.most <= 2


def test_dflow_works_where_gradients_are_switched_off():
    with torch.no_grad():
        inside = run(DFlow(), GAUSSIAN, summed(), {"c": C})
    assert torch.equal(inside.u, run(DFlow(), GAUSSIAN, summed(), {"c": C}).u)


# Settings.


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: ECI(mixing=0), r"ECI\(mixing\) expects a whole number >= 1; got 0\. The default is 5"),
        (lambda: ECI(mixing=1.5), r"ECI\(mixing\) expects a whole number >= 1; got 1.5"),  # type: ignore[arg-type]
        (lambda: ECI(renew=0), r"ECI\(renew\) expects a whole number >= 1 or None; got 0\. None keeps the first noise"),
        (lambda: Guidance(weight=0.0), r"Guidance expects weight > 0 and physics > 0; got 0.0 and 0.01\."),
        (lambda: Guidance(physics=-1.0), r"Guidance expects weight > 0 and physics > 0; got 0.01 and -1.0\."),
        (lambda: DFlow(iterations=0), r"DFlow expects iterations >= 1 and physics > 0; got 0 and 0.01\."),
        (lambda: DFlow(physics=0.0), r"DFlow expects iterations >= 1 and physics > 0; got 20 and 0.0\."),
        (lambda: DFlow(tolerance=0.0), r"DFlow\(tolerance\) expects a positive number; got 0.0\. None is"),
    ],
)
def test_settings_are_checked(make: Callable[[], Any], expected: str):
    with pytest.raises(ParamsError, match=expected):
        make()


@pytest.mark.parametrize(
    "sampler", [Guidance(), DFlow(), ECI(), Projected(), EndProjection()], ids=lambda s: type(s).__name__
)
def test_without_any_law_rivals_are_flows(sampler: Any):
    out = run(sampler, POINT, Projector([], SHAPE), None, steps=5)
    assert close(out.u, MEAN.expand(3, *SHAPE), 20)


def test_a_task_counts_the_time_of_gradients():
    timed = task(bent, None, None, noise(2, 0))
    at = noise(2, 0).requires_grad_()
    value = timed.velocity(at, 0.0)
    before = timed.seconds["velocity"]
    timed.gradient(value, at)
    assert timed.seconds["velocity"] > before
