"""Metrics of variances alone, against the same laws written by hand for x = u/√D."""

from __future__ import annotations

import pickle
from threading import Thread

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import jvp, vmap

from snapfm import Bounds, Equality, Inequality, Metric, Oracle, Projector, Status, sample
from snapfm.laws import Law
from snapfm.solve.matrix_free.method import MatrixFree

SHAPE = (3, 4, 5)
SIZES = torch.tensor([1.0, 30.0, 2e3], dtype=torch.float64)[:, None, None]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def total(u, p):
    return (u / SIZES).sum((0, 1)) - p["m"][0]


def explicit(u, p):
    return u[:, :, 1:] - u[:, :, :-1] + 0.1 * u[:, :, :-1] ** 2 / SIZES


def implicit(u, p):
    return explicit(u, p) + 0.1 * u[:, :, 1:].roll(1, 1) + 0.1 * u[:, :, 1:] ** 2 / SIZES


def start(u, p):
    return u[:, :, 0] - SIZES[:, :, 0] * p["m"][0]


def spectrum(u, p):
    return torch.view_as_real(torch.fft.fft2(u[1] / 30.0)).square().sum(-1).reshape(-1)[:3] - 4.0 - p["m"][0].abs()


KINDS: dict[str, list[Law]] = {
    "affine": [Equality("total", total)],
    "products": [Equality("total", total), Equality("pairs", lambda u, p: (u[0] * u[1] / 30)[:, 1:].sum(0) - p["m"][1])],
    "inequalities": [
        Equality("total", total),
        Inequality("energy", lambda u, p: ((u / SIZES) ** 2).sum((0, 1)) - 3.0 - p["m"][0].abs()),
        Bounds(lower=-0.9 * SIZES),
    ],
    "aggregates": [
        Equality("momentum", lambda u, p: (u / SIZES)[1].sum(0) - p["m"][0]),
        Equality("energy", lambda u, p: ((u[1] / 30.0) ** 2).sum(0) - 3.0 - p["m"][0].abs()),
    ],
    "explicit": [Equality("start", start), Equality("steps", explicit)],
    "implicit": [Equality("start", start), Equality("steps", implicit)],
    "kinks": [
        Equality("variation", lambda u, p: (u / SIZES).diff(dim=1).abs().sum((0, 1)) - p["m"][0].abs() - 2.0)
    ],
    "opaque": [
        Equality("product", lambda u, p: torch.cumprod(1.0 + 0.3 * (u / SIZES).reshape(3, 20), 1)[:, -1] - p["m"][0].abs())
    ],
    "spectrum": [Equality("spectrum", spectrum)],
}  # fmt: skip
METRICS = {
    "by variable": Metric((SIZES**2).expand(SHAPE)),
    "by point": Metric(SIZES**2 * (0.3 + drawn(*SHAPE, seed=9).abs())),
}
PARAMS = {"m": 0.4 * drawn(4, 2, 1, seed=3)}
EXAMPLE = {"m": PARAMS["m"][:1]}
FIELDS = 0.6 * SIZES * drawn(4, *SHAPE, seed=5)


def by_hand(laws: list[Law], scale: Tensor) -> list[Law]:
    found: list[Law] = []
    for law in laws:
        if isinstance(law, Bounds):
            found.append(Bounds(lower=law.lower / scale))
        else:
            found.append(type(law)(law.name, lambda x, p, function=law.function: function(scale * x, p)))
    return found


