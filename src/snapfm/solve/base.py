"""What methods and their callers exchange: Method, Solution, Warm and Limits. What users get is in solve.projection.

Everything else in the package may import this module; it imports budget only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.arrays import Index, Mask, Values
from snapfm.errors import ShapeError
from snapfm.laws import Bounds, Law, Params
from snapfm.solve.budget import Budget

OnFailure = Literal["raise", "keep"]


@dataclass(frozen=True)
class Solution:
    """A batch as a method returns it to the judge: float64, (b, n) and (b, m)."""

    u: Tensor
    multipliers: Tensor
    iterations: Tensor
    residual: Tensor  # at u, every row
    stationarity: Tensor
    distance: Tensor
    status: Tensor | None = None  # the method's own verdict, if it has one
    warm: Warm | None = None  # None for closed forms, which need no start
    # What is known of the curvature along the laws: 1 nowhere negative, 0 somewhere, -1 not known. None stands for all 1.
    second_order: Tensor | None = None
    generalized: Tensor | None = None  # (b,) bool: certified with a generalized gradient. None stands for all False.
    weights: Values | None = None  # (b, kinks) of its kinks, where any sample is

    def apart(self) -> Solution:
        """Return it with copies of what a projection shows: a gradient taken later must not see what the caller writes there."""
        generalized = None if self.generalized is None else self.generalized.clone()
        return replace(self, multipliers=self.multipliers.clone(), generalized=generalized)


@dataclass(frozen=True)
class Adjoints:
    """The solution (w, ν) of the linearized problem, and what gradients need.

    `by_params` (b, …) are the derivatives of wᵀJᵀλ + νᵀh by the cells of params; None where only torch knows them. `by_input` is
    the gradient in û: w, and in a metric D⁻¹w.
    """

    w: Tensor
    nu: Tensor
    by_params: Tensor | None
    by_input: Tensor


class Method(Protocol):
    """A way to project, prepared for compiled laws and limits. It never changes; memory is lent to each call."""

    @property
    def implied(self) -> Index:
        """Rows that hold if the others do: where only they are broken, the laws contradict each other."""
        ...

    def solve(self, u_hat: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget) -> Solution:
        """Project a float64 batch (b, *shape); iterations begin at û, or where `warm` says."""
        ...

    def move(
        self, u_hat: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget
    ) -> tuple[Tensor, Warm | None]:
        """Project without a certificate, in the dtype of û."""
        ...

    def recall(self, u: Tensor, multipliers: Tensor, usable: Tensor) -> Warm | None:
        """Return the warm start at another projector's result: fields (b, *shape), multipliers (b, m)."""
        ...

    def adjoint(self, solved: Solution, params: Params, gradient: Tensor, in_params: bool) -> Adjoints:
        """Solve the transposed KKT system at an answer; see solve.gradient. `in_params`: with what they need on kinks."""
        ...


@dataclass(frozen=True)
class Warm:
    """Where iterations ended, in a method's own unknowns: a warm start. float64, (b, …) each."""

    place: Values  # the unknowns that iterations move
    multipliers: Values  # (b, m)
    usable: Mask  # samples that converged; the others start from their input
    owner: object  # the method, which alone can read it

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a result travels without its warm start: its owner stays behind

    def part(self, piece: slice | Index) -> Warm:
        """Return that of some samples."""
        return Warm(self.place[piece], self.multipliers[piece], self.usable[piece], self.owner)

    @classmethod
    def joined(cls, parts: Sequence[Warm]) -> Warm:
        """Put those of consecutive samples together."""
        place, multipliers, usable = zip(*((one.place, one.multipliers, one.usable) for one in parts))
        return cls(np.concatenate(place), np.concatenate(multipliers), np.concatenate(usable), parts[0].owner)


@dataclass(frozen=True)
class Limits:
    """Lower and upper limit of every unknown, infinite where there is none, and the names of the Bounds."""

    lower: Values
    upper: Values
    names: tuple[str, ...] = ()

    @cached_property
    def bounded(self) -> Mask:
        """Which unknowns have any limit."""
        return np.isfinite(self.lower) | np.isfinite(self.upper)

    def restore(self, x: Values, lower: Values, upper: Values, u: npt.NDArray[Any]) -> None:
        """Put unknowns at their limits where x is at its own, which were rounded in other units. Written: u (b, n)."""
        width = x.shape[1]
        u[:] = np.where(x >= upper[:width], self.upper, np.where(x <= lower[:width], self.lower, u))
        np.clip(u, self.lower, self.upper, out=u)

    def excess(self, u: Tensor) -> Tensor:
        """Return by how much fields (b, n) exceed them: (b, n), differentiable."""
        lower, upper = (torch.from_numpy(limit).to(u.device) for limit in (self.lower, self.upper))
        return torch.maximum(u - upper, lower - u).clamp(min=0.0)


def limits_of(laws: Sequence[Law], shape: tuple[int, ...]) -> Limits:
    """Combine the Bounds among the laws: the tightest limits hold."""
    lower, upper = np.full(shape, -np.inf), np.full(shape, np.inf)
    names = []
    for law in laws:
        if isinstance(law, Bounds):
            names.append(law.name)
            if law.lower is not None:
                lower = np.maximum(lower, _spread(law.name, law.lower, shape))
            if law.upper is not None:
                upper = np.minimum(upper, _spread(law.name, law.upper, shape))
    if not (lower <= upper).all():
        raise ShapeError(
            f"laws expects bounds that leave room; {names} together have a lower limit above an upper one. Correct one of them."
        )
    return Limits(lower.ravel(), upper.ravel(), tuple(names))


def _spread(name: str, limit: float | torch.Tensor, shape: tuple[int, ...]) -> Values:
    value = torch.as_tensor(limit, dtype=torch.float64).detach().cpu().numpy()
    try:
        spread: Values = np.broadcast_to(value, shape)
    except ValueError as cause:
        raise ShapeError(
            f"Bounds '{name}' expects limits that broadcast to a field of shape {shape}; got shape {value.shape}. Give a number, "
            "or a tensor of the field's shape."
        ) from cause
    return spread
