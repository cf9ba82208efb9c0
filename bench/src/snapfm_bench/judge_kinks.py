"""Generalized gradients for the judge: the slopes of laws at their kinks, from torch's own operators and nothing else.

A law is recorded as torch operators and run again with the result of every kink (abs, relu, maximum, where, …) that lies within
rounding of its switch replaced by θ times one side plus 1 − θ times the other. The weights θ in [0, 1] that make
u − û + Jᵀλ smallest are found by bounded least squares. Imports nothing of project, structure or kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import lsq_linear
from torch import Tensor
from torch.fx import GraphModule, Interpreter

from snapfm.torch_internals import make_fx

aten = torch.ops.aten

WIDTH = 1e-8  # a switch nearer to zero than this, relative to the field, is on its kink
_ROUNDS = 8  # of linear least squares: kinks within kinks multiply their weights
_ENOUGH = 1e-12
_SAME = 1e-6  # values that differ by less are rounding, and what the width of a kink adds up to

Function = Callable[[Tensor], Tensor]  # a field to rows


def smallest_rest(
    functions: Sequence[Function],
    multipliers: Sequence[Tensor],
    away: Tensor,
    u: Tensor,
    walls: Callable[[], Tensor],
    clip: Function,
) -> Tensor | None:
    """Return `clip` of away + Jᵀλ for the generalized Jacobian at u that makes it smallest; None on no kink, or on a jump.

    `away` is u − û; the columns of `walls()` (n, k) point into the bounds that u is at, which may push out of them. They are
    asked for on kinks alone: for large fields they are too many.
    """
    pieces = [_Pieces(make_fx(function)(u), WIDTH * (1.0 + float(u.abs().max()))) for function in functions]
    counts = [piece.count(u) for piece in pieces]
    if not sum(counts):
        return None
    if _jumps(pieces, counts, u):
        return None
    theta = torch.full((sum(counts),), 0.5, dtype=torch.float64)

    def rest_at(theta: Tensor) -> tuple[Tensor, Tensor]:
        field, weights = u.clone().requires_grad_(), theta.clone().requires_grad_()
        with torch.enable_grad():
            values = [piece.at(field, part) for piece, part in zip(pieces, torch.split(weights, counts))]
            total = sum((value.reshape(-1) * weight).sum() for value, weight in zip(values, multipliers))
            assert isinstance(total, Tensor)
            slope, by_weight = torch.autograd.grad(
                total, [field, weights], create_graph=True, allow_unused=True, materialize_grads=True
            )
            cross = [
                torch.autograd.grad(one, field, retain_graph=True, allow_unused=True, materialize_grads=True)[0]
                for one in (by_weight if by_weight.requires_grad else ())
            ]
        matrix = torch.stack([one.flatten() for one in cross], 1) if cross else u.new_zeros(u.numel(), len(theta))
        return away + slope.detach(), matrix

    best, pushes = clip(rest_at(theta)[0]), -walls().numpy()
    for _ in range(_ROUNDS):
        rest, matrix = rest_at(theta)
        slopes = matrix.numpy()
        right = slopes @ theta.numpy() - rest.flatten().numpy()
        most = np.concatenate([np.ones(len(theta)), np.full(pushes.shape[1], np.inf)])
        found = lsq_linear(
            np.hstack([slopes, pushes]), right, bounds=(np.zeros(len(most)), most), method="bvls", tol=1e-15
        )
        theta = torch.from_numpy(np.clip(found.x[: len(theta)], 0.0, 1.0))
        left = clip(rest_at(theta)[0])
        if float(left.abs().max()) < float(best.abs().max()):
            best = left
        if float(best.abs().max()) <= _ENOUGH:
            break
    return best


def _jumps(pieces: Sequence[_Pieces], counts: Sequence[int], u: Tensor) -> bool:
    """Return whether the value of a law depends on weights: where it jumps there is no kink, and no mean of its sides."""
    for piece, count in zip(pieces, counts):
        one, other = (piece.at(u, torch.full((count,), weight, dtype=torch.float64)) for weight in (0.0, 1.0))
        if not bool(((one - other).abs() <= _SAME * (1.0 + one.abs())).all()):
            return True
    return False


class _Pieces(Interpreter):
    """A law whose kinks on their switch are weighted; `at` evaluates it with given weights, in order of the operators."""

    def __init__(self, graph: GraphModule, width: float) -> None:
        super().__init__(graph)
        self._width, self._weights, self._used = width, torch.zeros(0), 0
        self._counting = False
        self._switches: list[tuple[Tensor, Tensor]] = []

    def count(self, u: Tensor) -> int:
        """Return the number of weights at u."""
        self._counting, self._used, self._switches = True, 0, []
        self.run(u)
        return self._used

    def at(self, u: Tensor, weights: Tensor) -> Tensor:
        """Evaluate the law."""
        self._counting, self._used, self._weights, self._switches = False, 0, weights, []
        value: Tensor = self.run(u)
        return value

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator, or weight its sides."""
        packet = getattr(target, "overloadpacket", None)
        rule = _RULES.get(packet)
        if rule is not None:
            found = rule(self, *args, **kwargs)
            if found is not None:
                return found
        value = super().call_function(target, args, kwargs)
        if packet in _COMPARISONS:
            one, other = (torch.as_tensor(part, dtype=torch.float64) for part in args)
            self._switches.append((value, _COMPARISONS[packet] * (one - other)))
        return value

    def joined(self, switch: Tensor, plus: Tensor, minus: Tensor) -> Tensor:
        """Return `plus` where the switch is positive, `minus` where it is negative, and a weighted sum on the kink."""
        near = switch.detach().abs() <= self._width
        weight = self._next(near)
        sides = torch.where(switch > 0, plus, minus)
        return torch.where(near, weight * plus + (1.0 - weight) * minus, sides)

    def switch_of(self, condition: Tensor) -> Tensor | None:
        """Return the switch of a comparison."""
        return next((switch for value, switch in self._switches if value is condition), None)

    def extreme(self, a: Tensor, axes: Sequence[int], keep: bool, sign: float) -> Tensor:
        """Take the largest (sign 1) or smallest (−1) along axes; those that tie are weighted, the weights add up to one."""
        top = (sign * a.detach()).amax(dim=tuple(axes), keepdim=True)
        near = top - sign * a.detach() <= self._width
        many = near.sum(dim=tuple(axes), keepdim=True) > 1
        weight = torch.where(many, self._next(near & many), near.double())
        # The first of them has the weight that the others leave, so that results are linear in the weights.
        order = near.double().flatten().cumsum(0).reshape(near.shape)
        first = near & (order == torch.where(near, order, torch.inf).amin(dim=tuple(axes), keepdim=True))
        others = torch.where(first, 0.0, weight).sum(dim=tuple(axes), keepdim=True)
        weight = torch.where(many & first, 1.0 - others, weight)
        return (weight * a).sum(dim=tuple(axes), keepdim=keep)

    def _next(self, near: Tensor) -> Tensor:
        count = int(near.sum())
        first, self._used = self._used, self._used + count
        weight = torch.zeros(near.shape, dtype=torch.float64)
        if self._counting:
            return weight
        return weight.masked_scatter(near, self._weights[first : first + count])


