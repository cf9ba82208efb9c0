"""The sample at which laws are looked at while they are prepared: one field and its params, float64."""

from __future__ import annotations

import torch
from torch import Tensor

from snapfm.laws import Params


def example_of(shape: tuple[int, ...], params: Params | None) -> tuple[Tensor, dict[str, Tensor]]:
    """Draw a field, and take the first of the example params, which have a leading batch axis."""
    sample = {name: value[0].detach().to("cpu", copy=True) for name, value in (params or {}).items()}
    sample = {name: value.double() if value.is_floating_point() else value for name, value in sample.items()}
    generator = torch.Generator().manual_seed(0)
    # Uniform in (0.1, 0.9): inside the domain of roots and logarithms, away from the kinks at 0 and 1.
    return 0.1 + 0.8 * torch.rand(tuple(shape), generator=generator, dtype=torch.float64), sample
