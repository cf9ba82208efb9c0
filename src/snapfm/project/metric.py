"""Metric: in which sense a projected field is nearest. A covariance Σ says how readily each part of a field moves.

The distance is ½(u − û)ᵀΣ⁻¹(u − û) with Σ a diagonal plus a few directions (math.md, eq. metric). Holds values only; what is
prepared for them is in project.linearized and project.metric_projection.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Values
from snapfm.display import brief
from snapfm.errors import ParamsError, ShapeError


@dataclass(frozen=True, eq=False)
class Metric:
    """The covariance Σ = diag(diagonal) + Σₖ variances[k]·directions[k]·directions[k]ᵀ of fields of one shape.

    `diagonal` is a positive number, or a tensor of a field's shape. `directions` (r, *shape) need not be orthogonal;
    `variances` (r,) are at least zero. Without directions the metric is diagonal. Directions that vary together have a matrix as
    `variances`: (r, r), lower triangular, the Cholesky factor of the covariance of the amounts along them. `diagonal` and
    `variances` are copied; `directions`, which may be large, are read at every call.
    """

    diagonal: float | Tensor
    directions: Tensor | None = None
    variances: Tensor | None = None

    def __repr__(self) -> str:
        return brief(self)

    def __post_init__(self) -> None:
        for name in ("diagonal", "variances"):  # what is computed from them is kept
            if isinstance(value := getattr(self, name), Tensor):
                object.__setattr__(self, name, value.detach().clone())
        diagonal = torch.as_tensor(self.diagonal, dtype=torch.float64)  # in float32 a small number would be zero
        if not bool((diagonal > 0).all()) or not bool(torch.isfinite(diagonal).all()):
            raise ParamsError(
                f"Metric(diagonal) expects positive, finite variances; got a smallest of {float(diagonal.min()):g}. Add a small "
                "number to those that are zero."
            )
        if (self.directions is None) != (self.variances is None):
            raise ParamsError(
                "Metric(directions, variances) expects both or neither; got one of them. Give each direction its variance."
            )
        if self.directions is None or self.variances is None:
            return
        rank = self.directions.shape[0]
        if tuple(self.variances.shape) not in ((rank,), (rank, rank)) or self.directions.ndim < 2:
            raise ShapeError(
                "Metric(directions, variances) expects (r, *shape) and (r,) or (r, r); got "
                f"{tuple(self.directions.shape)} and {tuple(self.variances.shape)}. Stack the directions along a first axis."
            )
        if diagonal.ndim and diagonal.shape != self.directions.shape[1:]:
            raise ShapeError(
                f"Metric(diagonal) expects a number or {tuple(self.directions.shape[1:])}, the shape of a direction; got "
                f"{tuple(diagonal.shape)}. Expand it to a field."
            )
        finite = torch.isfinite(self.directions).all() and torch.isfinite(self.variances).all()
        least = self.variances if self.variances.ndim == 1 else self.variances.diagonal()
        if not bool(finite) or bool((least < 0).any()):
            raise ParamsError(
                "Metric(directions, variances) expects finite numbers and variances >= 0; got others. Drop those directions."
            )

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of one field; None if any shape will do."""
        if self.directions is not None:
            return tuple(self.directions.shape[1:])
        own = torch.as_tensor(self.diagonal)
        return tuple(own.shape) if own.ndim else None

    @property
    def rank(self) -> int:
        """Number of directions."""
        return 0 if self.directions is None else len(self.directions)

    @cached_property
    def level(self) -> float:
        """The mean of the diagonal."""
        return float(torch.as_tensor(self.diagonal, dtype=torch.float64).mean())

    @cached_property
    def uniform(self) -> bool:
        """Whether the diagonal is one number."""
        own = torch.as_tensor(self.diagonal)
        return own.ndim == 0 or bool((own == own.flatten()[0]).all())

    def relative(self, size: int) -> Values:
        """Return the diagonal (n,) divided by its mean."""
        own = torch.as_tensor(self.diagonal, dtype=torch.float64).detach().cpu().flatten() / self.level
        return np.broadcast_to(own.numpy(), size).copy()

    def scale(self, size: int) -> Values | None:
        """Return the units (n,) in which a projection is plain: √D, beside directions relative to its mean; None if all are 1."""
        if self.directions is not None and self.uniform:
            return None
        level = 1.0 if self.directions is not None else self.level
        found: Values = np.sqrt(level * self.relative(size))
        return found

    def in_units(self, scale: Tensor) -> Metric:
        """Return the metric of x = u/scale, with `scale` the root of the diagonal relative to its mean: a uniform one."""
        assert self.directions is not None
        return Metric(self.level, self.directions.to(scale) / scale, self.variances)

    @cached_property
    def roots(self) -> Values:
        """The root of the covariance along the directions: standard deviations (r,), or a lower triangle (r, r)."""
        if self.variances is None:
            return np.zeros(0)
        own = self.variances.detach().cpu().double()
        found: Values = (own.sqrt() if own.ndim == 1 else own).numpy()
        return found

    def scaled(self, along: Values) -> Values:
        """Return the transposed root times what belongs to each direction, (r,) or (r, k)."""
        if self.roots.ndim == 2:
            found: Values = self.roots.T @ along
            return found
        return self.roots * along if along.ndim == 1 else self.roots[:, None] * along

    def amounts(self, white: Values) -> Values:
        """Return the root times (r,): amounts along the directions."""
        found: Values = self.roots @ white if self.roots.ndim == 2 else self.roots * white
        return found

    @property
    def rows(self) -> Values:
        """The directions as a matrix (r, n), by rows; a view where they are contiguous, float64 and on the CPU."""
        assert self.directions is not None
        return np.ascontiguousarray(self.directions.detach().cpu().double().flatten(1).numpy())

    def changed(self, diagonal: float | Tensor, variances: Tensor) -> Metric:
        """Return a metric with the same directions, which are not checked again: they may be large."""
        found = object.__new__(Metric)
        found.__dict__.update(diagonal=diagonal, directions=self.directions, variances=variances)
        return found
