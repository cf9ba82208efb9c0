"""`Projector.move`: the fields of a projection without its certificate."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Projector
from snapfm.errors import ParamsError, ShapeError

SHAPE = (3, 5)
ENERGY = torch.linspace(2.0, 4.0, 6, dtype=torch.float64)
PARAMS = {"energy": ENERGY}


def affine() -> Projector:
    return Projector(
        [
            Equality("first", lambda u, p: u[:, 0] - p["energy"]),
            Equality("total", lambda u, p: u[:, 1:].sum(0) - p["energy"]),
        ],
        SHAPE,
        {"energy": ENERGY[:1]},
    )


def curved() -> Projector:
    return Projector(
        [
            Equality("pinned", lambda u, p: u[0, 0] - 0.5),
            Equality("energy", lambda u, p: (u**2).sum() - p["energy"]),
        ],
        SHAPE,
        {"energy": ENERGY[:1]},
    )


def bounded() -> Projector:
    return Projector(
        [Inequality("energy", lambda u, p: (u**2).sum(1) - p["energy"]), Bounds(lower=-0.4, upper=0.9)],
        SHAPE,
        {"energy": ENERGY[:1]},
    )


PROJECTORS = {"affine": affine, "curved": curved, "bounded": bounded}


@pytest.fixture(params=PROJECTORS.values(), ids=PROJECTORS)
def project(request: pytest.FixtureRequest) -> Projector:
    return request.param()


def fields(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_it_gives_lawful_fields_as_near_as_the_projection(project: Projector):
    u_hat = fields(6)
    moved, whole = project.move(u_hat, PARAMS), project(u_hat, PARAMS).raise_for_status()
    assert float(project.check(moved.u, PARAMS).violation.max()) <= project.tolerance
    assert torch.allclose(moved.u, whole.u, rtol=0.0, atol=1e-6)  # the stationarity that the judge asks for


def test_float32_comes_back_as_float32(project: Projector):
    u_hat = fields(6).float()
    moved = project.move(u_hat, PARAMS)
    assert moved.u.dtype == torch.float32
    assert torch.allclose(moved.u.double(), project(u_hat.double(), PARAMS).u, rtol=0.0, atol=1e-5)


def test_the_input_is_left_as_it_was(project: Projector):
    for dtype in (torch.float32, torch.float64):
        u_hat = fields(6).to(dtype)
        before = u_hat.clone()
        project.move(u_hat, PARAMS)
        assert torch.equal(u_hat, before)


@pytest.mark.parametrize("count", [1, 2, 7, 9, 33])
def test_a_sample_does_not_know_its_batch(project: Projector, count: int):
    u_hat, params = fields(count), {"energy": 2.0 + torch.arange(count, dtype=torch.float64) / count}
    order = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    whole = project.move(u_hat, params).u
    assert torch.equal(project.move(u_hat[order], {"energy": params["energy"][order]}).u, whole[order])
    alone = project.move(u_hat[-1:], {"energy": params["energy"][-1:]}).u
    assert torch.equal(alone, whole[-1:])


def test_one_broken_sample_leaves_the_others(project: Projector):
    u_hat = fields(6)
    whole = project.move(u_hat, PARAMS).u
    u_hat[2, 1, 1] = torch.nan
    others = [0, 1, 3, 4, 5]
    assert torch.equal(project.move(u_hat, PARAMS).u[others], whole[others])


def test_an_empty_batch_stays_empty(project: Projector):
    assert project.move(fields(0), {"energy": ENERGY[:0]}).u.shape == (0, *SHAPE)


@pytest.mark.parametrize("begin", ["move", "project"])
def test_it_goes_on_from_where_another_ended(project: Projector, begin: str):
    u_hat = fields(6)
    before = project.move(u_hat, PARAMS) if begin == "move" else project(u_hat, PARAMS)
    nearby = u_hat + 1e-3 * fields(6, seed=1)
    warm = project.move(nearby, PARAMS, warm=before)
    assert torch.allclose(warm.u, project(nearby, PARAMS).u, rtol=0.0, atol=1e-6)
    assert bool(project(nearby, PARAMS, warm=warm).converged.all())


def test_a_broken_sample_does_not_spoil_the_next_start(project: Projector):
    u_hat = fields(6)
    broken = u_hat.clone()
    broken[4] = torch.inf
    warm = project.move(broken, PARAMS)
    assert bool(project(u_hat, PARAMS, warm=warm).converged.all())
    assert torch.isfinite(project.move(u_hat, PARAMS, warm=warm).u).all()


def test_a_projection_by_another_projector_of_the_same_laws_will_do(project: Projector, request):
    u_hat = fields(6)
    other = PROJECTORS[request.node.callspec.id]()
    before = other(u_hat, PARAMS)
    assert bool(project(u_hat, PARAMS, warm=before).converged.all())
    assert bool(project(u_hat, PARAMS, warm=replace(before, warm=None)).converged.all())
    assert bool(project(u_hat, PARAMS, warm=other.move(u_hat, PARAMS)).converged.all())


def test_a_start_of_another_batch_is_refused(project: Projector):
    with pytest.raises(ParamsError, match=r"project\(warm=…\) expects an earlier result of a batch of 2; got one of 6"):
        project.move(fields(2), {"energy": ENERGY[:2]}, warm=project.move(fields(6), PARAMS))


def test_the_door_is_the_same(project: Projector):
    with pytest.raises(ShapeError, match=r"project\(u_hat=…\) expects \(b, 3, 5\); got \(3, 5\)"):
        project.move(fields(1)[0], PARAMS)
    with pytest.raises(ParamsError, match="expects the names"):
        project.move(fields(6), {})


def test_no_gradient_comes_with_it(project: Projector):
    u_hat = fields(6).requires_grad_()
    assert not project.move(u_hat, PARAMS).u.requires_grad
