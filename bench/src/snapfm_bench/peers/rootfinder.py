"""casadi's Newton root-finder on the KKT system: the fastest peer near an answer. No globalization.

    u − û + Jᵀλ = 0,   h(u) − shift·λ = 0      (math.md, eq. optimality)

The shift keeps the matrix quasi-definite, so that a factorization without pivoting works, even with redundant rows.
"""

from __future__ import annotations

from contextlib import redirect_stderr
from io import StringIO
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.arrays import Values
from snapfm.compile import CompiledLaws
from snapfm.errors import Status
from snapfm.laws import Params
from snapfm.solve.base import Limits, Solution
from snapfm_bench.peers.call import PeerCall
from snapfm_bench.peers.certificate import Answer, broken, certified, converged
from snapfm_bench.peers.model import CasadiModel, Symbol, casadi
from snapfm_bench.peers.scope import equalities_only

ITERATIONS = 50  # near an answer it takes 4 to 6; without globalization more do not help
UNKNOWN = -1  # iterations of samples solved on several threads: casadi does not report them
# As fast as 1e-10, which alone would break a tolerance of 1e-8 once multipliers reach 100; at 1e-14 pivots become zero.
SHIFT = 1e-12


class Rootfinder:
    """Prepared for compiled laws that are equalities; raises UnsupportedLaw for inequalities and bounds.

    `threads` > 1 maps a whole batch over threads. `line_search` halves steps that raise the residual. Tolerance: the root-finder
    stops at half of it in every element of the system, the other half is for the shift; the judge accepts all of it.
    """

    def __init__(
        self, structure: CompiledLaws, limits: Limits, threads: int = 1, line_search: bool = False, shift: float = SHIFT
    ) -> None:
        equalities_only("Rootfinder", structure, limits)
        self.structure, self.limits = structure, limits
        self.threads, self.line_search, self.shift = threads, line_search, shift
        self.model = CasadiModel(structure, limits, presolve=True)
        self.more: dict[str, Any] = {}  # options of somebody who knows better; to be set before the first call
        self._finders: dict[tuple[float, int], Symbol] = {}
        self._calls: dict[tuple[float, int, int], PeerCall] = {}

    def prepare(self, tolerance: float, count: int, iterations: int = ITERATIONS) -> PeerCall:
        """Build the root-finder for a tolerance and, on several threads, a batch size; `solve` does so at first use."""
        wide = count if self.threads > 1 else 1
        if (tolerance, iterations, wide) not in self._calls:
            if (tolerance, iterations) not in self._finders:
                self._finders[tolerance, iterations] = self._build(tolerance, iterations)
            one = self._finders[tolerance, iterations]
            mapped = one if self.threads == 1 else one.map(wide, "thread", self.threads)
            self._calls[tolerance, iterations, wide] = PeerCall(mapped)
        return self._calls[tolerance, iterations, wide]

    def _build(self, tolerance: float, iterations: int) -> Symbol:
        ca, model = casadi(), self.model
        # SX, not MX: scalar code evaluates the derivatives of the system in a third of the time.
        x, weight = ca.SX.sym("x", len(model.free)), ca.SX.sym("weight", len(model.kept))
        target, pinned = ca.SX.sym("target", len(model.free)), ca.SX.sym("pinned", len(model.fixed))
        known = ca.SX.sym("known", model.knowns)
        u = ca.SX.zeros(self.structure.unknowns, 1)
        u[model.free.tolist()] = x
        u[model.fixed.tolist()] = pinned
        rows = model.rows(u, known)
        system = ca.vertcat(x - target + ca.jtimes(rows, x, weight, True), rows - self.shift * weight)
        function = ca.Function(
            "optimality", [ca.vertcat(x, weight), ca.vertcat(target, pinned, known)], [system], ["z", "p"], ["f"]
        )
        options = {
            "linear_solver": "ldl",
            "line_search": self.line_search,
            "abstol": 0.5 * tolerance,
            "max_iter": iterations,
            "error_on_fail": False,
            "show_eval_warnings": False,
        }
        return ca.rootfinder("rootfinder", "newton", function, {**options, **self.more})

    def solve(self, start: Tensor, params: Params, tolerance: float) -> Solution:
        """Project a float64 batch (b, *shape), each sample from û with multipliers of zero."""
        return self.limited(start, params, tolerance, ITERATIONS)

    def limited(self, start: Tensor, params: Params, tolerance: float, iterations: int) -> Solution:
        """Project with a limit of iterations of its own: one point of a convergence curve."""
        return self.certify(start, params, tolerance, self.run(start, params, tolerance, iterations))

    def certify(self, start: Tensor, params: Params, tolerance: float, answer: Answer) -> Solution:
        """Complete an answer, and count as converged what the judge accepts."""
        solved = certified(self.structure, self.limits, start, params, answer, self.model)
        assert solved.status is not None
        # Its own status is lost on threads, so its answers are checked: what misses the tolerance ran out of iterations.
        solved.status[converged(self.structure, self.limits, solved, tolerance)] = int(Status.CONVERGED)
        finite = torch.isfinite(solved.u).all(dim=1) & torch.isfinite(solved.stationarity)
        solved.status[~finite | broken(start, params)] = int(Status.NONFINITE)
        return solved

    def again(self, start: Tensor, params: Params, tolerance: float, last: Answer) -> Answer:
        """Project as `run` does, each sample from the fields and multipliers of the last answer, to a nearby input."""
        return self.run(start, params, tolerance, last=last)

    def run(
        self, start: Tensor, params: Params, tolerance: float, iterations: int = ITERATIONS, begin: Tensor | None = None,
        last: Answer | None = None,
    ) -> Answer:  # fmt: skip
        """Project without certificate and status, from û or from its field in `begin`: what is timed."""
        model, count = self.model, len(start)
        target: Values = start.reshape(count, self.structure.unknowns).numpy()
        known, pinned = model.inputs(params, count)
        free = len(model.free)
        first = target if begin is None else begin.reshape(target.shape).numpy()
        weight = np.zeros((count, self.structure.rows))
        if last is not None:
            first, weight = last.start(target)
        begins = np.concatenate([first[:, model.free], weight[:, model.kept]], axis=1)
        given = np.concatenate([target[:, model.free], pinned, known], axis=1)
        with redirect_stderr(StringIO()):  # casadi prints a line for every zero pivot; the status reports it
            found, done = self._find(begins, given, tolerance, iterations)
        u, multipliers = np.empty_like(target), np.zeros((count, self.structure.rows))
        u[:, model.free], u[:, model.fixed] = found[:, :free], pinned
        multipliers[:, model.kept] = found[:, free:]
        return Answer(u, multipliers, done, np.full(count, Status.ITERATION_LIMIT, np.int8))

    def _find(
        self, begins: Values, given: Values, tolerance: float, limit: int
    ) -> tuple[Values, npt.NDArray[np.int64]]:
        call = self.prepare(tolerance, len(begins), limit)
        (z, p), (out,) = call.arguments.values(), call.results.values()
        found, iterations = np.empty_like(begins), np.full(len(begins), UNKNOWN, np.int64)
        if self.threads > 1:
            z[:], p[:] = begins.ravel(), given.ravel()
            call()
            found[:] = out.reshape(found.shape)
            return found, iterations
        for i in range(len(begins)):
            z[:], p[:] = begins[i], given[i]
            call()
            found[i], iterations[i] = out, call.stats()["iter_count"]
        return found, iterations
