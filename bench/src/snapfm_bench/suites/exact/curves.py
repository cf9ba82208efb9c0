"""Nonlinear laws that leave a closed curve of a Gaussian's space, by integration along the curve, in either measure."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from snapfm.laws import Equality
from snapfm.sampling.conditional.sampler import Measure
from snapfm_bench.suites.exact.case import ExactCase
from snapfm_bench.suites.exact.gaussian import Gaussian
from snapfm_bench.suites.exact.scores import Shares

_BINS, _FINE = 24, 200  # bins of the histogram, and points of integration in each


def ellipse(measure: Measure) -> ExactCase:
    """An ellipse in the plane."""
    wide, high = 2.0, 1.0
    law = Equality("ellipse", lambda u, p: (u[0] / wide) ** 2 + (u[1] / high) ** 2 - 1.0)
    prior = _gaussian((0.5, 0.3), ((1.0, 0.3), (0.3, 0.5)))
    return _on_curve(
        "ellipse", "Ellipse", measure, prior, (law,), lambda a: torch.stack([wide * a.cos(), high * a.sin()], -1),
        lambda u: torch.atan2(u[:, 1] / high, u[:, 0] / wide),
    )  # fmt: skip


def saddle(measure: Measure) -> ExactCase:
    """The curve in space where an elliptic cylinder cuts the saddle z = xy."""
    wide, high = 1.2, 0.8
    laws = (
        Equality("cylinder", lambda u, p: (u[0] / wide) ** 2 + (u[1] / high) ** 2 - 1.0),
        Equality("saddle", lambda u, p: u[2] - u[0] * u[1]),
    )
    prior = _gaussian((0.3, -0.2, 0.1), ((0.8, 0.2, 0.1), (0.2, 0.6, -0.1), (0.1, -0.1, 0.5)))

    def place(angle: Tensor) -> Tensor:
        x, y = wide * angle.cos(), high * angle.sin()
        return torch.stack([x, y, x * y], -1)

    return _on_curve(
        "saddle", "Saddle curve", measure, prior, laws, place, lambda u: torch.atan2(u[:, 1] / high, u[:, 0] / wide)
    )  # fmt: skip


def _gaussian(mean: tuple[float, ...], covariance: tuple[tuple[float, ...], ...]) -> Gaussian:
    return Gaussian(torch.tensor(mean, dtype=torch.float64), torch.tensor(covariance, dtype=torch.float64))


def _on_curve(
    name: str, title: str, measure: Measure, prior: Gaussian, laws: tuple[Equality, ...],
    place: Callable[[Tensor], Tensor], angle: Callable[[Tensor], Tensor],
) -> ExactCase:  # fmt: skip
    """Make the case of a curve: `place` takes angles in [0, 2π) to points, `angle` takes points back."""
    angles = 2.0 * math.pi * (torch.arange(_BINS * _FINE, dtype=torch.float64) + 0.5) / (_BINS * _FINE)
    points = place(angles)
    tangents = torch.func.vmap(torch.func.jacfwd(place))(angles)
    density = prior.log_density(points).exp() * tangents.norm(dim=1)
    if measure == "residual":
        density = density / _volume(laws, points)
    density = density / density.sum()

    def given(count: int, generator: torch.Generator) -> Tensor:
        which = torch.multinomial(density, count, replacement=True, generator=generator)
        return points[which]

    def label(u: Tensor) -> Tensor:
        share = angle(u).remainder(2.0 * math.pi) / (2.0 * math.pi)
        return (share * _BINS).long().clamp(max=_BINS - 1)

    shares = Shares("variation", density.view(_BINS, _FINE).sum(1), label)
    return ExactCase(
        f"{name}-{measure}", f"{title}, {measure}", (points.shape[1],), laws, prior.expected, prior.draw, given, shares, measure,
        curved=True,
    )  # fmt: skip


def _volume(laws: tuple[Equality, ...], points: Tensor) -> Tensor:
    """Return √det(JJᵀ) (b,) by automatic differentiation of the laws."""
    jacobian = torch.func.vmap(
        torch.func.jacrev(lambda u: torch.cat([law.residual(u, {}).reshape(-1) for law in laws]))
    )(points)
    found: Tensor = torch.linalg.det(jacobian @ jacobian.mT).sqrt()
    return found
