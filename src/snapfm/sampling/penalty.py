"""What gradient methods descend on: the squared excess of the laws, given values and physics weighted apart."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from snapfm.project import Projector
from snapfm.structure import RowKind


def row_weights(laws: Projector, physics: float) -> Tensor:
    """Weigh rows that give one unknown its value by 1 and all others by `physics`, in the order of `excess` (math.md,
    eq. penalty).

    Observations and equations have weights of their own in DiffusionPDE; initial values are the former, balances the latter.
    """
    structure = laws.structure
    single = (np.diff(structure.pattern.indptr) == 1) & (structure.kinds == RowKind.AFFINE) & structure.equality_rows
    bounded = np.zeros(int(laws.limits.bounded.sum()), dtype=bool)
    return torch.from_numpy(np.where(np.concatenate([single, bounded]), 1.0, physics))
