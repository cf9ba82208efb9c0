"""SciPy's trust-constr with sparse Jacobian and Hessian: Byrd–Omojokun SQP for equalities, an interior point with inequalities.

Represents interior-point Newton methods of general optimization packages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import Bounds, NonlinearConstraint, minimize
from scipy.sparse import csr_array, eye_array

from snapfm.arrays import Values
from snapfm.compile import CompiledLaws
from snapfm.errors import Status
from snapfm.solve.base import Limits
from snapfm_bench.peers.certificate import accepted, complementarity
from snapfm_bench.peers.numeric import Sample
from snapfm_bench.peers.samplewise import Begin, SampleEnd, Samplewise

ITERATIONS = 500  # small problems take 2 to 30
_NARROWEST = 1e-14  # trust radius at which steps are rounding: it has stalled


class TrustConstr(Samplewise):
    """Prepared for compiled laws and limits; raises UnsupportedLaw if the Hessian is too dense to be listed.

    Pinned unknowns and implied rows are removed. The first trust region lets every unknown move by one. Tolerance: it
    stops where the largest constraint violation is the tolerance asked for, absolute, and stationarity and complementarity
    are what the judge accepts. SciPy's own rule (`gtol`) has one number for both and ignores the barrier, so it is off.
    """

    def __init__(self, structure: CompiledLaws, limits: Limits, iterations: int = ITERATIONS) -> None:
        super().__init__(structure, limits, iterations)
        self.build()  # raises if the Hessian is too dense, before any work is done

    def build(self) -> None:
        """Build values, Jacobian and Hessian."""
        _ = self.rows.values, self.rows.jacobians, self.rows.hessians

    def one(self, sample: Sample, tolerance: float, iterations: int, begin: Begin) -> SampleEnd:
        """Minimize; SciPy estimates multipliers itself."""
        rows, target = self.rows, sample.target
        last = _Last(target, np.zeros(len(rows.kept)))
        if not np.isfinite(sample.residual(begin.x)).all():
            return SampleEnd(target, last.multipliers, 0, Status.NONFINITE)  # it would run to its limit
        nearest = accepted(tolerance)

        def watch(x: Values, state: Any) -> bool:
            last.update(x, state)
            return bool(state.constr_violation <= tolerance and self._stationarity(x, target, state) <= nearest)

        try:
            found = minimize(
                lambda x: 0.5 * float((x - target) @ (x - target)),
                begin.x,
                method="trust-constr",
                jac=lambda x: x - target,
                hess=lambda x: csr_array(eye_array(len(x))),
                constraints=self._constraints(sample),
                bounds=Bounds(rows.lower, rows.upper) if rows.bounded else None,
                callback=watch,
                options={
                    "gtol": 0.0,
                    "xtol": _NARROWEST,
                    "barrier_tol": complementarity(self.limits, tolerance),
                    "maxiter": iterations,
                    "initial_tr_radius": max(1.0, np.sqrt(len(target))),
                    "sparse_jacobian": True,
                },
            )
        # Where the Jacobian is singular or a law is not finite it does not step back, but raises these.
        except (np.linalg.LinAlgError, RuntimeError):
            return SampleEnd(last.x, last.multipliers, last.iterations, Status.STALLED)
        except ValueError as cause:
            if "infs or NaNs" not in str(cause):
                raise
            return SampleEnd(last.x, last.multipliers, last.iterations, Status.NONFINITE)
        return SampleEnd(last.x, last.multipliers, last.iterations, _STATUS.get(found.status, Status.STALLED))

    def _stationarity(self, x: Values, target: Values, state: Any) -> float:
        """Measure how far x is from stationary, as the judge does, and from complementary where rows are inequalities."""
        if not len(self.rows.kept):
            return self.rows.stationarity(x, x - target)
        weight, unequal = state.v[0], ~self.rows.equal
        slack = np.abs(state.constr[0][unequal] * weight[unequal]).max(initial=0.0)
        return max(self.rows.stationarity(x, x - target + state.jac[0].T @ weight), float(slack))

    def _constraints(self, sample: Sample) -> list[NonlinearConstraint]:
        if not len(self.rows.kept):
            return []
        floor = np.where(self.rows.equal, 0.0, -np.inf)
        return [NonlinearConstraint(sample.residual, floor, 0.0, sample.jacobian, sample.hessian)]


_STATUS = {0: Status.ITERATION_LIMIT, 3: Status.CONVERGED}  # 3: stopped by the watch


class _Last:
    """The last iterate, kept for when it raises."""

    def __init__(self, x: Values, multipliers: Values) -> None:
        self.x, self.multipliers, self.iterations = x, multipliers, 0

    def update(self, x: Values, state: Any) -> None:
        self.x, self.iterations = np.array(x), int(state.nit)
        if len(self.multipliers):
            self.multipliers = np.array(state.v[0])
