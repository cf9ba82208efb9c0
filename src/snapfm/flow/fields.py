"""What every velocity network asks of its inputs: fields of its shape, real, and one flow time for each.

Imports errors only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from snapfm.errors import DtypeError, ShapeError

LAST_GAP = 1e-3  # smallest 1 − τ a data-predicting network divides by: exact for up to 1000 flow steps


def check(u: Tensor, tau: float | Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Refuse fields of another shape or type; return tau as (b,) in the dtype of the network."""
    if tuple(u.shape[1:]) != shape:
        wanted = ", ".join(["b", *map(str, shape)])
        raise ShapeError(
            f"velocity(u, tau) expects u of shape ({wanted}); got {tuple(u.shape)}. Reshape the fields, or build "
            "the network for their shape."
        )
    if not u.is_floating_point():
        raise DtypeError(f"velocity(u, tau) expects real floating fields; got {u.dtype}. Convert with u.float().")
    times = torch.as_tensor(tau, dtype=dtype, device=u.device)
    if times.ndim > 1 or (times.ndim == 1 and len(times) not in (1, len(u))):
        raise ShapeError(
            f"velocity(u, tau) expects tau as a number or of shape ({len(u)},); got {tuple(times.shape)}. "
            "Give one flow time per sample."
        )
    return times.expand(len(u))


def towards(data: Tensor, u: Tensor, times: Tensor) -> Tensor:
    """Give the velocity that leads from fields u at their flow times to `data` by τ = 1."""
    gap = (1 - times).clamp(min=LAST_GAP)
    return (data - u) / gap.view(-1, *[1] * (u.ndim - 1))
