"""Laws that keep their values and lose their scalar form: for tests of the path that torch evaluates."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from snapfm import Equality, Inequality, Projector
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
