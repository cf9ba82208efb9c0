"""Spread: how a model's fields vary, as a few principal directions and what is left. Gives a sampler its metric at every τ.

A field x and the state u = αx + σ·noise are jointly Gaussian to second order; given u, the variance w of a principal direction
shrinks to wσ²/(α²w + σ²) (math.md, eq. spread). Where fields are far from Gaussian, `pieces` describe them along the first
directions (eq. pieces). Directions are orthonormal in units in which the model's noise is white. Knows fields and paths, no laws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from snapfm.display import brief
from snapfm.errors import ParamsError, ShapeError
from snapfm.laws.checks import Check, is_count, is_real
from snapfm.project.metric import Metric
from snapfm.sampling.checks import path_of
from snapfm.sampling.conditional.mixture import GaussianMixture, fitted
from snapfm.sampling.conditional.predictions import known_error, predicted_error, principal
from snapfm.sampling.path import Path
from snapfm.sampling.task import network_of, noise_units

_EXACT = 1024  # fields or unknowns up to which all directions are computed
_SPARE = 16  # directions beyond those asked for, and rounds: the usual safety of a randomized range finder
_ROUNDS = 3
# Least variance of what is left, relative to the largest direction's: keeps the metric's inverse meaningful in float64.
_FLOOR = 1e-10
_VISIBLE = 1e-6  # variance relative to the largest above which a direction takes part in the pieces


@dataclass(frozen=True, eq=False)
class Spread:
    """How fields vary: orthonormal `directions` (r, *shape) with `variances` (r,), and the variance `rest` in all others.

    All three are those of fields divided by `scale`, the size of the model's noise: a number, or a tensor of a field's shape.
    `pieces` is a mixture in the coordinates of fields along the first directions, relative to `center` (*shape). Build one with
    `of_fields` from training fields, or with `of_model`.
    """

    directions: Tensor
    variances: Tensor
    rest: float
    scale: float | Tensor = 1.0
    center: Tensor | None = None
    pieces: GaussianMixture | None = None

    def __repr__(self) -> str:
        return brief(self)

    @classmethod
    def of_fields(
        cls, fields: Tensor, rank: int = 64, scale: float | Tensor = 1.0, pieces: bool = True,
        velocity: Callable[[Tensor, Any], Tensor] | None = None,
    ) -> Spread:  # fmt: skip
        """Estimate from fields (count, *shape): training data, or any fields that vary as the model's do.

        Pass the `velocity` too if it was learned: its error then becomes the smallest variance of any direction (math.md, eq.
        error). More fields are better: with fewer than a few times `rank`, the smaller variances are noise. `scale` is the size
        of the model's noise if that is not one, such as the std of adapters.Normalized; it is read from the velocity if that is
        given. `pieces=False` describes fields as Gaussian even if a mixture describes held-out fields better.
        """
        if not isinstance(fields, Tensor) or fields.ndim < 2 or len(fields) < 2 or not fields[0].numel():
            came = tuple(fields.shape) if isinstance(fields, Tensor) else type(fields).__name__
            raise ShapeError(
                f"Spread.of_fields expects at least two fields, (count, *shape); got {came}. Stack fields along a first axis."
            )
        Check(is_count, "a whole number >= 1", "The default is 64.", ShapeError).apply("Spread.of_fields(rank)", rank)
        if velocity is not None:
            scale = noise_units(velocity, tuple(fields.shape[1:]))[1]
        units = _units(scale, fields.shape[1:])
        flat = (fields.detach().to("cpu", torch.float64) / units).flatten(1)
        center = flat.mean(dim=0)
        centered = flat - center
        count, size = centered.shape
        total = float(centered.square().sum()) / (count - 1)
        values, directions = _principal(centered, min(rank, count - 1, size))
        variances = values.square() / (count - 1)
        kept = max(1, int((variances > _FLOOR * float(variances.max())).sum()))  # the others are as good as none
        variances, directions = variances[:kept], directions[:kept].contiguous()
        left = max(0.0, total - float(variances.sum())) / max(1, size - len(variances))
        found = None
        if pieces:
            visible = int((variances > max(_VISIBLE * float(variances.max()), left)).sum())
            found = fitted((centered @ directions[:visible].T).numpy())
        middle = center.view(fields.shape[1:]) * units
        made = cls(directions.reshape(-1, *fields.shape[1:]), variances, left, scale, middle, found)
        return (
            made if velocity is None else made._with_error(*predicted_error(velocity, fields), path_of(None, velocity))
        )

    @classmethod
    def of_samples(cls, samples: Any, rank: int = 64) -> Spread:
        """Estimate from the fields of a sampling run, `samples.u` (count, *shape)."""
        return cls.of_fields(samples.u, rank)

    @classmethod
    def of_model(
        cls, velocity: Callable[[Tensor, Any], Tensor], shape: tuple[int, ...] | None = None, count: int = 256, steps: int = 20,
        generator: torch.Generator | None = None, rank: int = 64, rest: float | None = None,
    ) -> Spread:  # fmt: skip
        """Estimate from `count` unconstrained samples of the model, fields of `shape`.

        A model predicts its own samples better than true fields, so they do not show its error, which the spread has to contain.
        `rest` is that error: the mean square per unknown of its predictions minus true fields, in units of its noise; too large
        is better than too small, and 0 means an exact velocity. None takes the attribute `error` of the network, or the `rest`
        of its own spread, and refuses a velocity that has neither.
        """
        from snapfm.sampling.sample import sample  # it names Conditional, which names this class

        error = known_error(velocity) if rest is None else rest
        if error is None:
            raise ParamsError(
                "Spread.of_model expects a velocity that knows the error of its predictions, as `error`; got one that does not, "
                "and its own samples do not show it. Give rest=…, the mean squared error per unknown, or estimate from true "
                "fields: Spread.of_fields(fields, velocity=velocity)."
            )
        if not is_real(error) or not 0.0 <= error < math.inf:
            raise ParamsError(
                f"Spread.of_model(rest) expects a number >= 0, and a finite one; got {rest!r}. Give the mean square per unknown "
                "of the model's predictions minus true fields."
            )
        seeded = generator or torch.Generator().manual_seed(0)
        drawn = sample(velocity, None, None, count, steps, seeded, shape=shape)
        found = cls.of_fields(drawn.u, rank, velocity=velocity)
        return replace(found, rest=max(found.rest, float(error)))

    def refined(self, velocity: Callable[[Tensor, Any], Tensor]) -> Spread:
        """Replace what was estimated from fields by the slopes of the model's own predictions (math.md, eq. slopes).

        Exact for a model of Gaussian fields, whose spread from N fields has an error of 1/√N. Takes about a thousand evaluations
        of the velocity. `rest` can only grow, because it may contain the model's error. If fields are described by `pieces`,
        nothing is refined.
        """
        shape = tuple(self.directions.shape[1:])
        own = self.in_units(noise_units(velocity, shape)[1])
        if own.pieces is not None:
            return own
        center = torch.zeros(shape, dtype=torch.float64) if own.center is None else own.center
        directions, variances, rest = principal(velocity, own.directions, own.variances, own.rest, center)
        return replace(own, directions=directions, variances=variances, rest=max(own.rest, rest))

    @property
    def size(self) -> float:
        """The standard deviation of a field as a whole: the root of the sum of all variances, in units of the noise."""
        others = self.directions[0].numel() - len(self.directions)
        return math.sqrt(float(self.variances.sum()) + others * self.rest)

    @cached_property
    def axes(self) -> Tensor:
        """The directions in the units of the fields (r, *shape)."""
        own = torch.as_tensor(self.scale, dtype=self.directions.dtype)
        return self.directions if bool((own == 1.0).all()) else self.directions * own

    def left(self, path: Path, tau: float) -> tuple[Tensor, float]:
        """Return the variances (r,) given a state at τ, and that of all other directions, in units of the noise."""
        data, noise = path.data(tau) ** 2, path.noise(tau) ** 2
        shrunk = self.variances * noise / (data * self.variances + noise)
        floor = _FLOOR * float(shrunk.max()) if len(shrunk) else 0.0
        return shrunk, max(self.rest * noise / (data * self.rest + noise), floor, torch.finfo(torch.float64).tiny)

    def _with_error(self, error: float, tau: float, path: Path) -> Spread:
        """Return the spread with the part of a mean squared error at τ that it does not explain as its least variance."""
        shrunk, left = self.left(path, tau)
        points = self.directions[0].numel()
        explained = (float(shrunk.sum()) + (points - len(shrunk)) * left) / points
        return replace(self, rest=max(self.rest, error - explained))

    def at(self, path: Path, tau: float) -> Metric:
        """Return the covariance of the data given a state at τ, the same for all states: `pieces` are left aside."""
        shrunk, left = self.left(path, tau)
        return self.metric(left, (shrunk - left).clamp(min=0.0))

    def metric(self, left: float, along: Tensor) -> Metric:
        """Return a metric in the units of the fields, with `along` its variances or Cholesky factor along the directions."""
        own = torch.as_tensor(self.scale, dtype=torch.float64)
        diagonal = left * float(own) ** 2 if own.ndim == 0 else (left * own.square()).expand(self.directions.shape[1:])
        return self._whole.changed(diagonal, along)

    @cached_property
    def _whole(self) -> Metric:
        return Metric(1.0, self.axes, self.variances)

    def in_units(self, scale: Tensor) -> Spread:
        """Return the spread for noise of another size: a number, or a tensor of a field's shape.

        If that changes directions, their covariance is turned, what is left is replaced by its mean, and pieces are lost.
        """
        change = torch.as_tensor(self.scale, dtype=torch.float64) / scale
        if bool((change == 1.0).all()):
            return self
        first = float(change.flatten()[0])
        rest = self.rest * float(change.square().mean())
        if bool((change == first).all()):
            pieces = None if self.pieces is None else self.pieces.scaled(first)
            return replace(self, variances=self.variances * first**2, rest=rest, scale=scale, pieces=pieces)
        basis, triangle = torch.linalg.qr((self.directions * change).flatten(1).T)
        inside = (triangle * (self.variances - self.rest).clamp(min=0.0)) @ triangle.T
        variances, turned = torch.linalg.eigh(inside)
        directions = (turned.T @ basis.T).view_as(self.directions).flip(0)
        return replace(
            self, directions=directions, variances=variances.flip(0).clamp(min=0.0) + rest, rest=rest, scale=scale, pieces=None
        )  # fmt: skip


def _units(scale: float | Tensor, shape: torch.Size) -> Tensor:
    """Return the size of noise as a tensor that fields are divided by; refuse what is none."""
    units = torch.as_tensor(scale, dtype=torch.float64).cpu()
    if units.ndim not in (0, len(shape)) or any(n not in (1, m) for n, m in zip(units.shape, shape)):
        raise ShapeError(
            f"Spread.of_fields(scale) expects a number, or the axes of a field {tuple(shape)}; got {tuple(units.shape)}. One "
            "value for each component has shape (c, 1, 1)."
        )
    if not bool((torch.isfinite(units) & (units > 0)).all()):
        raise ParamsError(
            "Spread.of_fields(scale) expects positive, finite numbers; got others. Give the std of the model's noise."
        )
    return units


def _principal(centered: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return the largest singular values (r,) and right singular vectors (r, n)."""
    if min(centered.shape) <= _EXACT:
        _, values, directions = torch.linalg.svd(centered, full_matrices=False)
        return values[:rank], directions[:rank]
    seeded = torch.Generator().manual_seed(0)
    width = min(rank + _SPARE, *centered.shape)
    basis = centered.T @ torch.randn(len(centered), width, generator=seeded, dtype=centered.dtype)
    for _ in range(_ROUNDS):
        basis, _ = torch.linalg.qr(basis)
        basis = centered.T @ (centered @ basis)
    basis, _ = torch.linalg.qr(basis)
    _, values, turned = torch.linalg.svd(centered @ basis, full_matrices=False)
    return values[:rank], (turned @ basis.T)[:rank]


def own_spread(velocity: Any) -> Spread | None:
    """Return how a velocity's fields vary, as it says itself; None if it does not."""
    found = getattr(network_of(velocity), "spread", None)
    if isinstance(found, Spread):
        return found
    if found is not None and all(hasattr(found, name) for name in ("directions", "variances", "rest")):
        return Spread(found.directions, found.variances, found.rest)
    return None