@pytest.mark.parametrize("by", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_plain_projection_in_its_units(kind: str, by: str):
    metric = METRICS[by]
    scale, laws = metric.diagonal.sqrt(), KINDS[kind]
    project, plain = Projector(laws, SHAPE, EXAMPLE, metric=metric), Projector(by_hand(laws, scale), SHAPE, EXAMPLE)
    found, wanted = project(FIELDS, PARAMS), plain(FIELDS / scale, PARAMS)
    assert bool(found.converged.all())
    assert found.iterations.tolist() == wanted.iterations.tolist()
    torch.testing.assert_close(found.u / scale, wanted.u, rtol=0.0, atol=1e-11)
    torch.testing.assert_close(found.distance, wanted.distance, rtol=1e-11, atol=1e-12)
    for name, multipliers in found.multipliers.items():
        torch.testing.assert_close(multipliers, wanted.multipliers[name], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(project.move(FIELDS, PARAMS).u / scale, found.u / scale, rtol=0.0, atol=1e-5)
    assert int(project(FIELDS * 1.0001, PARAMS, warm=found).iterations.sum()) <= int(found.iterations.sum())
    assert torch.equal(Projector(laws, SHAPE, EXAMPLE)(FIELDS, PARAMS, metric=metric).u, found.u)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_plain_projection(kind: str):
    metric = METRICS["by point"]
    scale, weight = metric.diagonal.sqrt(), drawn(4, *SHAPE, seed=11)
    project = Projector(KINDS[kind], SHAPE, EXAMPLE, metric=metric)
    plain = Projector(by_hand(KINDS[kind], scale), SHAPE, EXAMPLE)

    def slopes(call: Projector, start: Tensor, by: Tensor | float) -> tuple[Tensor, ...]:
        u, m = start.clone().requires_grad_(), PARAMS["m"].clone().requires_grad_()
        return torch.autograd.grad((call(u, {"m": m}).u / by * weight).sum(), (u, m))

    (mine, my_params), (theirs, their_params) = slopes(project, FIELDS, scale), slopes(plain, FIELDS / scale, 1.0)
    torch.testing.assert_close(mine * scale, theirs, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(my_params, their_params, rtol=1e-8, atol=1e-9)


def test_multipliers_and_stationarity_are_those_of_the_metric():
    metric = METRICS["by point"]
    found = Projector(KINDS["products"], SHAPE, EXAMPLE, metric=metric)(FIELDS, PARAMS)
    for i in range(4):
        own = {"m": PARAMS["m"][i]}
        slopes = torch.zeros(SHAPE, dtype=torch.float64)
        for law in KINDS["products"]:
            pull = torch.func.vjp(lambda u, law=law, own=own: law.residual(u, own), found.u[i])[1]
            slopes += pull(found.multipliers[law.name][i])[0]
        left = found.u[i] - FIELDS[i] + metric.diagonal * slopes
        assert float(left.abs().max()) <= float(found.stationarity[i]) + 1e-9
        away = ((found.u[i] - FIELDS[i]) ** 2 / metric.diagonal).sum().sqrt()
        assert float(found.distance[i]) == pytest.approx(float(away), rel=1e-12)


def test_what_no_law_reads_keeps_its_bits_and_bounds_hold_exactly():
    metric = METRICS["by point"]
    bound = 0.1 * SIZES.expand(SHAPE)
    project = Projector(
        [Equality("one", lambda u, p: (u[0] ** 2).sum() - 1.0), Bounds(upper=bound)], SHAPE, metric=metric
    )
    found = project(FIELDS)
    assert torch.equal(found.u[:, 1:], torch.minimum(FIELDS, bound)[:, 1:])
    assert bool((found.u <= bound).all())


def test_laws_without_a_matrix_and_oracles_take_a_metric():
    metric = Metric(torch.linspace(0.5, 4.0, 20, dtype=torch.float64).view(4, 5))
    laws = [Equality("energy", lambda u, p: (u**2).sum(0) - 3.0), Bounds(lower=-1.1)]
    u = drawn(3, 4, 5, seed=2)
    wanted = Projector(laws, (4, 5), metric=metric)(u)
    project = Projector(laws, (4, 5), metric=metric)
    free = MatrixFree(_free(laws), project.limits, None)
    project._own = project._own._replace(method=MatrixFree(free.laws, project.limits, _units(project)))
    torch.testing.assert_close(project(u).u, wanted.u, rtol=0.0, atol=1e-7)

    def slope(v: np.ndarray, p: object) -> np.ndarray:
        return (2.0 * v[None] * np.eye(5)[:, None]).reshape(5, 20)

    oracle = Oracle("energy", lambda v, p: (v**2).sum(0) - 3.0, jacobian=slope)
    found = Projector([oracle, laws[1]], (4, 5), metric=metric)(u)
    assert bool(found.converged.all())
    torch.testing.assert_close(found.u, wanted.u, rtol=0.0, atol=1e-6)


def _free(laws: list[Law]):
    from snapfm.compile import matrix_free

    return matrix_free(laws, (4, 5), None, "a test")


def _units(project: Projector):
    return project.structure.scalar.units


def test_one_bad_sample_harms_no_other_and_threads_agree():
    project = pickle.loads(pickle.dumps(Projector([Equality("total", _total)], SHAPE, metric=METRICS["by point"])))
    u = FIELDS.clone()
    u[1, 0, 0, 0] = torch.nan
    found = project(u)
    assert found.status.tolist() == [Status.CONVERGED, Status.NONFINITE, Status.CONVERGED, Status.CONVERGED]
    assert torch.equal(project(u[2:3]).u[0], found.u[2])
    seen: list[Tensor] = []
    threads = [Thread(target=lambda: seen.append(project(FIELDS).u)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(one, seen[0]) for one in seen)


def _total(u, p):
    return (u / SIZES).sum((0, 1)) - 1.0


def test_forward_derivatives_and_vmap():
    metric = METRICS["by point"]
    project = Projector(KINDS["products"], SHAPE, EXAMPLE, metric=metric)
    along = SIZES * drawn(4, *SHAPE, seed=8)
    _, moved = jvp(lambda a: project(a, PARAMS).u, (FIELDS,), (along,))
    step = 1e-5
    there, back = (project(FIELDS + sign * step * along, PARAMS).u for sign in (1.0, -1.0))
    torch.testing.assert_close(moved / SIZES, (there - back) / (2 * step) / SIZES, rtol=0.0, atol=1e-5)
    each = vmap(lambda a, m: project(a[None], {"m": m[None]}).u[0])(FIELDS, PARAMS["m"])
    torch.testing.assert_close(each, project(FIELDS, PARAMS).u, rtol=0.0, atol=1e-9)


def test_a_flow_moves_in_the_metric():
    metric = METRICS["by variable"]
    project = Projector([Equality("total", _total)], SHAPE, metric=metric)
    out = sample(lambda u, tau: -u, project, count=3, steps=4, seed=1, dtype=torch.float64)
    assert bool(out.projection.converged.all())
    u = SIZES * drawn(2, *SHAPE, seed=4)
    moved = project.move(u).u - u
    weights = (moved * SIZES / metric.diagonal).flatten(1)  # all alike along each slice: DA is what a total moves
    torch.testing.assert_close(weights.view(2, 3, 4, 5), weights.view(2, 3, 4, 5)[:, :1, :1].expand(2, 3, 4, 5))


def test_a_shock_tube_in_si_units_is_as_easy_as_in_its_own():
    nx, nt, speed = 32, 10, 700.0

    def flux(state: Tensor) -> Tensor:
        density, momentum, energy = state
        pressure = 0.4 * (energy - 0.5 * momentum**2 / density)
        return torch.stack([momentum, momentum**2 / density + pressure, (energy + pressure) * momentum / density])

    def following(state: Tensor) -> Tensor:  # Rusanov
        edges = 0.5 * (flux(state)[:, 1:] + flux(state)[:, :-1]) - 0.5 * speed * state.diff(dim=1)
        return state[:, 1:-1] - 0.4 / speed * edges.diff(dim=1)

    laws = [
        Equality(
            "euler", lambda u, p: u[:, 1:-1, 1:] - torch.stack([following(one) for one in u[..., :-1].unbind(-1)], -1)
        )
    ]
    truth = []
    for place in torch.linspace(0.4, 0.6, 4, dtype=torch.float64):
        left = torch.linspace(0, 1, nx, dtype=torch.float64) < place
        state = torch.stack([torch.where(left, 1.0, 0.125), 0.0 * left, torch.where(left, 2.5e5, 2.5e4)]).double()
        states = [state]
        for _ in range(nt - 1):
            state = torch.cat([state[:, :1], following(state), state[:, -1:]], 1)
            states.append(state)
        truth.append(torch.stack(states, -1))
    fields = torch.stack(truth)
    sizes = fields.square().mean((0, 2, 3), keepdim=True).sqrt()
    u_hat = fields + 0.02 * sizes * drawn(*fields.shape, seed=2)
    found = Projector(laws, (3, nx, nt), metric=Metric.of_fields(fields))(u_hat)
    assert bool(found.converged.all())
    assert int(found.iterations.max()) <= 8
