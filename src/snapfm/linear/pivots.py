"""Judge pivots in torch, for the solvers that work on whole tensors: the same rule as kernels.ldl, all lanes at once.

May import linear.base only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from snapfm.linear.base import Outcome, PivotRule, Pivots


class Tally:
    """What the pivots of each lane were like, counted while they come."""

    def __init__(self, rule: PivotRule, lanes: int, like: Tensor) -> None:
        self.rule = rule
        self.negative = like.new_zeros(lanes, dtype=torch.int64)
        self.weak = like.new_zeros(lanes, dtype=torch.int64)
        self.broken = like.new_zeros(lanes, dtype=torch.bool)
        self.smallest = like.new_full((lanes,), torch.inf)

    def invert(self, pivot: Tensor, scale: Tensor, sign: Tensor) -> Tensor:
        """Count k pivots (k, lanes) and give their inverses, or those of their stand-ins where they are weak.

        `sign` is (k, 1) of +1 or -1, or 0 where either will do.
        """
        size = pivot.abs()
        weak = torch.where(sign == 0, size, sign * pivot) <= scale * self.rule.tiny
        used = torch.where(weak, self._stand_in(pivot, scale, sign), pivot)
        self.negative += (~(used >= 0)).sum(0)
        self.weak += weak.sum(0)
        self.broken |= (~torch.isfinite(pivot)).any(0)
        self.smallest = torch.minimum(self.smallest, size.nan_to_num(nan=torch.inf).amin(0))
        return 1.0 / used

    def pivots(self) -> Pivots:
        """Close the count."""
        status = torch.full_like(self.negative, Outcome.FACTORED, dtype=torch.int8)
        if self.rule.repair is None:
            status[self.weak > 0] = Outcome.SINGULAR
        status[self.broken] = Outcome.NONFINITE
        return Pivots(status, self.negative, self.weak, self.smallest)

    def _stand_in(self, pivot: Tensor, scale: Tensor, sign: Tensor) -> Tensor:
        if self.rule.repair is None:
            return torch.full_like(pivot, torch.inf)
        size = self.rule.repair * torch.where(scale <= 0, torch.ones_like(scale), scale)
        own = torch.where(pivot >= 0, 1.0, -1.0).to(pivot.dtype)
        return size * torch.where(sign == 0, own, sign)


def scales(row: Tensor, column: Tensor, values: Tensor, size: int, signed: bool) -> Tensor:
    """Give each pivot's scale (n, lanes): |a_ii|, and with signs at least a_ij² / |a_jj| for j < i (see kernels.ldl)."""
    scale = values.new_zeros(size, values.shape[1])
    diagonal = row == column
    scale[row[diagonal]] = values[diagonal].abs()
    if signed and bool((~diagonal).any()):
        inverse = torch.where(scale <= 0, torch.zeros_like(scale), 1.0 / scale)
        gain = values[~diagonal].square() * inverse[column[~diagonal]]
        scale.scatter_reduce_(0, row[~diagonal].unsqueeze(1).expand(-1, values.shape[1]), gain, "amax")
    return scale
