"""Gram: AAᵀ of one constant sparse A, factorised once for all samples and calls."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array
from scipy.sparse.linalg import SuperLU, splu

Values = npt.NDArray[np.float64]


class Gram:
    """The factor of AAᵀ; a diagonal one, such as totals over disjoint slices give, is only divided by."""

    def __init__(self, matrix: csr_array) -> None:
        gram = csc_array(matrix @ matrix.T)
        self.diagonal: Values | None = None
        self.factor: SuperLU | None = None
        if gram.nnz == np.count_nonzero(gram.diagonal()):
            self.diagonal = gram.diagonal()
        else:
            self.factor = splu(gram, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})

    def solve(self, right: Values) -> Values:
        """Solve for every sample (b, m) alone: a solve of many columns at once may round differently than of one."""
        if self.diagonal is not None:
            return right / self.diagonal
        assert self.factor is not None
        out = np.empty_like(right)
        for i, row in enumerate(right):
            out[i] = self.factor.solve(row) if np.isfinite(row).all() else np.nan
        return out
