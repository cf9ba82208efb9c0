"""Oracle: the rows of all laws at one sample, with slopes and curvature from torch. Needs no lowering.

One sample at a time, from memory of its own, so that no bit depends on the batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from snapfm.laws import Params
from snapfm.structure import Structure
from snapfm.structure.plan import LawPlan

Values = npt.NDArray[np.float64]

# Unknowns up to which a curvature that joins too many pairs to be listed is computed as a full matrix.
FULL = 600


@contextmanager
def quiet() -> Iterator[None]:
    """Drop torch's remark that an operator's derivative is batched by a loop: on this path nobody expected otherwise."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield


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
        with quiet():
            values = self.structure.jacobian(self._field(u), self.params)[0]
        return self.structure.pattern.csr(values.numpy())

    def hessian(self, u: Values, weight: Values) -> csr_array:
        """Σ weight ∇²row: (n, n); zero where torch has no second derivative, or it is too large to write out."""
        n = self.structure.unknowns
        total = csr_array((n, n))
        field, weights = self._field(u), torch.from_numpy(weight)[None]
        for plan, rows in zip(self.structure.plans, self.structure.slices().values()):
            pattern = plan.curvature.pattern
            if pattern is not None and pattern.nnz == 0:
                continue
            try:
                with quiet():
                    if pattern is not None:
                        total = total + pattern.csr(plan.hessian(field, self.params, weights[:, rows])[0].numpy())
                    elif n <= FULL:
                        total = total + self._full(plan, field[0], weights[0, rows])
            except (NotImplementedError, RuntimeError):  # no second derivative: W = I there, and steps are shorter
                continue
        return csr_array(total)

    def _full(self, plan: LawPlan, field: Tensor, weight: Tensor) -> csr_array:
        sample = {name: value[0] for name, value in self.params.items()}

        def total(x: Tensor) -> Tensor:
            value: Tensor = (weight * plan.graph(x, sample)).sum()
            return value

        n = field.numel()
        return csr_array(torch.func.jacrev(torch.func.grad(total))(field).reshape(n, n).numpy())

    def _field(self, u: Values) -> Tensor:
        return torch.from_numpy(u.copy()).reshape(1, *self.structure.shape)
