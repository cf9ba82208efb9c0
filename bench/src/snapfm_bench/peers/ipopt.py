"""Ipopt through casadi: the usual interior-point method for projections, sample by sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from snapfm.compile import CompiledLaws
from snapfm.errors import Status
from snapfm.solve.base import Limits
from snapfm_bench.peers.certificate import accepted, complementarity
from snapfm_bench.peers.nlp import SILENT, Nlp

ITERATIONS = 500  # samples of the benchmark problems that converge at all need at most 250

# Measured on the benchmark problems, 3 to 4 times faster than the defaults: MUMPS orders by AMD and neither permutes nor
# scales (these matrices need neither), no least-squares start of the multipliers, no scaling of rows of order one. Where laws
# have inequalities a smaller first barrier saves iterations; `bound_push` costs some (`python -m benchmarks ipopt_options`).
_TUNED = {
    "ipopt.mu_init": 1e-4,
    "ipopt.mumps_pivot_order": 0,
    "ipopt.mumps_permuting_scaling": 0,
    "ipopt.mumps_scaling": 0,
    "ipopt.constr_mult_init_max": 0.0,
    "ipopt.nlp_scaling_method": "none",
    "calc_lam_p": False,
}
# For a start at the answer to a nearby input: its multipliers count, and neither the barrier nor the distance to inequalities
# begins far from where they ended.
_WARM = {
    "ipopt.warm_start_init_point": "yes",
    "ipopt.mu_init": 1e-6,
    "ipopt.warm_start_bound_push": 1e-9,
    "ipopt.warm_start_bound_frac": 1e-9,
    "ipopt.warm_start_slack_bound_push": 1e-9,
    "ipopt.warm_start_slack_bound_frac": 1e-9,
    "ipopt.warm_start_mult_bound_push": 1e-9,
}
_SILENT = {**SILENT, "ipopt.print_level": 0, "ipopt.sb": "yes"}


class Ipopt(Nlp):
    """Prepared for compiled laws and limits.

    `tuned` passes pinned unknowns as fixed bounds, drops implied rows and sets the fastest options measured; without it
    Ipopt gets every row as it is and keeps its defaults. Tolerance: `tol` and `constr_viol_tol` are the tolerance
    asked for, absolute; `dual_inf_tol` and `compl_inf_tol` are what the judge accepts, no less. Bounds and inequalities are not
    relaxed (`bound_relax_factor`), which by default breaks them by 1e-8, and an "acceptable" answer does not count.
    """

    plugin = "ipopt"
    warm_options: ClassVar[Mapping[str, Any]] = _WARM
    # "Acceptable" is not what was asked for.
    statuses: ClassVar[Mapping[str, Status]] = {
        "Solve_Succeeded": Status.CONVERGED,
        "Infeasible_Problem_Detected": Status.INFEASIBLE,
        "Maximum_Iterations_Exceeded": Status.ITERATION_LIMIT,
        "Invalid_Number_Detected": Status.NONFINITE,
    }

    def __init__(
        self, structure: CompiledLaws, limits: Limits, tuned: bool = True, iterations: int = ITERATIONS
    ) -> None:
        super().__init__(structure, limits, iterations, presolve=tuned)
        self.tuned = tuned

    def options(self, tolerance: float, iterations: int) -> dict[str, Any]:
        """Map the tolerance as the class says."""
        return {
            **_SILENT,
            **(_TUNED if self.tuned else {}),
            "ipopt.max_iter": iterations,
            "ipopt.tol": tolerance,
            "ipopt.constr_viol_tol": tolerance,
            "ipopt.compl_inf_tol": complementarity(self.limits, tolerance),
            "ipopt.dual_inf_tol": accepted(tolerance),
            "ipopt.bound_relax_factor": 0.0,
            "ipopt.acceptable_iter": 0,
        }
