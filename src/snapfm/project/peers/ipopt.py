"""Ipopt through casadi: the interior-point method that projections are usually handed to, sample by sample."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from snapfm.errors import ShapeError, Status
from snapfm.laws import Params
from snapfm.project.base import Solution
from snapfm.project.judge import STATIONARITY
from snapfm.project.limits import Limits
from snapfm.project.peers.call import Call
from snapfm.project.peers.certificate import Answer, broken, certified
from snapfm.project.peers.model import Model, casadi
from snapfm.structure import Structure

Values = npt.NDArray[np.float64]
Begin = Literal["input", "zeros"] | Tensor

ITERATIONS = 500  # what arrives at all on the benchmark problems does so within 250

# Measured on the benchmark problems, 3 to 4 times faster than the defaults: MUMPS orders by AMD and neither permutes nor
# scales (these matrices need neither), no least-squares start of the multipliers, no scaling of rows of order one.
_TUNED = {
    "ipopt.mumps_pivot_order": 0,
    "ipopt.mumps_permuting_scaling": 0,
    "ipopt.mumps_scaling": 0,
    "ipopt.constr_mult_init_max": 0.0,
    "ipopt.nlp_scaling_method": "none",
    "calc_lam_p": False,
}
_SILENT = {
    "print_time": False,
    "error_on_fail": False,
    "show_eval_warnings": False,
    "ipopt.print_level": 0,
    "ipopt.sb": "yes",
}

# What Ipopt says, as a status; everything else it may say is a standstill. "Acceptable" is not what was asked for.
_STATUS = {
    "Solve_Succeeded": Status.CONVERGED,
    "Infeasible_Problem_Detected": Status.INFEASIBLE,
    "Maximum_Iterations_Exceeded": Status.ITERATION_LIMIT,
    "Invalid_Number_Detected": Status.NONFINITE,
}


class Ipopt:
    """Prepared for one Structure and its limits.

    `tuned` gives pinned unknowns as fixed bounds, drops implied rows and sets the fastest options measured; without it
    Ipopt gets every row as it is and keeps its defaults. Tolerance: `tol`, `constr_viol_tol` and `compl_inf_tol` are the
    tolerance asked for, absolute; `dual_inf_tol` is the judge's stationarity. Bounds and inequalities are not relaxed
    (`bound_relax_factor`), which by default breaks them by 1e-8, and an "acceptable" answer does not count.
    """

    def __init__(self, structure: Structure, limits: Limits, tuned: bool = True, iterations: int = ITERATIONS) -> None:
        self.structure, self.limits, self.tuned, self.iterations = structure, limits, tuned, iterations
        self.model = Model(structure, limits, presolve=tuned)
        self._calls: dict[float, Call] = {}

    def prepare(self, tolerance: float) -> Call:
        """Build the solver for a tolerance, once; `solve` does so at first use."""
        if tolerance not in self._calls:
            self._calls[tolerance] = self._build(tolerance)
        return self._calls[tolerance]

    def _build(self, tolerance: float) -> Call:
        ca, model = casadi(), self.model
        # MX, not SX: evaluation takes a tenth of the time either way, and MX is built ten times faster.
        u, p = ca.MX.sym("u", self.structure.unknowns), ca.MX.sym("p", self.structure.unknowns + model.knowns)
        target, known = p[: self.structure.unknowns], p[self.structure.unknowns :]
        problem = {"x": u, "p": p, "f": 0.5 * ca.sumsqr(u - target), "g": model.rows(u, known)}
        options: dict[str, Any] = {
            **_SILENT,
            **(_TUNED if self.tuned else {}),
            "ipopt.max_iter": self.iterations,
            "ipopt.tol": tolerance,
            "ipopt.constr_viol_tol": tolerance,
            "ipopt.compl_inf_tol": tolerance,
            "ipopt.dual_inf_tol": STATIONARITY,
            "ipopt.bound_relax_factor": 0.0,
            "ipopt.acceptable_iter": 0,
        }
        call = Call(ca.nlpsol("ipopt", "ipopt", problem, options))
        call.arguments["lbg"][:] = np.where(self.structure.equality_rows[model.kept], 0.0, -np.inf)
        call.arguments["lbx"][:], call.arguments["ubx"][:] = self.limits.lower, self.limits.upper
        return call

    def solve(self, start: Tensor, params: Params, tolerance: float, begin: Begin = "input") -> Solution:
        """Project a float64 batch (b, *shape), each sample from û, from zeros, or from its field in `begin`."""
        answer = self.run(start, params, tolerance, begin)
        return certified(self.structure, self.limits, start, params, answer, self.model)

    def run(self, start: Tensor, params: Params, tolerance: float, begin: Begin = "input") -> Answer:
        """Do the same and leave the certificate out: what a timing should see."""
        model, count, call = self.model, len(start), self.prepare(tolerance)
        target: Values = start.reshape(count, self.structure.unknowns).numpy()
        first = _first(begin, start).reshape(target.shape)
        known, pinned = model.inputs(params, count)
        u, multipliers = target.copy(), np.zeros((count, self.structure.rows))
        iterations, status = np.zeros(count, np.int64), np.full(count, Status.NONFINITE, np.int8)
        for i in np.flatnonzero(~broken(start, params).numpy()):
            given = call.arguments
            given["p"][: target.shape[1]], given["p"][target.shape[1] :] = target[i], known[i]
            given["x0"][:] = first[i]
            given["x0"][model.fixed] = pinned[i]
            given["lbx"][model.fixed] = given["ubx"][model.fixed] = pinned[i]
            call()
            said = call.stats()
            u[i], multipliers[i, model.kept] = call.results["x"], call.results["lam_g"]
            iterations[i], status[i] = said["iter_count"], _STATUS.get(said["return_status"], Status.STALLED)
        return Answer(u, multipliers, iterations, status)


def _first(begin: Begin, start: Tensor) -> Values:
    if isinstance(begin, Tensor):
        if begin.shape != start.shape:
            raise ShapeError(
                f"Ipopt.solve(begin=…) expects one field per sample, {tuple(start.shape)}; got {tuple(begin.shape)}. Give a "
                "tensor like start, 'input' or 'zeros'."
            )
        return begin.numpy()
    if begin not in ("input", "zeros"):
        raise ShapeError(
            f"Ipopt.solve(begin=…) expects 'input', 'zeros' or a tensor like start; got {begin!r}. Choose one of these."
        )
    field: Values = start.numpy()
    return field if begin == "input" else np.zeros_like(field)
