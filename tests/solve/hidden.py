"""Laws that keep their values and lose their scalar form: for tests of the path that torch evaluates."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from snapfm import Equality, Inequality, Projection, Projector
from snapfm.laws import Law
from snapfm.solve.newton import Newton


def hidden(x: Tensor) -> Tensor:
    """x, by way of an operator that has derivatives and no lowering."""
    return x + 0.0 * torch.lgamma(1.0 + x * x)


def opaque(law: Law) -> Law:
    """Hide the field from the lowering."""
    if not isinstance(law, (Equality, Inequality)):
        return law
    return replace(law, function=lambda u, p, function=law.function: function(hidden(u), p))


def is_opaque(project: Projector) -> bool:
    return isinstance(project.method, Newton) and project.method.opaque


def assert_rounded(one: Projection, other: Projection, tolerance: float = 1e-8) -> None:
    """The same answers up to what torch rounds differently in another batch, which is far below the tolerance."""
    assert torch.equal(one.status, other.status)
    for name in ("u", "violation", "stationarity", "distance", "second_order"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=tolerance, atol=tolerance)
    assert (one.iterations - other.iterations).abs().max() <= 1
