"""Metropolis steps: they leave the density on the surface as it is, in either measure, and never leave the surface."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from snapfm import Bounds, Equality, Metric, Projector
from snapfm.laws import Law
from snapfm.sampling.conditional import metropolis
from snapfm.sampling.conditional.conditioning import Conditioning
from snapfm.sampling.conditional.metropolis import Chain
from snapfm.seeds import stream

WIDE, HIGH = 1.5, 0.7
CENTER = torch.tensor([0.6, 0.2], dtype=torch.float64)
TURNED = torch.tensor([[0.8, 0.6]], dtype=torch.float64)
METRIC = Metric(0.8, TURNED, torch.tensor([0.9], dtype=torch.float64))
ELLIPSE = Equality("ellipse", lambda u, p: (u[0] / WIDE) ** 2 + (u[1] / HIGH) ** 2 - 1.0)


def run(start: Tensor, measure: str, steps: int, laws: Sequence[Law] = (ELLIPSE,), first: int = 0) -> Tensor:
    projector = Projector(list(laws), (2,))
    near = Conditioning(projector, METRIC, None, len(start), 1)
    streams = tuple(stream(7, first + i) for i in range(len(start)))
    return Chain(near, measure).run(start, CENTER.expand_as(start), [METRIC] * len(start), streams, steps)


def on_ellipse(angle: Tensor) -> Tensor:
    return torch.stack([WIDE * angle.cos(), HIGH * angle.sin()], dim=1)


def density(measure: str) -> tuple[Tensor, Tensor]:
    """Return angles and their probabilities, by integration."""
    angle = 2.0 * math.pi * (torch.arange(6000, dtype=torch.float64) + 0.5) / 6000
    x = on_ellipse(angle)
    away = x - CENTER
    covariance = 0.8 * torch.eye(2, dtype=torch.float64) + 0.9 * TURNED.T @ TURNED
    found = torch.exp(-0.5 * (away @ torch.linalg.inv(covariance) * away).sum(1))
    found = found * torch.stack([WIDE * angle.sin(), HIGH * angle.cos()], dim=1).norm(dim=1)
    if measure == "residual":
        slopes = 2.0 * x / torch.tensor([WIDE, HIGH], dtype=torch.float64) ** 2
        found = found / slopes.norm(dim=1)
    return angle, found / found.sum()


@pytest.mark.parametrize("measure", ["surface", "residual"])
def test_the_density_stays_as_it_is(measure: str):
    """From exact draws, chains change single fields but no mean: paired, so that the differences decide."""
    count = 300
    angle, weight = density(measure)
    drawn = torch.multinomial(weight, count, replacement=True, generator=torch.Generator().manual_seed(0))
    start = on_ellipse(angle[drawn])
    found = run(start, measure, 6)
    scale = torch.tensor([WIDE, HIGH], dtype=torch.float64)
    assert ((found / scale).square().sum(1) - 1.0).abs().max() <= 1e-8
    assert (found != start).any(1).double().mean() > 0.5
    for test in (lambda u: u, torch.square, lambda u: u.prod(1, keepdim=True)):
        change = test(found) - test(start)
        assert (change.mean(0).abs() <= 3.0 * change.std(0) / count**0.5).all()


def test_the_factor_of_either_measure_is_that_of_the_dense_jacobian():
    """det(JΣJᵀ)^−½ relative to the surface of the metric; the surface measure has det(JJᵀ)^½ more."""
    laws = [ELLIPSE, Equality("saddle", lambda u, p: u[2] - u[0] * u[1])]
    projector = Projector(laws, (3,))
    metric = Metric(0.3, torch.tensor([[0.6, 0.0, 0.8]], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64))
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    near = Conditioning(projector, metric, None, 4, 1)
    frames = near.near.frames(x.numpy(), near.inside)
    slopes = torch.func.vmap(
        torch.func.jacrev(lambda u: torch.stack([law.residual(u, {}).reshape(()) for law in laws]))
    )(x)
    covariance = 0.3 * torch.eye(3, dtype=torch.float64) + 2.0 * torch.outer(
        *[torch.tensor([0.6, 0.0, 0.8]).double()] * 2
    )
    inside = -0.5 * torch.logdet(slopes @ covariance @ slopes.mT)
    plain = 0.5 * torch.logdet(slopes @ slopes.mT)
    residual, surface = (metropolis._Normals.of(frames, [metric] * 4, one).volume for one in ("residual", "surface"))
    torch.testing.assert_close(torch.from_numpy(residual), inside)
    torch.testing.assert_close(torch.from_numpy(surface), inside + plain)


def test_dense_normals_move_as_the_frames_do(monkeypatch: pytest.MonkeyPatch):
    start = on_ellipse(torch.linspace(0.0, 6.0, 9, dtype=torch.float64))
    dense = run(start, "residual", 5)
    monkeypatch.setattr(metropolis, "_FEW", 0)
    torch.testing.assert_close(
        run(start, "residual", 5), dense, rtol=0.0, atol=1e-7
    )  # both within the tolerance of the laws


def test_a_sample_alone_has_the_bits_it_has_in_a_batch():
    start = on_ellipse(torch.linspace(0.0, 6.0, 9, dtype=torch.float64))
    together = run(start, "surface", 4)
    assert torch.equal(run(start[4:5], "surface", 4, first=4)[0], together[4])
    assert not torch.equal(together, start)


def test_bounds_reject():
    start = on_ellipse(torch.linspace(-1.0, 1.0, 30, dtype=torch.float64))
    laws = (ELLIPSE, Bounds(lower=torch.tensor([0.5, -9.0], dtype=torch.float64)))
    assert float(run(start, "surface", 10, laws)[:, 0].min()) >= 0.5
    assert float(run(start, "surface", 10)[:, 0].min()) < 0.5
