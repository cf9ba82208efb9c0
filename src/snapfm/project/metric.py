"""Metric: in which sense a projected field is nearest. A covariance Σ says how readily each part of a field moves.

The distance is ½(u − û)ᵀΣ⁻¹(u − û) with Σ a diagonal plus a few directions (math.md, eq. metric). Holds values only; what is
prepared for them is in project.linearized and project.metric_projection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Values
from snapfm.display import brief
from snapfm.errors import ParamsError, SettingError, ShapeError
from snapfm.laws.checks import is_whole

_FLOOR = (
    1e-6  # of the mean variance: a point that never varies is a thousand times stiffer than others, and can still move
)


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

    @classmethod
    def of_fields(cls, fields: Tensor, per: Literal["variable", "point"] | int | Sequence[int] = "variable") -> Metric:
        """Return the metric of the variances of fields (b, *shape), such as training data.

        `per` says what has a variance of its own: every entry of the first axis of a field ("variable"; a field with one axis has
        one variance), every "point", or every entry of an axis or some axes of ONE field: 1, or (0, 2) for variables and levels.
        It is the variance over the batch and all other axes. No variance is below a millionth of the mean one of its variable;
        of a variable that never changes, of its mean square.
        """
        shape = _check_fields(fields)
        own = _check_axes(per, len(shape))
        size = float(fields.abs().max())
        flat = fields.detach().to("cpu", torch.float64) / size  # so that no square is too large or too small
        others = [0, *(1 + axis for axis in range(len(shape)) if axis not in own)]
        several = math.prod(flat.shape[axis] for axis in others) > 1
        found = flat.var(others, correction=int(several), keepdim=True)
        inside = [axis for axis in range(1 + len(shape)) if axis != 1 or 0 not in own]  # the axes of one variable
        mean, square = found.mean(inside, keepdim=True), flat.square().mean(inside, keepdim=True)
        usual = torch.where(mean > 0.0, mean, square)
        usual = torch.where(usual > 0.0, usual, usual.mean())
        return cls((torch.maximum(found, _FLOOR * usual)[0] * size**2).expand(shape))

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


def _check_fields(fields: Any) -> tuple[int, ...]:
    """Accept a batch of finite fields that are not all zero; return the shape of one."""
    call = "Metric.of_fields(fields)"
    if not isinstance(fields, Tensor) or not fields.is_floating_point() or fields.ndim < 2 or not fields.numel():
        came = f"{tuple(fields.shape)}, {fields.dtype}" if isinstance(fields, Tensor) else type(fields).__name__
        raise ShapeError(
            f"{call} expects a batch of fields (b, *shape), real numbers; got {came}. One field is field[None]."
        )
    if not bool(torch.isfinite(fields).all()) or not bool(fields.any()):
        raise ParamsError(
            f"{call} expects finite numbers that are not all zero; got others. Leave out the samples that are not."
        )
    return tuple(fields.shape[1:])


def _check_axes(per: Any, count: int) -> set[int]:
    """Return the axes of one field whose entries have variances of their own."""
    if per == "point":
        return set(range(count))
    if per == "variable":
        return {0} if count > 1 else set()
    axes = list(per) if isinstance(per, (tuple, list)) else [per]
    if not all(is_whole(axis) and -count <= axis < count for axis in axes):
        raise SettingError(
            f"Metric.of_fields(per) expects 'variable', 'point', or axes of one field, below {count}; got {per!r}. Axis 0 is the "
            "first after the batch axis."
        )
    return {axis % count for axis in axes}
