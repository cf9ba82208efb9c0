"""MadNLP through casadi: an interior point written in Julia. casadi ships the plugin, not the library behind it.

Where `libMad` is not found the peer says so and how to get it; nothing is loaded that could crash the process. Written against
casadi's interface and not run by us: no package index has the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from snapfm.compile import CompiledLaws
from snapfm.errors import MissingDependency, Status
from snapfm.solve.base import Limits
from snapfm_bench.peers.model import casadi
from snapfm_bench.peers.nlp import SILENT, Nlp

ITERATIONS = 500  # as for Ipopt


class MadNlp(Nlp):
    """Prepared for compiled laws and limits; raises MissingDependency where libMad is absent.

    Pinned unknowns are fixed bounds, implied rows are dropped. Tolerance: `tol` is the tolerance asked for; MadNLP has one for
    violation, stationarity and complementarity.
    """

    plugin = "madnlp"
    word = "unified_return_status"  # its own statuses are Julia's and not passed on
    statuses: ClassVar[Mapping[str, Status]] = {
        "SOLVER_RET_SUCCESS": Status.CONVERGED,
        "SOLVER_RET_INFEASIBLE": Status.INFEASIBLE,
        "SOLVER_RET_LIMITED": Status.ITERATION_LIMIT,
        "SOLVER_RET_NAN": Status.NONFINITE,
    }

    def __init__(self, structure: CompiledLaws, limits: Limits, iterations: int = ITERATIONS) -> None:
        if not casadi().has_nlpsol(self.plugin):
            raise MissingDependency(
                "libMad is needed for the MadNLP peer; casadi's plugin does not find it. Build it with Julia from "
                "github.com/apozharski/libmad and add its folder to LD_LIBRARY_PATH."
            )
        super().__init__(structure, limits, iterations, presolve=True)

    def options(self, tolerance: float, iterations: int) -> dict[str, Any]:
        """Map the tolerance as the class says."""
        return {**SILENT, "madnlp": {"tol": tolerance, "max_iter": iterations}}