def _clamp(run: _Pieces, a: Tensor, low: Any = None, high: Any = None, **given: Any) -> Tensor:
    low, high = given.get("min", low), given.get("max", high)
    if low is not None:
        bound = torch.as_tensor(low, dtype=a.dtype).expand_as(a)
        a = run.joined(a - bound, a, bound)
    if high is not None:
        bound = torch.as_tensor(high, dtype=a.dtype).expand_as(a)
        a = run.joined(bound - a, a, bound)
    return a


def _where(run: _Pieces, condition: Tensor, plus: Tensor, minus: Tensor) -> Tensor | None:
    switch = run.switch_of(condition)
    if switch is None:
        return None
    nothing = 0.0 * (switch.detach() + plus.detach() + minus.detach())  # of the shape that all three broadcast to
    return run.joined(switch.expand_as(nothing), plus.expand_as(nothing), minus.expand_as(nothing))


def _pair(sign: float) -> Callable[[_Pieces, Tensor, Tensor], Tensor]:
    def rule(run: _Pieces, one: Tensor, other: Tensor) -> Tensor:
        switch = sign * (one - other)
        return run.joined(switch, one.expand_as(switch), other.expand_as(switch))

    return rule


def _along(sign: float) -> Callable[..., Tensor]:
    def rule(run: _Pieces, a: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
        return run.extreme(a, list(dim) or list(range(a.dim())), keepdim, sign)

    return rule


def _leaky(run: _Pieces, a: Tensor, slope: float = 0.01) -> Tensor:
    return run.joined(a, a, slope * a)


def _hardtanh(run: _Pieces, a: Tensor, low: float = -1.0, high: float = 1.0) -> Tensor:
    return _clamp(run, a, low, high)


def _softshrink(run: _Pieces, a: Tensor, width: float = 0.5) -> Tensor:
    return a - _clamp(run, a, -width, width)


def _absolute(run: _Pieces, a: Tensor) -> Tensor:
    return run.joined(a, a, -a)


def _norm(run: _Pieces, a: Tensor, order: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> Tensor | None:
    axes = list(range(a.dim())) if dim is None else list(dim)
    if float(order) == 1.0:
        return _absolute(run, a).sum(dim=axes, keepdim=keepdim)
    if math.isinf(float(order)):
        return run.extreme(_absolute(run, a), axes, keepdim, math.copysign(1.0, float(order)))
    return None


def _extreme(sign: float) -> Callable[..., Any]:
    def rule(run: _Pieces, a: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
        """Take torch.max and torch.min in their three forms: of all, along an axis with the place, of two."""
        if isinstance(dim, Tensor):
            return _pair(sign)(run, a, dim)
        if dim is None:
            return run.extreme(a, list(range(a.dim())), False, sign)
        return run.extreme(a, [dim], keepdim, sign), (sign * a).argmax(dim, keepdim)

    return rule


def _scan(sign: float) -> Callable[..., Any]:
    def rule(run: _Pieces, a: Tensor, dim: int) -> Any:
        found: list[Tensor] = []
        for one in a.unbind(dim):
            found.append(_pair(sign)(run, found[-1], one) if found else one)
        return torch.stack(found, dim), torch.zeros_like(a, dtype=torch.int64)

    return rule


_COMPARISONS = {aten.gt: 1.0, aten.ge: 1.0, aten.lt: -1.0, aten.le: -1.0}
_RULES: dict[Any, Callable[..., Any]] = {
    aten.abs: _absolute,
    aten.hardtanh: _hardtanh,
    aten.softshrink: _softshrink,
    aten.linalg_vector_norm: _norm,
    aten.max: _extreme(1.0),
    aten.min: _extreme(-1.0),
    aten.cummax: _scan(1.0),
    aten.cummin: _scan(-1.0),
    aten.relu: lambda run, a: run.joined(a, a, torch.zeros_like(a)),
    aten.maximum: _pair(1.0),
    aten.minimum: _pair(-1.0),
    aten.amax: _along(1.0),
    aten.amin: _along(-1.0),
    aten.leaky_relu: _leaky,
    aten.clamp: _clamp,
    aten.clamp_min: lambda run, a, low: _clamp(run, a, low),
    aten.clamp_max: lambda run, a, high: _clamp(run, a, None, high),
    aten.where: _where,
}
