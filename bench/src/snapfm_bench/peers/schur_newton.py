"""Fifteen lines of NumPy and SciPy: Newton on the optimality system through a sparse Schur complement. No globalization.

    (J W⁻¹ Jᵀ) λ = h − J W⁻¹ (u − û),   u ← u − W⁻¹ (u − û + Jᵀλ),   W = I + Σ λ∇²h      (math.md, eq. optimality)

What a careful user writes in an afternoon, factorized by SuperLU, one sample after the other.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import block_array, csc_array, diags_array, eye_array
from scipy.sparse.linalg import splu

from snapfm.arrays import Values
from snapfm.compile import CompiledLaws
from snapfm.errors import Status
from snapfm.solve.base import Limits
from snapfm_bench.peers.certificate import accepted
from snapfm_bench.peers.numeric import Sample
from snapfm_bench.peers.samplewise import Begin, SampleEnd, Samplewise
from snapfm_bench.peers.scope import equalities_only

ITERATIONS = 50  # as for the root-finder


class SchurNewton(Samplewise):
    """Prepared for compiled laws that are equalities; pinned unknowns and implied rows are removed.

    Where the Hessian couples unknowns, the whole optimality system is factorized instead. Tolerance: a sample stops at the
    violation asked for with a stationarity that the judge accepts.
    """

    def __init__(self, structure: CompiledLaws, limits: Limits, iterations: int = ITERATIONS) -> None:
        equalities_only("SchurNewton", structure, limits)
        super().__init__(structure, limits, iterations)
        self.build()
        self.diagonal = bool((self.rows.hessians.rows == self.rows.hessians.columns).all())

    def build(self) -> None:
        """Build values, Jacobian and Hessian."""
        _ = self.rows.values, self.rows.jacobians, self.rows.hessians

    def one(self, sample: Sample, tolerance: float, iterations: int, begin: Begin) -> SampleEnd:
        """Iterate."""
        x, weight = begin.x.copy(), begin.multipliers.copy()
        for done in range(iterations + 1):
            h, jacobian, away = sample.residual(x), sample.jacobian(x), x - sample.target
            violation = np.abs(h).max(initial=0.0)
            stationarity = np.abs(away + jacobian.T @ weight).max(initial=0.0)
            if not np.isfinite(violation + stationarity):
                return SampleEnd(x, weight, done, Status.NONFINITE)
            if violation <= tolerance and stationarity <= accepted(tolerance):
                return SampleEnd(x, weight, done, Status.CONVERGED)
            if done == iterations:
                break
            try:
                x, weight = self._step(sample, x, weight, h, jacobian, away)
            except RuntimeError:  # SuperLU: the matrix is exactly singular
                return SampleEnd(x, weight, done, Status.STALLED)
        return SampleEnd(x, weight, iterations, Status.ITERATION_LIMIT)

    def _step(
        self, sample: Sample, x: Values, weight: Values, h: Values, jacobian: csc_array, away: Values
    ) -> tuple[Values, Values]:
        hessian = sample.hessian(x, weight)
        if not len(h):
            return sample.target.copy(), weight
        if self.diagonal:
            inverse = 1.0 / (1.0 + hessian.diagonal())
            gram = csc_array(jacobian @ diags_array(inverse) @ jacobian.T)
            new = self.linear(gram, h - jacobian @ (inverse * away))
            return x - inverse * (away + jacobian.T @ new), new
        system = csc_array(block_array([[eye_array(len(x)) + hessian, jacobian.T], [jacobian, None]]))
        found = self.linear(system, np.concatenate([-away, -h]))
        return x + found[: len(x)], found[len(x) :]

    def linear(self, matrix: csc_array, right: Values) -> Values:
        """Solve with a symmetric matrix; raises RuntimeError if it is singular."""
        found: Values = splu(matrix).solve(right)
        return found
