"""Ipopt on a whole batch at once: all samples as one problem with a block-diagonal structure.

    min Σᵢ ½‖uᵢ − ûᵢ‖²   subject to the laws of every sample

One barrier, one step length and one stopping rule for all: all samples iterate as long as the hardest, and a failure is one of
all.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from snapfm.compile import CompiledLaws
from snapfm.laws import Params
from snapfm.solve.base import Limits
from snapfm_bench.peers.call import PeerCall
from snapfm_bench.peers.certificate import Answer, broken
from snapfm_bench.peers.ipopt import ITERATIONS, Ipopt
from snapfm_bench.peers.model import Symbol, casadi
from snapfm_bench.peers.nlp import Begin, NlpInputs, Outputs


class IpoptFused(Ipopt):
    """Tuned Ipopt on one problem for a whole batch; built for each batch size.

    Tolerance: as for `Ipopt`, on the largest violation of all samples. A sample that is not finite is replaced by a copy of
    another, so that the problem keeps its size, and marked NONFINITE; every other sample has the status of the whole.
    """

    def __init__(self, structure: CompiledLaws, limits: Limits, iterations: int = ITERATIONS) -> None:
        super().__init__(structure, limits, True, iterations)
        self._wholes: dict[tuple[float, int, int, bool], PeerCall] = {}

    def prepare(self, tolerance: float, count: int = 1, iterations: int | None = None, warm: bool = False) -> PeerCall:
        """Build the problem of a batch size, once."""
        key = (tolerance, self.iterations if iterations is None else iterations, count, warm)
        if key not in self._wholes:
            call = PeerCall(self.whole(*key))
            floor = np.where(self.structure.equality_rows[self.model.kept], 0.0, -np.inf)
            call.arguments["lbg"][:] = np.tile(floor, count)
            call.arguments["lbx"][:] = np.tile(self.limits.lower, count)
            call.arguments["ubx"][:] = np.tile(self.limits.upper, count)
            self._wholes[key] = call
        return self._wholes[key]

    def whole(self, tolerance: float, iterations: int, count: int, warm: bool = False) -> Symbol:
        """Write one problem over all samples, sample after sample, and return casadi's solver for it."""
        ca, model, unknowns = casadi(), self.model, self.structure.unknowns
        u, known = ca.MX.sym("u", unknowns), ca.MX.sym("known", model.knowns)
        rows = ca.Function("rows", [u, known], [model.rows(u, known)]).map(count)
        x, p = ca.MX.sym("x", unknowns * count), ca.MX.sym("p", (unknowns + model.knowns) * count)
        target, given = p[: unknowns * count], p[unknowns * count :]
        held = ca.vec(rows(ca.reshape(x, unknowns, count), ca.reshape(given, model.knowns, count)))
        problem = {"x": x, "p": p, "f": 0.5 * ca.sumsqr(x - target), "g": held}
        return ca.nlpsol("whole", self.plugin, problem, self.all_options(tolerance, iterations, warm))

    def run(
        self, start: Tensor, params: Params, tolerance: float, begin: Begin = "input", iterations: int | None = None,
        last: Answer | None = None,
    ) -> Answer:  # fmt: skip
        """Solve without certificate, all samples as one."""
        given, able = self._inputs(start, params, begin, last), np.flatnonzero(~broken(start, params).numpy())
        count = len(start)
        if not len(able):
            empty = np.zeros((0, self.structure.unknowns))
            return self._answer(given, able, Outputs(empty, np.zeros((0, len(self.model.kept))), able, []))
        stand_in = np.full(count, able[0])
        stand_in[able] = able
        call = self.prepare(tolerance, count, iterations, last is not None)
        self._fill(call, given.take(stand_in))
        call()
        stats = call.stats()
        u, weight = call.results["x"].reshape(count, -1), call.results["lam_g"].reshape(count, -1)
        done = np.full(len(able), stats["iter_count"], np.int64)
        return self._answer(given, able, Outputs(u[able], weight[able], done, [stats[self.word]] * len(able)))

    def _fill(self, call: PeerCall, inputs: NlpInputs) -> None:
        """Write the inputs of all samples. Written: the call's arguments."""
        arguments, fixed, shape = call.arguments, self.model.fixed, inputs.target.shape
        arguments["p"][: inputs.target.size] = inputs.target.ravel()
        arguments["p"][inputs.target.size :] = inputs.known.ravel()
        arguments["x0"][:], arguments["lam_g0"][:] = inputs.first.ravel(), inputs.weights.ravel()
        for name in ("x0", "lbx", "ubx"):
            arguments[name].reshape(shape)[:, fixed] = inputs.pinned
