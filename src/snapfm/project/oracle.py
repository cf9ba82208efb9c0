"""Oracle: the rows of all laws at one sample, with slopes and curvature from torch. Needs no lowering.

One sample at a time, from memory of its own, so that no bit depends on the batch. Where a law raises, its values are NaN.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from snapfm.laws import Params
from snapfm.structure import Structure
from snapfm.structure.plan import LawPlan
from snapfm.structure.sparing import RAISED

Values = npt.NDArray[np.float64]

# Unknowns up to which a curvature that joins too many pairs to be listed is computed as a full matrix.
FULL = 600


class Oracle:
    """One sample's laws; numpy in, numpy out."""

    def __init__(self, structure: Structure, params: Params, sample: int) -> None:
        self.structure = structure
        self.params = {name: value[sample : sample + 1].clone() for name, value in params.items()}

    def residual(self, u: Values) -> Values:
        """All rows: (m,)."""
        with torch.no_grad():
            value: Values = self.structure.residual_alone(self._field(u), self.params)[0].numpy()
        return value

    def jacobian(self, u: Values) -> csr_array:
        """All slopes: (m, n)."""
        values = self.structure.jacobian(self._field(u), self.params)[0]
        return self.structure.pattern.csr(values.numpy())

    def hessian(self, u: Values, weight: Values) -> tuple[csr_array, bool]:
        """Σ weight ∇²row: (n, n), and whether that is all of it.

        A law is left out where torch has no second derivative of it, or where that is too large to write out.
        """
        n = self.structure.unknowns
        total, whole = csr_array((n, n)), True
        field, weights = self._field(u), torch.from_numpy(weight)[None]
        for plan, rows in zip(self.structure.plans, self.structure.slices().values()):
            pattern = plan.curvature.pattern
            if pattern is not None and pattern.nnz == 0:
                continue
            try:
                if pattern is not None:
                    total = total + pattern.csr(plan.hessian(field, self.params, weights[:, rows])[0].numpy())
                elif n <= FULL:
                    total = total + self._full(plan, field[0], weights[0, rows])
                else:
                    whole = False
            except RAISED:  # no second derivative: W = I there, and steps are shorter
                whole = False
        return csr_array(total), whole

    def _full(self, plan: LawPlan, field: Tensor, weight: Tensor) -> csr_array:
        sample = {name: value[0] for name, value in self.params.items()}

        def total(x: Tensor) -> Tensor:
            value: Tensor = (weight * plan.graph(x, sample)).sum()
            return value

        n = field.numel()
        return csr_array(torch.func.jacrev(torch.func.grad(total))(field).reshape(n, n).numpy())

    def _field(self, u: Values) -> Tensor:
        return torch.from_numpy(u.copy()).reshape(1, *self.structure.shape)
