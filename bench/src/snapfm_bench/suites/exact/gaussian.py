"""Gaussian fields: densities in closed form, and the case of a field on a grid with its first slice and sums given."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from snapfm.laws import Equality
from snapfm_bench.suites.exact.case import ExactCase
from snapfm_bench.suites.exact.scores import ExactMoments

_SEED = 99  # of the field that sets the values of the laws
_NUGGET = 1e-4  # variance of white noise in the field: no direction is without any


@dataclass(frozen=True, eq=False)
class Gaussian:
    """N(mean, covariance) of x, and what follows for states u = τx + (1 − τ)·noise. The covariance may be singular."""

    mean: Tensor  # (n,)
    covariance: Tensor  # (n, n)

    @cached_property
    def _axes(self) -> tuple[Tensor, Tensor]:
        variances, axes = torch.linalg.eigh(self.covariance)
        # What the laws fix has no variance but rounding, whose root would be visible.
        rounding = len(variances) * torch.finfo(torch.float64).eps * float(variances.max())
        return torch.where(variances > rounding, variances, 0.0), axes

    def expected(self, u: Tensor, tau: float) -> Tensor:
        """Return the mean of x given states (b, n)."""
        variances, axes = self._axes
        gain = tau * variances / (tau**2 * variances + (1.0 - tau) ** 2)
        return self.mean + (u - tau * self.mean) @ ((axes * gain) @ axes.T)

    def log_density(self, u: Tensor, tau: float = 1.0) -> Tensor:
        """Return the log density (b,) of states (b, n); of fields at τ = 1."""
        variances, axes = self._axes
        total = tau**2 * variances + (1.0 - tau) ** 2
        away = (u - tau * self.mean) @ axes
        return -0.5 * ((away.square() / total).sum(1) + total.log().sum() + len(total) * math.log(2.0 * math.pi))

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw x, (count, n)."""
        variances, axes = self._axes
        white = torch.randn(count, len(variances), generator=generator, dtype=torch.float64)
        return self.mean + (white * variances.sqrt()) @ axes.T

    def of_rows(self, rows: Tensor) -> Gaussian:
        """Return the distribution of rows @ x, for rows (m, n)."""
        return Gaussian(rows @ self.mean, rows @ self.covariance @ rows.T)

    def given(self, rows: Tensor, values: Tensor) -> Gaussian:
        """Return the distribution of x given rows @ x = values."""
        gain = torch.linalg.solve(rows @ self.covariance @ rows.T, rows @ self.covariance).T
        covariance = self.covariance - gain @ rows @ self.covariance
        return Gaussian(self.mean + gain @ (values - rows @ self.mean), 0.5 * (covariance + covariance.T))

    def moments(self) -> ExactMoments:
        """Return mean and spread."""
        return ExactMoments(self.mean, self.covariance.diagonal().clamp(min=0.0).sqrt())


def gaussian_field(points: int = 12) -> ExactCase:
    """A smooth Gaussian field u(x, t); the first slice and the sum over x at every later time are given."""
    line = torch.linspace(0.0, 1.0, points, dtype=torch.float64)
    x, t = (one.flatten() for one in torch.meshgrid(line, line, indexing="ij"))
    square = ((x[:, None] - x) / 0.3) ** 2 + ((t[:, None] - t) / 0.5) ** 2
    covariance = torch.exp(-0.5 * square) + _NUGGET * torch.eye(points**2, dtype=torch.float64)
    prior = Gaussian(torch.sin(2.0 * math.pi * x) * t, covariance)
    shape = (points, points)
    true = prior.draw(1, torch.Generator().manual_seed(_SEED)).view(shape)
    first, sums = true[:, 0].clone(), true.sum(0)[1:]

    laws = (
        Equality("first slice", lambda u, p: u[:, 0] - first),
        Equality("sums", lambda u, p: u.sum(0)[1:] - sums),
    )
    units = torch.eye(points**2, dtype=torch.float64).view(-1, *shape)
    rows = torch.cat([units[:, :, 0], units.sum(1)[:, 1:]], dim=1).T
    given = prior.given(rows, torch.cat([first, sums]))
    return ExactCase(
        "gaussian", "Gaussian field", shape, laws, prior.expected, lambda n, g: prior.draw(n, g).view(-1, *shape),
        lambda n, g: given.draw(n, g).view(-1, *shape), given.moments(),
    )  # fmt: skip
