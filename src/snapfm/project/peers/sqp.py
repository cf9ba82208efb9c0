"""Sequential quadratic programming through casadi, with PIQP for the quadratic programs; both come with casadi."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from snapfm.errors import Status
from snapfm.laws import Params
from snapfm.project.base import Limits, Solution
from snapfm.project.budget import STATIONARITY
from snapfm.project.peers.certificate import Answer, converged
from snapfm.project.peers.nlp import SILENT, Nlp
from snapfm.structure import CompiledLaws

ITERATIONS = 100  # benchmark inputs tried take 1 to 5, small problems up to 8
_FINER = 0.1  # times the tolerance: quadratic programs solved no better would keep the outer iteration from reaching it


class Sqp(Nlp):
    """Prepared for compiled laws and limits; pinned unknowns are fixed bounds, implied rows are dropped.

    Tolerance: `tol_pr` is the tolerance asked for, absolute; `tol_du` is the judge's stationarity; PIQP's `eps_abs` is a tenth
    of the smaller of both, its relative ones are off. The Hessian is exact and not convexified, which
    the benchmark problems converge without; rows are of order one, so PIQP's preconditioner is off.
    """

    plugin = "sqpmethod"
    statuses: ClassVar[Mapping[str, Status]] = {
        "Solve_Succeeded": Status.CONVERGED,
        "Maximum_Iterations_Exceeded": Status.ITERATION_LIMIT,
    }

    def __init__(self, structure: CompiledLaws, limits: Limits, iterations: int = ITERATIONS) -> None:
        super().__init__(structure, limits, iterations, presolve=True)

    def certify(self, start: Tensor, params: Params, tolerance: float, answer: Answer) -> Solution:
        """Complete an answer, and count it as converged where the judge accepts it.

        From an input that is an answer but for pinned unknowns no step lowers the merit: it reports a step that is too small.
        """
        solved = super().certify(start, params, tolerance, answer)
        assert solved.status is not None
        solved.status[converged(self.structure, self.limits, solved, tolerance)] = int(Status.CONVERGED)
        return solved

    def options(self, tolerance: float, iterations: int) -> dict[str, Any]:
        """Map the tolerance as the class says."""
        piqp = {"eps_abs": _FINER * min(tolerance, STATIONARITY), "eps_rel": 0.0, "preconditioner_iter": 0}
        return {
            **SILENT,
            "print_header": False,
            "print_iteration": False,
            "print_status": False,
            "hessian_approximation": "exact",
            "qpsol": "piqp",
            "qpsol_options": {"error_on_fail": False, "print_time": False, "piqp": piqp},
            "max_iter": iterations,
            "tol_pr": tolerance,
            "tol_du": STATIONARITY,
        }
