"""Span: which rows the rows already taken rebuild, and with what weights.

Starts from rows known to be independent, factored once; later rows are offered one by one and either rebuilt or taken in
as a new direction. Works on unit rows, so that its thresholds mean angles. Numpy and SciPy only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import SuperLU, splu

Values = npt.NDArray[np.float64]

# A row counts as rebuilt when what is left of it is below this share of its norm: rounding of a few hundred terms.
REBUILT = 1e-10
# Keeps exactly singular Gram matrices factorable. Rounds of correction on what is left take its effect out again, and win
# back the digits that solving with a Gram matrix costs.
SHIFT = 1e-13
_ROUNDS = 3


def factored(unit: csr_array) -> SuperLU:
    """Factor the Gram matrix of unit rows, a little shifted, without pivoting for size: the pivots mean distances."""
    gram = (unit @ unit.T + SHIFT * diags_array(np.ones(unit.shape[0]))).tocsc()
    return splu(gram, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})


class Span:
    """The space of some unit rows; `offer` either rebuilds another or lets it in, after the ones before."""

    def __init__(self, basis: csr_array) -> None:
        self._basis = basis
        self._factor = factored(basis) if basis.shape[0] else None
        self._directions: list[Values] = []  # orthonormal, one per row taken in later
        self._recipes: list[Values] = []  # each direction as weights over basis and rows taken in
        self.size = basis.shape[0]

    def offer(self, row: Values) -> Values | None:
        """Give the weights that rebuild a unit row, or take it in and give None."""
        weights, rest = np.zeros(self.size), row.copy()
        for _ in range(_ROUNDS):
            if self._factor is not None:
                correction = self._factor.solve(self._basis @ rest)
                weights[: len(correction)] += correction
                rest -= self._basis.T @ correction
            for direction, recipe in zip(self._directions, self._recipes):
                share = float(direction @ rest)
                weights[: len(recipe)] += share * recipe
                rest -= share * direction
        left = float(np.linalg.norm(rest))
        if left <= REBUILT:
            return weights
        self._directions.append(rest / left)
        self._recipes.append(np.append(-weights, 1.0) / left)
        self.size += 1
        return None
