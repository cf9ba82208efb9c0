"""Any `nlpsol` of casadi, sample by sample: one symbolic problem, solved repeatedly in memory that it keeps.

    min ½‖u − û‖²   subject to   h(u) = 0, g(u) ≤ 0, lower ≤ u ≤ upper

Each solver is a subclass with its plugin, its options for a tolerance and the meaning of its statuses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from snapfm.arrays import Values
from snapfm.compile import CompiledLaws
from snapfm.errors import ShapeError, Status
from snapfm.laws import Params
from snapfm.solve.base import Limits, Solution
from snapfm_bench.peers.call import PeerCall
from snapfm_bench.peers.certificate import Answer, broken, certified
from snapfm_bench.peers.model import CasadiModel, Symbol, casadi

Begin = Literal["input", "zeros"] | Tensor

# For every plugin: nothing is printed, and a status reports failures.
SILENT = {"print_time": False, "error_on_fail": False, "show_eval_warnings": False}


@dataclass(frozen=True)
class NlpInputs:
    """NlpInputs of a solver for some samples: plain numbers, so that they can be sent to another process."""

    target: Values  # (b, n)
    first: Values  # (b, n), where iterations begin
    known: Values  # (b, knowns)
    pinned: Values  # (b, fixed)
    weights: Values  # (b, kept), multipliers to begin with

    def take(self, samples: npt.NDArray[np.int64]) -> NlpInputs:
        """Choose samples."""
        return NlpInputs(*(getattr(self, one.name)[samples] for one in fields(self)))


@dataclass(frozen=True)
class Outputs:
    """Outputs of a solver: fields, multipliers of its rows, iterations, and its status for each sample."""

    u: Values
    multipliers: Values
    iterations: npt.NDArray[np.int64]
    said: list[str]


class Nlp(ABC):
    """Prepared for compiled laws and limits; solvers are built for a tolerance and a limit of iterations, once each."""

    plugin: ClassVar[str]
    word: ClassVar[str] = "return_status"  # the statistic that says how a solve ended
    statuses: ClassVar[Mapping[str, Status]]  # its statuses; every other one counts as STALLED
    warm_options: ClassVar[Mapping[str, Any]] = {}  # further options where it begins at the answer to a nearby input

    def __init__(self, structure: CompiledLaws, limits: Limits, iterations: int, presolve: bool) -> None:
        self.structure, self.limits, self.iterations = structure, limits, iterations
        self.model = CasadiModel(structure, limits, presolve)
        self.more: dict[str, Any] = {}  # options of somebody who knows better; to be set before the first call
        self._calls: dict[tuple[float, int, bool], PeerCall] = {}

    @abstractmethod
    def options(self, tolerance: float, iterations: int) -> dict[str, Any]:
        """Return the plugin's options."""

    def prepare(self, tolerance: float, count: int = 1, iterations: int | None = None, warm: bool = False) -> PeerCall:
        """Build the solver, once; `solve` does so at first use. It does not depend on the batch size."""
        key = (tolerance, self.iterations if iterations is None else iterations, warm and bool(self.warm_options))
        if key not in self._calls:
            self._calls[key] = self._limited(PeerCall(self.solver(*key)))
        return self._calls[key]

    def all_options(self, tolerance: float, iterations: int, warm: bool) -> dict[str, Any]:
        """Return the plugin's options, with those for a start at the answer to a nearby input if that is what it has."""
        return {**self.options(tolerance, iterations), **(self.warm_options if warm else {}), **self.more}

    def solver(self, tolerance: float, iterations: int, warm: bool = False) -> Symbol:
        """Write the problem over symbols and return casadi's solver for it."""
        ca, model = casadi(), self.model
        # MX, not SX: evaluation takes a tenth of the time either way, and MX is built ten times faster.
        u, p = ca.MX.sym("u", self.structure.unknowns), ca.MX.sym("p", self.structure.unknowns + model.knowns)
        target, known = p[: self.structure.unknowns], p[self.structure.unknowns :]
        problem = {"x": u, "p": p, "f": 0.5 * ca.sumsqr(u - target), "g": model.rows(u, known)}
        return ca.nlpsol(self.plugin, self.plugin, problem, self.all_options(tolerance, iterations, warm))

    def _limited(self, call: PeerCall) -> PeerCall:
        call.arguments["lbg"][:] = np.where(self.structure.equality_rows[self.model.kept], 0.0, -np.inf)
        call.arguments["lbx"][:], call.arguments["ubx"][:] = self.limits.lower, self.limits.upper
        return call

    def solve(self, start: Tensor, params: Params, tolerance: float, begin: Begin = "input") -> Solution:
        """Project a float64 batch (b, *shape), each sample from û, from zeros, or from its field in `begin`."""
        return self.certify(start, params, tolerance, self.run(start, params, tolerance, begin))

    def limited(self, start: Tensor, params: Params, tolerance: float, iterations: int) -> Solution:
        """Project with a limit of iterations of its own: one point of a convergence curve."""
        return self.certify(start, params, tolerance, self.run(start, params, tolerance, iterations=iterations))

    def certify(self, start: Tensor, params: Params, tolerance: float, answer: Answer) -> Solution:
        """Complete an answer; its status remains that of the solver."""
        return certified(self.structure, self.limits, start, params, answer, self.model)

    def run(
        self, start: Tensor, params: Params, tolerance: float, begin: Begin = "input", iterations: int | None = None,
        last: Answer | None = None,
    ) -> Answer:  # fmt: skip
        """Project without the certificate: what is timed."""
        given, able = self._inputs(start, params, begin, last), np.flatnonzero(~broken(start, params).numpy())
        call = self.prepare(tolerance, len(start), iterations, last is not None)
        return self._answer(given, able, sweep(call, self.model.fixed, given.take(able), self.word))

    def again(self, start: Tensor, params: Params, tolerance: float, last: Answer) -> Answer:
        """Project as `run` does, each sample from the fields and multipliers of the last answer, to a nearby input."""
        return self.run(start, params, tolerance, last=last)

    def _inputs(self, start: Tensor, params: Params, begin: Begin, last: Answer | None) -> NlpInputs:
        count = len(start)
        target: Values = start.reshape(count, self.structure.unknowns).numpy()
        known, pinned = self.model.inputs(params, count)
        if last is not None:
            first, weights = last.start(target)
            return NlpInputs(target, first, known, pinned, weights[:, self.model.kept])
        first = _first(type(self).__name__, begin, start).reshape(target.shape)
        return NlpInputs(target, first, known, pinned, np.zeros((count, len(self.model.kept))))

    def _answer(self, given: NlpInputs, able: npt.NDArray[np.int64], left: Outputs) -> Answer:
        """Combine the outputs of the samples that were solved with those that could not be."""
        count = len(given.target)
        u, multipliers = given.target.copy(), np.zeros((count, self.structure.rows))
        iterations, status = np.zeros(count, np.int64), np.full(count, Status.NONFINITE, np.int8)
        u[able], iterations[able] = left.u, left.iterations
        multipliers[np.ix_(able, self.model.kept)] = left.multipliers
        status[able] = [self.statuses.get(word, Status.STALLED) for word in left.said]
        # A solve that is not finite is NONFINITE, whatever status it reports.
        status[~np.isfinite(u).all(axis=1)] = Status.NONFINITE
        return Answer(u, multipliers, iterations, status)


