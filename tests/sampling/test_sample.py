"""Sampling against known answers, with velocities simple enough to be followed by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import snapfm
from snapfm import Equality, Projection, Projector, Status, sample
from snapfm.errors import DtypeError, ParamsError, ProjectionFailed, ShapeError, SnapfmError

EPS = torch.finfo(torch.float64).eps
EPS32 = torch.finfo(torch.float32).eps
SHAPE = (4, 5)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def feasible(u0: Tensor) -> Tensor:
    """A field of the right initial values whose mass never changes: the initial values, carried on."""
    return u0[:, :, None].expand(-1, -1, SHAPE[1]).clone()


@pytest.fixture(scope="module")
def u0() -> Tensor:
    return torch.randn(7, SHAPE[0], generator=seeded(1), dtype=torch.float64)


@pytest.fixture(scope="module")
def project(u0: Tensor) -> Projector:
    laws = [
        Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
        Equality("mass", lambda u, p: u[:, 1:].sum(0) - p["u0"].sum()),
    ]
    return Projector(laws, SHAPE, {"u0": u0[:1]})


def decay(u: Tensor, tau: Any) -> Tensor:
    return -u


def still(count: int, seed: int) -> Tensor:
    """Give the noise a run starts from: a velocity of zero hands it back."""
    out = sample(lambda u, tau: 0 * u, None, None, count, 1, seeded(seed), shape=SHAPE, dtype=torch.float64)
    return out.u


class Toward:
    """The straight way to a target: v = (target − u) / (1 − τ)."""

    def __init__(self, target: Tensor) -> None:
        self.target = target

    def __call__(self, u: Tensor, tau: float) -> Tensor:
        return (self.target[: len(u)].to(u.dtype) - u) / (1 - tau)


class Network(nn.Module):
    """A velocity with weights, which writes down how it was called."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(-0.5, dtype=dtype))
        self.calls: list[tuple[torch.dtype, tuple[int, ...], Any]] = []

    def forward(self, u: Tensor, tau: Any) -> Tensor:
        self.calls.append((u.dtype, tuple(u.shape), tau))
        return self.weight * u


# Known answers.


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_velocity_that_points_at_a_feasible_target_ends_there(project: Projector, u0: Tensor, steps: int):
    target = feasible(u0)
    out = sample(Toward(target), project, {"u0": u0}, 7, steps, seeded(), dtype=torch.float64)
    # Per step one subtraction, division and addition, of numbers the size of noise and target.
    assert float((out.u - target).abs().max()) <= 4 * steps * EPS * float(target.abs().max() + 5)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_the_plain_flow_ends_at_the_target_too(u0: Tensor, steps: int):
    target = feasible(u0)
    out = sample(Toward(target), None, count=7, steps=steps, generator=seeded(), shape=SHAPE, dtype=torch.float64)
    assert float((out.u - target).abs().max()) <= 4 * steps * EPS * float(target.abs().max() + 5)
    assert out.projection is None


def test_an_infeasible_target_is_projected_onto_the_laws(project: Projector, u0: Tensor):
    target = torch.randn(7, *SHAPE, generator=seeded(3), dtype=torch.float64)
    out = sample(Toward(target), project, {"u0": u0}, 7, 3, seeded(), dtype=torch.float64)
    nearest = project(target, {"u0": u0}).u
    assert float((out.u - nearest).abs().max()) <= 40 * EPS * float(target.abs().max() + 5)


def test_the_plain_flow_is_eulers_method():
    noise = still(3, seed=4)

    def velocity(u: Tensor, tau: float) -> Tensor:
        return tau - u**2

    out = sample(velocity, None, count=3, steps=5, generator=seeded(4), shape=SHAPE, dtype=torch.float64)
    u = noise
    for step in range(5):
        u = u + 0.2 * velocity(u, step / 5)
    assert torch.allclose(out.u, u, rtol=0.0, atol=50 * EPS * float(u.abs().max() + noise.abs().max() ** 2))


def test_shoot_project_and_pull_back_by_hand(project: Projector, u0: Tensor):
    params = {"u0": u0[:3]}
    noise = still(3, seed=5)
    out = sample(decay, project, params, 3, 4, seeded(5), dtype=torch.float64)
    u = noise
    for step in range(4):
        tau, later = step / 4, (step + 1) / 4
        landed = project(u + (1 - tau) * -u, params).u
        u = noise + later * (landed - noise)  # always from the ORIGINAL noise
    expected = project(u, params).u
    assert torch.allclose(out.u, expected, rtol=0.0, atol=20 * EPS * float(noise.abs().max() + expected.abs().max()))


