"""Descent sample by sample: it ends at minima that are known, and samples share nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from snapfm.sampling.descent import Objective, Slope, descend

EPS = torch.finfo(torch.float64).eps


def differentiable(objective: Objective) -> tuple[Objective, Slope]:
    def slope(u: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            at = u.detach().requires_grad_()
            value = objective(at)
            (found,) = torch.autograd.grad(value.sum(), at)
        return value.detach(), found.double()

    return objective, slope


def start(count: int = 3) -> Tensor:
    return torch.randn(count, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


SCALES = torch.logspace(0, 2, 15, dtype=torch.float64).reshape(3, 5)


def bowl(u: Tensor) -> Tensor:
    return (SCALES * (u - 1.0).square()).flatten(1).sum(1)


def valley(u: Tensor) -> Tensor:
    """Rosenbrock's valley between neighbours of the last axis: curved, narrow, lowest at one."""
    return (10 * (u[..., 1:] - u[..., :-1] ** 2).square() + (1 - u[..., :-1]).square()).flatten(1).sum(1)


def test_one_square_takes_one_step():
    objective, slope = differentiable(lambda u: (u.flatten(1).sum(1) - 2.0).square())
    found = descend(objective, slope, start(), 1)
    assert float((found.flatten(1).sum(1) - 2.0).abs().max()) <= 40 * EPS * float(start().abs().sum())
    moved = found - start()  # along the slope, nothing else
    assert torch.allclose(moved, moved[:, :1, :1].expand_as(moved), rtol=0.0, atol=8 * EPS)


def test_a_stretched_bowl_is_solved():
    found = descend(*differentiable(bowl), start(), 60, memory=20)
    assert float((found - 1.0).abs().max()) <= 1e-6


def test_a_curved_valley_is_followed():
    found = descend(*differentiable(valley), start(), 200, memory=20)
    assert float((found - 1.0).abs().max()) <= 1e-6


def test_no_sample_ever_rises():
    objective, slope = differentiable(valley)
    before = objective(start())
    for iterations in range(1, 12):
        after = objective(descend(objective, slope, start(), iterations))
        assert bool((after <= before).all())
        before = after


def test_enough_is_enough_for_each_sample():
    objective, slope = differentiable(bowl)
    calls: list[int] = []

    def counted(u: Tensor) -> Tensor:
        calls.append(1)
        return objective(u)

    feasible = torch.ones(1, 3, 5, dtype=torch.float64)
    found = descend(counted, slope, feasible, 10, enough=1e-12)
    assert torch.equal(found, feasible)
    assert not calls
    found = descend(objective, slope, start(), 100, memory=20, enough=1e-6)
    assert float(objective(found).max()) <= 1e-6


def test_a_sample_alone_descends_as_in_a_batch():
    whole = descend(*differentiable(valley), start(7), 15, memory=5)
    for i in range(7):
        assert torch.equal(descend(*differentiable(valley), start(7)[i : i + 1], 15, memory=5)[0], whole[i])


def misled(index: int | None) -> tuple[Objective, Slope]:
    """The valley, with a slope of the wrong sign for one sample after its first step, so that no length descends there."""
    objective, slope = differentiable(valley)
    looked: list[int] = []

    def wrong(u: Tensor) -> tuple[Tensor, Tensor]:
        value, found = slope(u)
        looked.append(1)
        if index is not None and len(looked) == 2:
            found[index] = -found[index]
        return value, found

    return objective, wrong


def test_a_sample_that_cannot_descend_stops_for_good_and_for_itself():
    alone = descend(*misled(0), start()[:1], 10)
    whole = descend(*misled(0), start(), 10)
    assert torch.equal(alone[0], whole[0])  # not tried again because others go on
    healthy = descend(*misled(None), start(), 10)
    assert torch.equal(whole[1:], healthy[1:])


def test_a_sample_that_is_no_number_stays_where_it_is():
    objective, slope = differentiable(valley)
    broken = start()
    broken[1, 0, 0] = torch.nan
    found = descend(objective, slope, broken, 10)
    assert torch.equal(found[[0, 2]], descend(objective, slope, start(), 10)[[0, 2]])
    assert torch.equal(found[1].nan_to_num(9.0), broken[1].nan_to_num(9.0))


def test_a_step_into_what_is_no_number_is_shortened():
    def walled(u: Tensor) -> Tensor:
        total = u.flatten(1).sum(1)
        return torch.where(total < 1e-3, torch.nan, total.log().square())  # the first step ends far below zero

    objective, slope = differentiable(walled)
    begin = torch.full((1, 3, 5), 10.0, dtype=torch.float64)
    assert float(objective(descend(objective, slope, begin, 20))) <= 1e-8


def test_flat_ground_is_left_alone():
    objective, slope = differentiable(lambda u: 1.0 + 0.0 * u.flatten(1).sum(1))
    assert torch.equal(descend(objective, slope, start(), 5), start())


def test_the_share_done_is_reported():
    reported: list[float] = []
    descend(*differentiable(valley), start(), 4, progress=reported.append)
    assert reported == [0.25, 0.5, 0.75, 1.0]