def sweep(call: PeerCall, fixed: npt.NDArray[np.int64], inputs: NlpInputs, word: str) -> Outputs:
    """Solve the samples one after the other. Needs no law, so that a process with only the solver can run it."""
    count, unknowns = inputs.target.shape
    u, multipliers = np.empty((count, unknowns)), np.empty((count, len(call.results["lam_g"])))
    iterations, said = np.zeros(count, np.int64), []
    given = call.arguments
    for i in range(count):
        given["p"][:unknowns], given["p"][unknowns:] = inputs.target[i], inputs.known[i]
        given["x0"][:] = inputs.first[i]
        given["x0"][fixed] = given["lbx"][fixed] = given["ubx"][fixed] = inputs.pinned[i]
        given["lam_g0"][:] = inputs.weights[i]
        call()
        stats = call.stats()
        u[i], multipliers[i] = call.results["x"], call.results["lam_g"]
        iterations[i] = stats["iter_count"]
        said.append(stats[word])
    return Outputs(u, multipliers, iterations, said)


def _first(peer: str, begin: Begin, start: Tensor) -> Values:
    if isinstance(begin, Tensor):
        if begin.shape != start.shape:
            raise ShapeError(
                f"{peer}.solve(begin=…) expects one field per sample, {tuple(start.shape)}; got {tuple(begin.shape)}. Give a "
                "tensor like start, 'input' or 'zeros'."
            )
        return begin.numpy()
    if begin not in ("input", "zeros"):
        raise ShapeError(
            f"{peer}.solve(begin=…) expects 'input', 'zeros' or a tensor like start; got {begin!r}. Choose one of these."
        )
    field: Values = start.numpy()
    return field if begin == "input" else np.zeros_like(field)