def test_noise_is_standard_normal():
    noise = sample(lambda u, tau: 0 * u, None, count=40, steps=1, generator=seeded(6), shape=(10, 25)).u.double()
    count = noise.numel()
    assert abs(float(noise.mean())) <= 5 / count**0.5  # five standard errors
    assert abs(float(noise.var()) - 1) <= 5 * (2 / count) ** 0.5


# Random streams: sample i depends on the seed and i alone.


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sample_does_not_depend_on_how_many_are_drawn(
    project: Projector, u0: Tensor, constrained: bool, dtype: torch.dtype
):
    def draw(count: int) -> Tensor:
        chosen, params = (project, {"u0": u0[:count]}) if constrained else (None, None)
        return sample(decay, chosen, params, count, 3, seeded(7), shape=SHAPE, dtype=dtype).u

    few, many = draw(3), draw(7)
    assert torch.equal(few, many[:3])
    assert not torch.equal(many[0], many[1])


def test_the_plain_flow_starts_from_the_noise_of_the_constrained_one(project: Projector, u0: Tensor):
    seen: list[Tensor] = []

    def velocity(u: Tensor, tau: float) -> Tensor:
        seen.append(u.clone())
        return -u

    sample(velocity, project, {"u0": u0}, 7, 1, seeded(8))
    sample(velocity, None, count=7, steps=1, generator=seeded(8), shape=SHAPE)
    assert torch.equal(seen[0], seen[1])


def test_one_seed_gives_one_result_and_a_generator_moves_on(project: Projector, u0: Tensor):
    def draw(generator: torch.Generator | None) -> Tensor:
        return sample(decay, project, {"u0": u0[:2]}, 2, 2, generator).u

    generator = seeded(9)
    first, second = draw(generator), draw(generator)
    assert torch.equal(first, draw(seeded(9)))
    assert not torch.equal(first, second)
    assert not torch.equal(first, draw(seeded(10)))
    torch.manual_seed(11)
    without = draw(None)
    torch.manual_seed(11)
    assert torch.equal(draw(None), without)  # without a generator, torch's own seed decides
    assert not torch.equal(draw(None), without)


# The last projection is exact.


@pytest.mark.parametrize("steps", [1, 5])
def test_the_last_projection_is_exact_in_float64(project: Projector, u0: Tensor, steps: int):
    out = sample(decay, project, {"u0": u0}, 7, steps, seeded(12), dtype=torch.float64)
    assert out.u.dtype == torch.float64
    assert torch.equal(out.u, out.projection.u)
    assert out.projection.status.tolist() == [Status.CONVERGED] * 7
    for i in range(7):
        assert float((out.u[i, :, 0] - u0[i]).abs().max()) <= project.tolerance
        assert float((out.u[i, :, 1:].sum(0) - u0[i].sum()).abs().max()) <= project.tolerance


def test_the_last_projection_comes_after_the_last_step(project: Projector, u0: Tensor):
    class Counting:
        """A projector that keeps what it was given and what it gave."""

        def __init__(self) -> None:
            self.shape = project.shape
            self.given: list[Tensor] = []
            self.results: list[Projection] = []

        def __call__(self, u_hat: Tensor, params: Any, **settings: Any) -> Projection:
            self.given.append(u_hat)
            self.results.append(project(u_hat, params, **settings))
            return self.results[-1]

    counting = Counting()
    out = sample(decay, counting, {"u0": u0}, 7, 3, seeded(12), dtype=torch.float64)  # type: ignore[arg-type]
    assert len(counting.results) == 4  # three steps, and one at τ = 1
    assert out.projection is counting.results[-1]
    noise = still(7, seed=12)
    landed = noise + (counting.results[-2].u - noise)
    assert torch.allclose(counting.given[-1], landed, rtol=0.0, atol=4 * EPS * float(noise.abs().max() + 5))


def test_float32_fields_break_their_laws_by_rounding_only(project: Projector, u0: Tensor):
    out = sample(decay, project, {"u0": u0}, 7, 5, seeded(13))
    assert out.u.dtype == torch.float32
    wide = out.u.double()
    assert bool(((wide[:, :, 0] - u0).abs() <= EPS32 / 2 * u0.abs() + 4 * EPS * float(u0.abs().max() + 5)).all())
    mass = (wide[:, :, 1:].sum(1) - u0.sum(1)[:, None]).abs()
    assert bool((mass <= EPS32 / 2 * wide[:, :, 1:].abs().sum(1) + project.tolerance).all())


