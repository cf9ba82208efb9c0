"""L-BFGS on a rising penalty: SciPy's L-BFGS-B, for first-order packages without constraints.

    min ½‖u − û‖² + ρ/2 (‖h(u)‖² + ‖max(g(u), 0)‖²),   lower ≤ u ≤ upper,   ρ = 1, 10, 100, …

At the minimum λ = ρh (and ρ·max(g, 0)) are multipliers, so that laws are broken by λ/ρ: a tolerance of 1e-8 needs ρ = 1e8,
and many more iterations. A sample that does not reach it is marked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize

from snapfm.arrays import Values
from snapfm.compile import CompiledLaws
from snapfm.errors import Status
from snapfm.solve.base import Limits
from snapfm_bench.peers.certificate import accepted
from snapfm_bench.peers.numeric import Sample
from snapfm_bench.peers.samplewise import Begin, SampleEnd, Samplewise

ITERATIONS = 5000  # of all penalties together
RISE = 10.0  # from penalty to penalty
HIGHEST = 1e12  # above it ρ‖h‖² is lost in rounding before a law of order one holds to 1e-12
MEMORY = 20  # pairs kept, twice SciPy's own: rising penalties are stiff


class Lbfgs(Samplewise):
    """Prepared for compiled laws and limits; bounds are L-BFGS-B's own, pinned unknowns and implied rows removed.

    Tolerance: a penalty's minimum counts as found when its projected gradient, which is the stationarity of u with λ = ρh, is
    what the judge accepts (`gtol`); the penalty rises until the largest violation is the tolerance asked for.
    """

    def __init__(self, structure: CompiledLaws, limits: Limits, iterations: int = ITERATIONS) -> None:
        super().__init__(structure, limits, iterations)

    def build(self) -> None:
        """Build values and products with Jᵀ: no Jacobian, no Hessian."""
        _ = self.rows.values, self.rows.pulls

    def one(self, sample: Sample, tolerance: float, iterations: int, begin: Begin) -> SampleEnd:
        """Minimize, each penalty from the minimum of the one before; the first one is too weak to use an earlier answer."""
        rows, target, nearest = self.rows, sample.target, accepted(tolerance)
        x, rho, used = np.clip(target, rows.lower, rows.upper), 1.0, 0
        bounds = Bounds(rows.lower, rows.upper) if rows.bounded else None
        while True:
            found = self._minimum(sample, x, rho, bounds, iterations - used, nearest)
            x, used = found.x, used + int(found.nit)
            excess = _excess(sample, x)
            violation, weight = float(np.abs(excess).max(initial=0.0)), rho * excess
            stationarity = rows.stationarity(x, x - target + sample.pull(x, weight))
            if not np.isfinite(violation + stationarity):
                return SampleEnd(x, weight, used, Status.NONFINITE)
            if violation <= tolerance and stationarity <= nearest:
                return SampleEnd(x, weight, used, Status.CONVERGED)
            if used >= iterations:
                return SampleEnd(x, weight, used, Status.ITERATION_LIMIT)
            if violation <= tolerance or rho >= HIGHEST:  # more penalty does not help
                return SampleEnd(x, weight, used, Status.STALLED)
            rho *= RISE

    def _minimum(
        self, sample: Sample, x: Values, rho: float, bounds: Bounds | None, iterations: int, nearest: float
    ) -> Any:
        target = sample.target

        def value(x: Values) -> tuple[float, Values]:
            away, excess = x - target, _excess(sample, x)
            return 0.5 * float(away @ away + rho * excess @ excess), away + sample.pull(x, rho * excess)

        options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": MEMORY, "ftol": 0.0, "gtol": nearest}
        return minimize(value, x, method="L-BFGS-B", jac=True, bounds=bounds, options=options)


def _excess(sample: Sample, x: Values) -> Values:
    """Return h, or max(g, 0) for inequalities."""
    residual = sample.residual(x)
    return np.where(sample.rows.equal, residual, np.maximum(residual, 0.0))
