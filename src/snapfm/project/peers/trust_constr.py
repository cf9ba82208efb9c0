"""SciPy's trust-constr with sparse slopes and curvature: Byrd–Omojokun SQP for equalities, an interior point with inequalities.

Stands for interior-point Newton methods of general optimisation packages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import Bounds, NonlinearConstraint, minimize
from scipy.sparse import csr_array, eye_array

from snapfm.arrays import Values
from snapfm.errors import Status
from snapfm.project.budget import STATIONARITY
from snapfm.project.limits import Limits
from snapfm.project.peers.certificate import COMPLEMENTARITY
from snapfm.project.peers.numeric import Sample
from snapfm.project.peers.samplewise import End, Samplewise
from snapfm.structure import CompiledLaws

ITERATIONS = 500  # small problems take 2 to 30
_NARROWEST = 1e-14  # trust radius at which no step can be told from rounding: a standstill


class TrustConstr(Samplewise):
    """Prepared for compiled laws and limits; raises UnsupportedLaw when curvature is too dense to be written out.

    Pinned unknowns and implied rows are taken out. The first trust region lets every unknown move by one. Tolerance: it
    stops where the largest constraint violation is the tolerance asked for, absolute, and stationarity and complementarity
    are the judge's stationarity. SciPy's own rule (`gtol`) has one number for both and does not look at the barrier, so it is
    off.
    """

    def __init__(self, structure: CompiledLaws, limits: Limits, iterations: int = ITERATIONS) -> None:
        super().__init__(structure, limits, iterations)
        self.build()  # refuses curvature that cannot be written out before any work is done

    def build(self) -> None:
        """Build values, slopes and curvature."""
        _ = self.rows.values, self.rows.slopes, self.rows.bends

    def one(self, sample: Sample, tolerance: float, iterations: int) -> End:
        """Minimize from û."""
        rows, target = self.rows, sample.target
        shown = _Shown(target, np.zeros(len(rows.kept)))
        if not np.isfinite(sample.residual(target)).all():
            return End(target, shown.multipliers, 0, Status.NONFINITE)  # it would go on to its limit all the same

        def watch(x: Values, state: Any) -> bool:
            shown.see(x, state)
            return bool(state.constr_violation <= tolerance and self._gap(x, target, state) <= STATIONARITY)

        try:
            found = minimize(
                lambda x: 0.5 * float((x - target) @ (x - target)),
                target,
                method="trust-constr",
                jac=lambda x: x - target,
                hess=lambda x: csr_array(eye_array(len(x))),
                constraints=self._constraints(sample),
                bounds=Bounds(rows.lower, rows.upper) if rows.bounded else None,
                callback=watch,
                options={
                    "gtol": 0.0,
                    "xtol": _NARROWEST,
                    "barrier_tol": COMPLEMENTARITY,
                    "maxiter": iterations,
                    "initial_tr_radius": max(1.0, np.sqrt(len(target))),
                    "sparse_jacobian": True,
                },
            )
        # It does not go back from where slopes are singular or a law is not finite, but raises, in these words.
        except (np.linalg.LinAlgError, RuntimeError):
            return End(shown.x, shown.multipliers, shown.iterations, Status.STALLED)
        except ValueError as cause:
            if "infs or NaNs" not in str(cause):
                raise
            return End(shown.x, shown.multipliers, shown.iterations, Status.NONFINITE)
        return End(shown.x, shown.multipliers, shown.iterations, _SAID.get(found.status, Status.STALLED))

    def _gap(self, x: Values, target: Values, state: Any) -> float:
        """Measure how far x is from stationary, as the judge does, and from complementary where rows are inequalities."""
        if not len(self.rows.kept):
            return self.rows.gap(x, x - target)
        weight, unequal = state.v[0], ~self.rows.equal
        slack = np.minimum(-state.constr[0][unequal], np.abs(weight[unequal])).max(initial=0.0)
        return max(self.rows.gap(x, x - target + state.jac[0].T @ weight), float(slack))

    def _constraints(self, sample: Sample) -> list[NonlinearConstraint]:
        if not len(self.rows.kept):
            return []
        floor = np.where(self.rows.equal, 0.0, -np.inf)
        return [NonlinearConstraint(sample.residual, floor, 0.0, sample.jacobian, sample.hessian)]


_SAID = {0: Status.ITERATION_LIMIT, 3: Status.CONVERGED}  # 3: stopped by the watch


class _Shown:
    """The last iterate it showed, kept for when it raises."""

    def __init__(self, x: Values, multipliers: Values) -> None:
        self.x, self.multipliers, self.iterations = x, multipliers, 0

    def see(self, x: Values, state: Any) -> None:
        self.x, self.iterations = np.array(x), int(state.nit)
        if len(self.multipliers):
            self.multipliers = np.array(state.v[0])