def test_heat_fields_obey_to_the_figures_the_demo_promises():
    problem = snapfm.problem("heat-ic-mass")
    params = problem.params(2, seeded(14))
    heat = Projector(problem.laws, problem.grid.shape, params)
    for dtype, limit in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        out = sample(decay, heat, params, 2, 3, seeded(15), dtype=dtype)
        judged = heat.check(out.u, params)
        assert float(judged.by_law["mass"].max()) <= limit
        assert float(judged.by_law["initial"].max()) <= torch.finfo(dtype).eps


# What a run reports.


def test_time_is_split_into_velocity_and_projection(project: Projector, u0: Tensor):
    out = sample(decay, project, {"u0": u0}, 7, 3, seeded())
    assert list(out.seconds) == ["velocity", "projection", "other"]
    assert out.seconds["velocity"] > 0
    assert out.seconds["projection"] > 0
    plain = sample(decay, None, count=2, steps=3, generator=seeded(), shape=SHAPE)
    assert plain.seconds["velocity"] > 0
    assert plain.seconds["projection"] == 0


@pytest.mark.parametrize("constrained", [False, True])
def test_progress_is_reported_after_every_step(project: Projector, u0: Tensor, constrained: bool):
    reported: list[tuple[int, int]] = []
    chosen, params = (project, {"u0": u0[:2]}) if constrained else (None, None)
    sample(
        decay, chosen, params, 2, 4, seeded(), shape=SHAPE, progress=lambda done, total: reported.append((done, total))
    )
    assert reported == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_results_are_tensors_to_go_on_with(project: Projector, u0: Tensor):
    out = sample(Network(torch.float32), project, {"u0": u0}, 7, 2, seeded())
    weight = torch.ones((), requires_grad=True)
    for u in (out.u, out.projection.u):
        assert not u.requires_grad
        (weight * u).sum().backward()  # a tensor of inference mode could not be saved for this
        u += 1.0


# How the velocity is called.


