"""Laws with kinks: answers on kinks are found, certified with generalized gradients, and nearest where that is known."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Projector
from snapfm.arrays import Values
from snapfm.laws import Law
from snapfm.laws.pde import godunov
from snapfm.solve.newton import Newton
from snapfm_bench.judge import measure


def noise(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def upwind(u: Tensor, p: object) -> Tensor:
    a = u[1:-1, :-1]
    return u[1:-1, 1:] - a + 0.3 * torch.where(a > 0, a * (a - u[:-2, :-1]), a * (u[2:, :-1] - a))


def upwind_product(u: Tensor, p: object) -> Tensor:
    a = u[1:-1, :-1]
    return u[1:-1, 1:] - a + 0.3 * a * torch.where(a > 0, a - u[:-2, :-1], u[2:, :-1] - a)


def godunov_steps(u: Tensor, p: object) -> Tensor:
    through = godunov(u[:-1, :-1], u[1:, :-1])
    return u[1:-1, 1:] - u[1:-1, :-1] + 0.5 * (through[1:] - through[:-1])


def median(u: Tensor, p: object) -> Tensor:
    return torch.maximum(torch.minimum(u[0], u[1]), torch.minimum(torch.maximum(u[0], u[1]), u[2])) - 0.1


def hinge(u: Tensor, p: object) -> Tensor:
    return (torch.relu(1.0 - u * torch.linspace(-1, 1, 20, dtype=u.dtype).view(5, 4)).sum() - 18.0)[None]


def network(u: Tensor, p: object) -> Tensor:
    weight = 1.5 * torch.linspace(-1, 1, 24, dtype=u.dtype).reshape(6, 4).sin()
    return torch.relu(weight @ u).sum(dim=0) - 1.0


def variation_2d(u: Tensor, p: object) -> Tensor:
    return (u.diff(dim=0).abs().sum() + u.diff(dim=1).abs().sum() - 6.0)[None]


CASES: dict[str, tuple[Law, tuple[int, ...]]] = {
    "sum of sizes =": (Equality("law", lambda u, p: (u.abs().sum() - 2.0)[None]), (10,)),
    "sum of sizes <=": (Inequality("law", lambda u, p: (u.abs().sum() - 2.0)[None]), (10,)),
    "variation": (Inequality("law", lambda u, p: (u.diff().abs().sum() - 3.0)[None]), (64,)),
    "variation in two dimensions": (Inequality("law", variation_2d), (8, 6)),
    "upwind by where": (Equality("law", upwind), (9, 7)),
    "upwind, choice times speed": (Equality("law", upwind_product), (9, 7)),
    "largest <=": (Inequality("law", lambda u, p: u.amax(dim=0) - 0.5), (9, 7)),
    "largest =": (Equality("law", lambda u, p: u.amax(dim=0) - 0.5), (9, 7)),
    "smallest =": (Equality("law", lambda u, p: u.amin(dim=1) + 0.5), (9, 7)),
    "clamp": (Equality("law", lambda u, p: (u.clamp(-0.5, 0.5).sum() - 2.0)[None]), (12,)),
    "hinge": (Inequality("law", hinge), (5, 4)),
    "leaky relu": (Equality("law", lambda u, p: torch.nn.functional.leaky_relu(u, 0.1).sum(dim=0) - 1.0), (5, 4)),
    "relu of abs": (Equality("law", lambda u, p: torch.relu(u.abs() - 0.5).sum(dim=0) - 0.3), (5, 4)),
    "median of three": (Equality("law", median), (3, 5)),
    "Godunov steps": (Equality("law", godunov_steps), (9, 7)),
    "softshrink": (Equality("law", lambda u, p: torch.nn.functional.softshrink(u, 0.5).sum(dim=0) - 0.4), (6, 3)),
    "running maximum": (Equality("law", lambda u, p: u.cummax(dim=0).values.sum(dim=0) - 2.0), (6, 3)),
    "largest size": (Equality("law", lambda u, p: torch.linalg.vector_norm(u, torch.inf, dim=0) - 0.7), (6, 3)),
    "complementarity": (Equality("law", lambda u, p: torch.minimum(u[0], u[1])), (2, 6)),
    "relu of a law": (Equality("law", lambda u, p: torch.relu(u.sum(dim=0) - 0.5)), (6, 3)),
    "network of relus": (Equality("law", network), (4, 3)),
}
ON_KINKS = {name for name in CASES if name not in ("hinge",)}


@pytest.mark.parametrize("name", CASES)
def test_answers_on_kinks_are_certified_and_an_independent_judge_agrees(name: str):
    law, shape = CASES[name]
    u_hat = noise(8, *shape, seed=2)
    result = Projector([law], shape)(u_hat).raise_for_status()
    assert bool(result.generalized.any()) == (name in ON_KINKS)
    assert (result.second_order == 1).all()
    sizes = measure([law], u_hat, result.u, result.multipliers, {})
    assert float(sizes.violation.max()) <= 1e-8
    assert float(sizes.nearness.max()) <= 1e-8


def test_the_judge_does_not_accept_a_field_off_its_answer():
    law, shape = CASES["variation"]
    u_hat = noise(1, *shape, seed=2)
    result = Projector([law], shape)(u_hat)
    moved = result.u + 1e-4 * noise(1, *shape, seed=3)
    assert float(measure([law], u_hat, moved, result.multipliers, {}).nearness) > 1e-2
    halved = {"law": 0.5 * result.multipliers["law"]}
    assert float(measure([law], u_hat, result.u, halved, {}).nearness) > 1e-2


def nearest_of_size(point: Values, radius: float) -> Values:
    """Project onto a ball of the sum of sizes: shrink all sizes by the same amount."""
    size = np.sort(np.abs(point))[::-1]
    cut = (np.cumsum(size) - radius) / np.arange(1, len(size) + 1)
    shrink = max(cut[np.flatnonzero(size > cut)[-1]], 0.0)
    return np.sign(point) * np.maximum(np.abs(point) - shrink, 0.0)


def test_sums_of_sizes_end_where_soft_thresholding_does():
    law, shape = CASES["sum of sizes <="]
    u_hat = noise(8, *shape, seed=5)
    u = Projector([law], shape)(u_hat).raise_for_status().u.numpy()
    np.testing.assert_allclose(u, [nearest_of_size(one, 2.0) for one in u_hat.numpy()], atol=1e-9)


def test_a_bound_on_the_largest_clips():
    law, shape = CASES["largest <="]
    u_hat = noise(4, *shape, seed=6)
    torch.testing.assert_close(Projector([law], shape)(u_hat).u, u_hat.clamp(max=0.5), rtol=0, atol=1e-9)


def by_split_variables(point: Values, bound: float) -> Values:
    """Bound the variation by a smooth program: each difference is the difference of two parts that are not negative."""
    n = len(point)
    differ = np.diff(np.eye(n), axis=0)
    matrix = np.hstack([differ, -np.eye(n - 1), np.eye(n - 1)])
    weight = np.concatenate([np.zeros(n), np.ones(2 * n - 2)])
    start = np.concatenate([point, np.maximum(differ @ point, 0.0), np.maximum(-differ @ point, 0.0)])
    found = minimize(
        lambda x: 0.5 * ((x[:n] - point) ** 2).sum(),
        start,
        jac=lambda x: np.concatenate([x[:n] - point, np.zeros(2 * n - 2)]),
        bounds=[(None, None)] * n + [(0.0, None)] * (2 * n - 2),
        constraints=[
            {"type": "eq", "fun": lambda x: matrix @ x, "jac": lambda x: matrix},
            {"type": "ineq", "fun": lambda x: bound - weight @ x, "jac": lambda x: -weight},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    answer: Values = found.x[:n]
    return answer


def test_variation_ends_where_split_variables_do():
    law = Inequality("law", lambda u, p: (u.diff().abs().sum() - 1.0)[None])
    u_hat = noise(4, 12, seed=7)
    u = Projector([law], (12,))(u_hat).raise_for_status().u.numpy()
    np.testing.assert_allclose(u, [by_split_variables(one, 1.0) for one in u_hat.numpy()], atol=1e-6)


def test_explicit_steps_from_an_initial_condition_need_no_weights():
    """Every unknown is determined: kinks of substituted rows have any slope, and the multipliers follow."""
    laws = [Equality("initial", lambda u, p: u[:, 0] - p["start"]), Equality("steps", godunov_steps),
            Equality("ends", lambda u, p: torch.cat([u[0, 1:] - 1.0, u[-1, 1:] + 1.0]))]  # fmt: skip
    start = torch.linspace(1.0, -1.0, 9, dtype=torch.float64)[None]  # a shock that stays where it is, on the kink
    result = Projector(laws, (9, 7), {"start": start})(noise(1, 9, 7), {"start": start}).raise_for_status()
    assert not result.generalized.any()
    assert float(measure(laws, noise(1, 9, 7), result.u, result.multipliers, {"start": start}).nearness) <= 1e-8


def test_bounds_and_kinks_together():
    laws: list[Law] = [
        Inequality("law", lambda u, p: (u.diff().abs().sum() - 1.0)[None]),
        Bounds(lower=-0.2, upper=0.4),
    ]
    u_hat = noise(8, 12, seed=8)
    result = Projector(laws, (12,))(u_hat).raise_for_status()
    sizes = measure(laws, u_hat, result.u, result.multipliers, {})
    assert float(sizes.violation.max()) <= 1e-8
    assert float(sizes.nearness.max()) <= 1e-8


@pytest.mark.parametrize("scale", [1e-6, 1e5])
def test_fields_of_any_unit(scale: float):
    law = Inequality("law", lambda u, p: (u.diff().abs().sum() - 1.0 * scale)[None])
    u_hat = noise(4, 16, seed=9)
    plain = Projector([Inequality("law", lambda u, p: (u.diff().abs().sum() - 1.0)[None])], (16,))(u_hat)
    result = Projector([law], (16,), tolerance=1e-8 * scale)(scale * u_hat).raise_for_status()
    torch.testing.assert_close(result.u / scale, plain.u, rtol=0, atol=1e-7)


def test_a_sample_has_the_same_bits_alone_and_in_any_batch():
    law, shape = CASES["Godunov steps"]
    u_hat = noise(11, *shape, seed=2)
    project = Projector([law], shape)
    whole = project(u_hat)
    assert whole.generalized.any()
    for i in torch.nonzero(whole.generalized).flatten().tolist():
        alone = project(u_hat[i : i + 1])
        assert torch.equal(alone.u[0], whole.u[i])
        assert torch.equal(alone.multipliers["law"][0], whole.multipliers["law"][i])


def test_parts_of_one_structure_are_each_on_their_own_kinks():
    law, shape = CASES["largest ="]  # seven slices, one System
    u_hat = noise(3, *shape, seed=4)
    u_hat[0, :, 2] = torch.linspace(-1.0, 0.45, 9)  # one element reaches 0.5: no kink in this slice
    result = Projector([law], shape)(u_hat).raise_for_status()
    expected = u_hat.clamp(max=0.5).scatter(1, u_hat.argmax(dim=1, keepdim=True), 0.5)
    torch.testing.assert_close(result.u, expected, rtol=0, atol=1e-9)


def test_nan_in_one_sample_leaves_the_others():
    law, shape = CASES["variation"]
    u_hat = noise(3, *shape, seed=2)
    project = Projector([law], shape)
    clean = project(u_hat)
    u_hat[1, 5] = torch.nan
    mixed = project(u_hat)
    assert not mixed.converged[1]
    for i in (0, 2):
        assert torch.equal(mixed.u[i], clean.u[i])


def test_threads_may_meet_at_the_first_kink():
    law, shape = CASES["sum of sizes ="]
    u_hat = noise(4, *shape, seed=2)
    project = Projector([law], shape)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: project(u_hat), range(4)))
    for one in results:
        assert torch.equal(one.u, results[0].u)


def test_a_jump_is_no_kink():
    """where(u > 0, 1, −1) has no weight between its sides: such an answer must not be certified on the jump."""
    jump: Callable[..., Tensor] = lambda u, p: torch.where(u > 0.0, u + 1.0, u - 1.0).sum(0)  # noqa: E731
    result = Projector([Equality("law", jump)], (2, 3))(noise(16, 2, 3, seed=1))
    good = result.converged
    assert float(result.violation[good].max()) <= 1e-8 if good.any() else True
    sizes = measure([Equality("law", jump)], noise(16, 2, 3, seed=1), result.u, result.multipliers, {})
    assert float(sizes.nearness[good].max()) <= 1e-6


GRADIENTS = [
    "sum of sizes <=",
    "variation in two dimensions",
    "upwind by where",
    "largest =",
    "Godunov steps",
    "network of relus",
]


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_on_kinks_are_those_of_finite_differences(name: str):
    """Along a random direction; kinks that hold the answer hold its neighbors too."""
    law, shape = CASES[name]
    project = Projector([law], shape, tolerance=1e-10)
    u_hat = noise(6, *shape, seed=2).requires_grad_()
    result = project(u_hat)
    assert result.generalized.any()
    weight, direction = noise(*shape, seed=11), noise(*shape, seed=12)
    (result.u * weight).sum().backward()
    assert u_hat.grad is not None
    step = 1e-5
    ahead, behind = (project(u_hat.detach() + sign * step * direction) for sign in (1.0, -1.0))
    slope = ((ahead.u - behind.u) * weight).flatten(1).sum(1) / (2 * step)
    found = (u_hat.grad * direction).flatten(1).sum(1)
    torch.testing.assert_close(found, slope, rtol=1e-4, atol=1e-4)


IN_PARAMS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...], type]] = {
    "limit of a sum of sizes": (lambda u, p: u.abs().sum()[None] - p["a"].square().sum(), (10,), Inequality),
    "moving kinks": (lambda u, p: (u - p["a"][0]).abs().sum()[None] - 2.0, (10,), Inequality),
    "weights of kinks": (lambda u, p: (p["a"][:2].square() * (u[1:] - u[:-1]).abs()).sum(0) - 1.0, (8, 2), Inequality),
    "relu of a product": (lambda u, p: torch.relu(u * p["a"][0] - p["a"][1]).sum()[None] - 0.2, (6,), Inequality),
    "largest is given": (lambda u, p: u.amax(0) - p["a"][:2], (5, 2), Equality),
}


@pytest.mark.parametrize("name", IN_PARAMS)
def test_gradients_in_params_on_kinks_are_those_of_finite_differences(name: str):
    """Params that move a limit, a switch, or the slopes beside a kink; the last sample is on none."""
    residual, shape, kind = IN_PARAMS[name]
    given = torch.tensor([1.1, 0.7, 0.4], dtype=torch.float64).repeat(5, 1)
    u_hat = noise(5, *shape, seed=4)
    project = Projector([kind("law", residual)], shape, {"a": given[:1]}, tolerance=1e-10)
    asked = given.clone().requires_grad_()
    result = project(u_hat, {"a": asked})
    assert result.converged.all()
    assert result.generalized.any()
    weight, direction, step = noise(*shape, seed=11), noise(5, 3, seed=12), 1e-6
    (result.u * weight).sum().backward()
    ahead, behind = (project(u_hat, {"a": given + sign * step * direction}).u for sign in (1.0, -1.0))
    slope = ((ahead - behind) * weight).flatten(1).sum(1) / (2 * step)
    assert asked.grad is not None
    torch.testing.assert_close((asked.grad * direction).sum(1), slope, rtol=1e-4, atol=1e-4)


def test_gradients_in_params_that_samples_share_add_up():
    law = Inequality("law", lambda u, p: u.abs().sum()[None] - p["c"])
    shared = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    alone = torch.tensor([2.0, 2.0], dtype=torch.float64, requires_grad=True)
    project = Projector([law], (10,), {"c": alone[:1].detach()})
    for c in (shared, alone):
        result = project(noise(2, 10), {"c": c})
        assert result.generalized.all()
        result.u.square().sum().backward()
    assert shared.grad is not None
    assert alone.grad is not None
    torch.testing.assert_close(shared.grad, alone.grad.sum(0, keepdim=True))


def test_many_kinks_take_few_steps():
    """Total variation of a picture: 1 984 kinks in loops, near and far."""
    y, x = torch.meshgrid(*[torch.linspace(0, 1, 32, dtype=torch.float64)] * 2, indexing="ij")
    u = ((x - 0.3).square() + (y - 0.5).square() < 0.06).double()[None]
    law = Inequality("law", lambda u, p: u.diff(dim=0).abs().sum()[None] + u.diff(dim=1).abs().sum() - p["most"])
    params = {"most": u.diff(dim=1).abs().sum((1, 2))[:, None] + u.diff(dim=2).abs().sum((1, 2))[:, None]}
    project = Projector([law], (32, 32), params)
    for scale in (0.02, 0.2):
        given = u + noise(1, 32, 32, seed=3, scale=scale)
        result = project(given, params)
        assert result.converged.all()
        assert int(result.iterations.max()) <= 80
        assert float(result.violation.max()) <= 1e-8
        assert float(result.stationarity.max()) <= 1e-6


def test_a_sum_of_sizes_of_many_unknowns_is_that_of_a_sort():
    """The nearest field within Σ|u| ≤ c shrinks all sizes by one number, which sorting finds."""
    given = noise(2, 3000, seed=5)
    result = Projector([Inequality("law", lambda u, p: u.abs().sum()[None] - 300.0)], (3000,))(given)
    assert result.converged.all()
    ordered = given.abs().sort(dim=1, descending=True).values
    cut = (ordered.cumsum(1) - 300.0) / torch.arange(1, 3001)
    shrink = cut.gather(1, (ordered > cut).sum(1, keepdim=True) - 1)
    torch.testing.assert_close(result.u, given.sign() * (given.abs() - shrink).clamp(min=0.0), rtol=0.0, atol=1e-8)


# Kinks that bounds settle.


@pytest.mark.parametrize(
    ("law", "bounds", "kinked"),
    [
        (lambda u, p: (u.clamp(min=0.01).log() * u).sum() + 1.0, Bounds(lower=0.01), False),
        (lambda u, p: (u.clamp(min=0.02).log() * u).sum() + 1.0, Bounds(lower=0.01), True),
        (lambda u, p: (u.abs() * u).sum() - 1.0, Bounds(lower=0.0), False),
        (lambda u, p: (u.abs() * u).sum() - 1.0, Bounds(upper=0.0), False),
        (lambda u, p: torch.relu(u[0] + u[1] - 0.5).square() - u[2:].sum() + 0.3, Bounds(lower=0.25), False),
        (lambda u, p: torch.relu(u[0] - u[1]).square() - u[2:].sum() + 0.3, Bounds(lower=0.25), True),
        (lambda u, p: (u.abs() * u).sum() - 1.0, None, True),
    ],
)  # fmt: skip
def test_a_kink_that_no_field_within_the_bounds_crosses_is_none(law, bounds, kinked: bool):
    laws = [Equality("law", law), *([] if bounds is None else [bounds])]
    method = Projector(laws, (6,)).method
    assert isinstance(method, Newton)
    assert method.kinked == kinked


def test_a_clamp_at_the_bound_does_not_change_the_answer():
    generator = torch.Generator().manual_seed(3)
    u_hat = 0.4 * torch.randn(12, 8, generator=generator, dtype=torch.float64)
    mass = Equality("mass", lambda u, p: u.sum() - 1.0)
    clamped = [mass, Equality("entropy", lambda u, p: -(u * u.clamp(min=1e-3).log()).sum() - 1.5), Bounds(lower=1e-3)]
    plain = [mass, Equality("entropy", lambda u, p: -(u * u.log()).sum() - 1.5), Bounds(lower=1e-3)]
    one, other = (Projector(laws, (8,))(u_hat).raise_for_status() for laws in (clamped, plain))
    assert torch.allclose(one.distance, other.distance, rtol=1e-7)
    assert not one.generalized.any()
