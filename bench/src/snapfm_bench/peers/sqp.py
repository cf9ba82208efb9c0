"""Sequential quadratic programming through casadi, with PIQP for the quadratic programs; both come with casadi."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from snapfm.compile import CompiledLaws
from snapfm.errors import Status
from snapfm.laws import Params
from snapfm.solve.base import Limits, Solution
from snapfm_bench.peers.call import PeerCall
from snapfm_bench.peers.certificate import Answer, accepted, broken, converged
from snapfm_bench.peers.nlp import SILENT, Begin, Nlp, NlpInputs, Outputs

THREADS = 2
UNKNOWN = -1  # iterations of samples solved on several threads: casadi does not report them
ITERATIONS = 100  # benchmark inputs tried take 1 to 5, small problems up to 8
_FINER = 0.1  # times the tolerance: quadratic programs solved no better would keep the outer iteration from reaching it


class Sqp(Nlp):
    """Prepared for compiled laws and limits; pinned unknowns are fixed bounds, implied rows are dropped.

    Tolerance: `tol_pr` is the tolerance asked for, absolute; `tol_du` is the stationarity that the judge accepts; PIQP's
    `eps_abs` is a tenth of the tolerance, its relative ones are off. The Hessian is exact and not convexified, which
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
        piqp = {"eps_abs": _FINER * tolerance, "eps_rel": 0.0, "preconditioner_iter": 0}
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
            "tol_du": accepted(tolerance),
        }


class SqpThreads(Sqp):
    """The same, a batch mapped over threads by casadi; its statuses are lost there, so what the judge accepts has converged."""

    def __init__(
        self, structure: CompiledLaws, limits: Limits, threads: int = THREADS, iterations: int = ITERATIONS
    ) -> None:
        super().__init__(structure, limits, iterations)
        self.threads = threads
        self._mapped: dict[tuple[float, int, int], PeerCall] = {}

    def prepare(self, tolerance: float, count: int = 1, iterations: int | None = None, warm: bool = False) -> PeerCall:
        """Build the solver and map it over a batch size, once."""
        limit = self.iterations if iterations is None else iterations
        if (tolerance, limit, count) not in self._mapped:
            call = PeerCall(self.solver(tolerance, limit).map(count, "thread", self.threads))
            floor = np.where(self.structure.equality_rows[self.model.kept], 0.0, -np.inf)
            call.arguments["lbg"][:] = np.tile(floor, count)
            call.arguments["lbx"][:] = np.tile(self.limits.lower, count)
            call.arguments["ubx"][:] = np.tile(self.limits.upper, count)
            self._mapped[tolerance, limit, count] = call
        return self._mapped[tolerance, limit, count]

    def run(
        self, start: Tensor, params: Params, tolerance: float, begin: Begin = "input", iterations: int | None = None,
        last: Answer | None = None,
    ) -> Answer:  # fmt: skip
        """Solve without certificate, on all threads; a sample that is not finite is replaced by a copy of another."""
        given, able = self._inputs(start, params, begin, last), np.flatnonzero(~broken(start, params).numpy())
        count = len(start)
        if not len(able):
            empty = np.zeros((0, self.structure.unknowns))
            return self._answer(given, able, Outputs(empty, np.zeros((0, len(self.model.kept))), able, []))
        stand_in = np.full(count, able[0])
        stand_in[able] = able
        call = self.prepare(tolerance, count, iterations)
        self._fill(call, given.take(stand_in))
        call()
        u, weight = call.results["x"].reshape(count, -1), call.results["lam_g"].reshape(count, -1)
        done, said = np.full(len(able), UNKNOWN, np.int64), ["Maximum_Iterations_Exceeded"] * len(able)
        return self._answer(given, able, Outputs(u[able], weight[able], done, said))

    def _fill(self, call: PeerCall, inputs: NlpInputs) -> None:
        """Write the inputs of all samples. Written: the call's arguments."""
        arguments, fixed, shape = call.arguments, self.model.fixed, inputs.target.shape
        arguments["p"][:] = np.concatenate([inputs.target, inputs.known], axis=1).ravel()
        arguments["x0"][:], arguments["lam_g0"][:] = inputs.first.ravel(), inputs.weights.ravel()
        for name in ("x0", "lbx", "ubx"):
            arguments[name].reshape(shape)[:, fixed] = inputs.pinned