@pytest.mark.parametrize("weights", [torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_network_gets_fields_of_its_own_dtype_and_flow_time(
    project: Projector, u0: Tensor, weights: torch.dtype, dtype: torch.dtype
):
    network = Network(weights)
    out = sample(network, project, {"u0": u0[:3]}, 3, 4, seeded(), dtype=dtype)
    assert out.u.dtype == dtype
    assert [call[0] for call in network.calls] == [weights] * 4
    assert [call[1] for call in network.calls] == [(3, *SHAPE)] * 4
    taus = [call[2] for call in network.calls]
    assert all(isinstance(tau, float) for tau in taus)
    assert taus == [0.0, 0.25, 0.5, 0.75]


def test_a_plain_function_gets_fields_of_the_dtype_asked_for():
    seen: list[torch.dtype] = []

    def velocity(u: Tensor, tau: float) -> Tensor:
        seen.append(u.dtype)
        return -u

    sample(velocity, None, count=1, steps=2, generator=seeded(), shape=SHAPE, dtype=torch.float64)
    assert seen == [torch.float64] * 2


def test_no_graph_is_built_through_the_network():
    network = Network(torch.float32)
    out = sample(network, None, count=2, steps=2, generator=seeded(), shape=SHAPE)
    assert not out.u.requires_grad
    assert network.weight.grad is None


def test_the_shape_may_come_from_the_velocity():
    def velocity(u: Tensor, tau: float) -> Tensor:
        return -u

    velocity.shape = (3, 2)  # type: ignore[attr-defined]
    assert sample(velocity, None, count=2, steps=1, generator=seeded()).u.shape == (2, 3, 2)


# Failures.


def contradicting() -> tuple[Projector, dict[str, Tensor]]:
    laws = [
        Equality("energy", lambda u, p: u.sum() - p["a"]),
        Equality("mass", lambda u, p: u.sum() - p["b"]),
    ]
    params = {"a": torch.tensor([1.0, 2.0, 3.0]), "b": torch.tensor([1.0, 9.0, 3.0])}
    return Projector(laws, SHAPE, {name: value[:1] for name, value in params.items()}), params


def test_unconverged_samples_raise_by_default():
    project, params = contradicting()
    with pytest.raises(ProjectionFailed, match="sample 1: INFEASIBLE, law"):
        sample(decay, project, params, 3, 2, seeded())


def test_unconverged_samples_are_kept_and_marked_on_request():
    project, params = contradicting()
    out = sample(decay, project, params, 3, 2, seeded(), on_failure="keep", dtype=torch.float64)
    assert out.projection.status.tolist() == [Status.CONVERGED, Status.INFEASIBLE, Status.CONVERGED]
    assert out.u.shape == (3, *SHAPE)
    agreeing = sample(decay, project, {"a": params["a"], "b": params["a"]}, 3, 2, seeded(), dtype=torch.float64)
    assert torch.equal(out.u[[0, 2]], agreeing.u[[0, 2]])


def test_a_network_that_blows_up_for_one_sample_marks_that_sample(project: Projector, u0: Tensor):
    def velocity(u: Tensor, tau: float) -> Tensor:
        speed = -u
        if len(u) > 1:
            speed[1] = float("nan")
        return speed

    out = sample(velocity, project, {"u0": u0[:3]}, 3, 2, seeded(), on_failure="keep")
    assert out.projection.status.tolist() == [Status.CONVERGED, Status.NONFINITE, Status.CONVERGED]
    assert torch.equal(out.u[[0]], sample(decay, project, {"u0": u0[:1]}, 1, 2, seeded()).u)
    with pytest.raises(ProjectionFailed, match="sample 1: NONFINITE"):
        sample(velocity, project, {"u0": u0[:3]}, 3, 2, seeded())


@pytest.mark.parametrize(
    ("wrong", "error", "builtin", "expected", "came", "cure"),
    [
        ({"count": 0}, SnapfmError, ValueError, "expects whole numbers >= 1", "got count=0", "at least one"),
        ({"count": -3}, SnapfmError, ValueError, "expects whole numbers >= 1", "got count=-3", "at least one"),
        ({"count": 2.5}, SnapfmError, ValueError, "expects whole numbers >= 1", "got count=2.5", "at least one"),
        ({"steps": 0}, SnapfmError, ValueError, "expects whole numbers >= 1", "steps=0", "at least one"),
        ({"steps": 1.5}, SnapfmError, ValueError, "expects whole numbers >= 1", "steps=1.5", "at least one"),
        (
            {"dtype": torch.float16}, DtypeError, TypeError,
            "expects torch.float32 or torch.float64", "got torch.float16", "The default is float32.",
        ),
        (
            {"project": None}, ShapeError, ValueError,
            "expects the shape of one field", "neither a projector nor velocity.shape gives it", "Pass shape=",
        ),
        (
            {"shape": (7,)}, ShapeError, ValueError,
            "expects the projector's shape (4, 5)", "got (7,)", "Leave shape out",
        ),
        (
            {"params": {}}, ParamsError, ValueError,
            "expects the names ['u0']", "got [] (missing ['u0'])", "Pass the same names",
        ),
        (
            {"count": 3}, ParamsError, ValueError,
            "params['u0'] expects shape (3 or 1, 4) for 3 samples", "got (2, 4)", "Its leading axis is the batch",
        ),
        (
            {"on_failure": "ignore"}, SnapfmError, ValueError,
            "on_failure expects 'raise' or 'keep'", "got 'ignore'", "'keep' returns",
        ),
        (
            {"velocity": lambda u, tau: u.sum(1, keepdim=True)}, ShapeError, ValueError,
            "velocity(u, tau) expects fields (2, 4, 5) back", "got (2, 1, 5)", "shape of its input",
        ),
        (
            {"velocity": lambda u, tau: None}, SnapfmError, ValueError,
            "velocity(u, tau) expects fields (2, 4, 5) back", "got NoneType", "shape of its input",
        ),
    ],
    ids=[
        "count=0", "count=-3", "count=2.5", "steps=0", "steps=1.5", "float16", "no shape", "another shape", "no params",
        "params of another count", "unknown on_failure", "velocity of another shape", "velocity of nothing",
    ],
)  # fmt: skip
def test_a_mistake_is_reported_in_three_parts(
    project: Projector,
    u0: Tensor,
    wrong: dict[str, Any],
    error: type,
    builtin: type,
    expected: str,
    came: str,
    cure: str,
):
    right = {"velocity": decay, "project": project, "params": {"u0": u0[:2]}, "count": 2, "steps": 2}
    with pytest.raises(error) as caught:
        sample(**(right | wrong))
    assert isinstance(caught.value, builtin)
    message = str(caught.value)
    places = [message.find(words) for words in (expected, came, cure)]
    assert -1 not in places, message
    assert places == sorted(places), message
