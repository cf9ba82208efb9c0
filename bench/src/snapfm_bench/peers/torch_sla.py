"""The NumPy Newton with torch-sla, sparse linear algebra for torch, in place of SuperLU called directly."""

from __future__ import annotations

import torch
from scipy.sparse import csc_array

from snapfm.arrays import Values
from snapfm.compile import CompiledLaws
from snapfm.errors import MissingDependency
from snapfm.solve.base import Limits
from snapfm_bench.peers.schur_newton import ITERATIONS, SchurNewton


class TorchSla(SchurNewton):
    """As `SchurNewton`; torch-sla chooses its backend itself. Raises MissingDependency where it is absent."""

    def __init__(self, structure: CompiledLaws, limits: Limits, iterations: int = ITERATIONS) -> None:
        try:
            import torch_sla
        except ImportError as cause:
            raise MissingDependency(
                "torch_sla is needed for the torch-sla peer; it is not installed. Install it with: pip install torch-sla"
            ) from cause
        self._solve = torch_sla.spsolve
        super().__init__(structure, limits, iterations)

    def linear(self, matrix: csc_array, right: Values) -> Values:
        """Solve with a symmetric matrix."""
        entries = matrix.tocoo()
        row, column = (torch.from_numpy(one.astype("int64")) for one in (entries.row, entries.col))
        value = torch.from_numpy(entries.data)
        found: Values = self._solve(value, row, column, matrix.shape, torch.from_numpy(right)).numpy()
        return found
