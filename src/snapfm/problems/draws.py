"""Random numbers the problems share."""

from __future__ import annotations

import torch
from torch import Tensor


def uniform(stream: torch.Generator, limits: tuple[float, float]) -> Tensor:
    """Draw one float64 number between the limits."""
    low, high = limits
    return low + (high - low) * torch.rand((), generator=stream, dtype=torch.float64)


def uniform_or(stream: torch.Generator, limits: tuple[float, float], fixed: float | None) -> Tensor:
    """Draw one number between the limits, or give the fixed one without drawing."""
    return uniform(stream, limits) if fixed is None else torch.tensor(fixed, dtype=torch.float64)
