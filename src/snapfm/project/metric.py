"""Metric: in which sense a projected field is nearest. A covariance Σ says how readily each part of a field moves.

The distance is ½(u − û)ᵀΣ⁻¹(u − û) with Σ a diagonal plus a few directions (math.md, eq. metric). Holds values only; what is
prepared for them is in project.linearized and project.in_metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Values
from snapfm.errors import ParamsError, ShapeError


@dataclass(frozen=True, eq=False)
class Metric:
    """The covariance Σ = diag(diagonal) + Σₖ variances[k]·directions[k]·directions[k]ᵀ of fields of one shape.

    `diagonal` is a positive number, or a tensor of a field's shape. `directions` (r, *shape) need not be orthogonal;
    `variances` (r,) are at least zero. Without directions the metric is diagonal. A metric with the same `directions` object
    as the one before it reuses what was computed from them.
    """

    diagonal: float | Tensor
    directions: Tensor | None = None
    variances: Tensor | None = None

    def __post_init__(self) -> None:
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
        if self.variances.shape != self.directions.shape[:1] or self.directions.ndim < 2:
            raise ShapeError(
                "Metric(directions, variances) expects (r, *shape) and (r,); got "
                f"{tuple(self.directions.shape)} and {tuple(self.variances.shape)}. Stack the directions along a first axis."
            )
        if diagonal.ndim and diagonal.shape != self.directions.shape[1:]:
            raise ShapeError(
                f"Metric(diagonal) expects a number or {tuple(self.directions.shape[1:])}, the shape of a direction; got "
                f"{tuple(diagonal.shape)}. Expand it to a field."
            )
        finite = torch.isfinite(self.directions).all() and torch.isfinite(self.variances).all()
        if not bool(finite) or bool((self.variances < 0).any()):
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

    def in_units(self, scale: Tensor) -> Metric:
        """Return the metric of x = u/scale, with `scale` the root of the diagonal relative to its mean: a uniform one."""
        if self.directions is None:
            return Metric(self.level)
        return Metric(self.level, self.directions.to(scale) / scale, self.variances)

    @cached_property
    def roots(self) -> Values:
        """The standard deviations (r,) along the directions."""
        if self.variances is None:
            return np.zeros(0)
        found: Values = self.variances.detach().cpu().double().sqrt().numpy()
        return found

    def perturb(self, fields: Tensor, white: Tensor, along: Tensor) -> Tensor:
        """Add a draw of N(0, Σ) to fields (b, *shape), from white noise of their shape and (b, r) along the directions."""
        root = torch.as_tensor(self.diagonal, dtype=fields.dtype, device=fields.device).sqrt()
        drawn = fields + root * white
        if self.directions is None or self.variances is None:
            return drawn
        scaled, flat = along.to(fields) * self.variances.to(fields).sqrt(), self.directions.to(fields).flatten(1)
        # Sample by sample: a product of the whole batch has bits of its own.
        return drawn + torch.stack([one @ flat for one in scaled]).view_as(fields)
