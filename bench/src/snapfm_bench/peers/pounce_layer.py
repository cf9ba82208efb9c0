"""POUNCE's layer for torch: laws as torch functions, differentiated by torch with colored passes, one sample after the other.

What a user of torch gets who puts the solver into a model without writing derivatives. Patterns are ours, as finding them by
probing would take longer than all solves.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index, Values
from snapfm.compile import CompiledLaws
from snapfm.compile.trace.trace import TracedLaw
from snapfm.errors import Status, UnsupportedLaw, require
from snapfm.laws import Params
from snapfm.solve.base import Limits, Solution
from snapfm_bench.peers.certificate import Answer, broken, certified, converged
from snapfm_bench.peers.pounce import ITERATIONS, options
from snapfm_bench.peers.presolved import Presolved

UNKNOWN = -1  # iterations: the layer does not report them


class PounceLayer:
    """`pounce.torch.TorchProblem` for compiled laws and limits; pinned unknowns are parameters, implied rows are dropped.

    Tolerance: as for `Pounce`. The layer returns no status, so what the judge accepts has converged. A warm start is fields and
    multipliers.
    """

    def __init__(self, structure: CompiledLaws, limits: Limits, iterations: int = ITERATIONS) -> None:
        require("pounce", "the layer of POUNCE for torch", "peers", of="snapfm-bench")
        for law in structure.laws:
            if not isinstance(law, TracedLaw):
                raise UnsupportedLaw(
                    f"PounceLayer expects laws that torch can differentiate; got '{law.name}'. Write it in torch."
                )
        if structure.hessian_pattern is None:
            raise UnsupportedLaw(
                "PounceLayer expects laws that couple few unknowns; these couple too many pairs to write out. Use the lbfgs peer."
            )
        self.structure, self.limits, self.iterations = structure, limits, iterations
        self.rows = Presolved(structure, limits)
        self.kept = torch.from_numpy(self.rows.kept)
        self.place = torch.from_numpy(np.argsort(np.concatenate([self.rows.free, self.rows.fixed])))
        self._layers: dict[tuple[float, int], Any] = {}
        self._example = structure.example[1]  # names, order and shapes of one sample's params

    def prepare(self, tolerance: float, count: int = 1, iterations: int | None = None) -> Any:
        """Build the layer for a tolerance and a limit, once."""
        key = (tolerance, self.iterations if iterations is None else iterations)
        if key not in self._layers:
            equal = self.structure.equality_rows[self.rows.kept]
            self._layers[key] = require("pounce.torch", "the layer of POUNCE for torch", "peers", of="snapfm-bench").TorchProblem(
                f=self._objective, g=self._values, n=len(self.rows.free), m=len(self.rows.kept),
                p_example=np.zeros(self._parameters),
                lb=self.limits.lower[self.rows.free], ub=self.limits.upper[self.rows.free],
                cl=np.where(equal, 0.0, -np.inf), cu=np.zeros(len(equal)), options=options(self.limits, *key), sparse=True,
                jac_pattern=self._slopes, hess_pattern=self._curvature,
            )  # fmt: skip
        return self._layers[key]

    def solve(self, start: Tensor, params: Params, tolerance: float) -> Solution:
        """Project a float64 batch (b, *shape), each sample from û."""
        return self.certify(start, params, tolerance, self.run(start, params, tolerance))

    def limited(self, start: Tensor, params: Params, tolerance: float, iterations: int) -> Solution:
        """Project with a limit of iterations of its own."""
        return self.certify(start, params, tolerance, self.run(start, params, tolerance, iterations))

    def again(self, start: Tensor, params: Params, tolerance: float, last: Answer) -> Answer:
        """Project as `run` does, each sample from the fields and multipliers of the last answer, to a nearby input."""
        return self.run(start, params, tolerance, last=last)

    def certify(self, start: Tensor, params: Params, tolerance: float, answer: Answer) -> Solution:
        """Complete an answer, and count as converged what the judge accepts."""
        solved = certified(self.structure, self.limits, start, params, answer, self.rows)
        assert solved.status is not None
        solved.status[converged(self.structure, self.limits, solved, tolerance)] = int(Status.CONVERGED)
        solved.status[broken(start, params)] = int(Status.NONFINITE)
        return solved

    def run(
        self, start: Tensor, params: Params, tolerance: float, iterations: int | None = None, last: Answer | None = None
    ) -> Answer:
        """Project without the certificate: what is timed."""
        layer, rows, count = self.prepare(tolerance, len(start), iterations), self.rows, len(start)
        u: Values = start.reshape(count, self.structure.unknowns).numpy().copy()
        multipliers, status = np.zeros((count, self.structure.rows)), np.full(count, Status.ITERATION_LIMIT, np.int8)
        pinned = rows.pinned(params, count)
        first, weight = (u.copy(), multipliers.copy()) if last is None else last.start(u)
        bounds = np.zeros(len(rows.free))
        for i in np.flatnonzero(~broken(start, params).numpy()):
            own = [params[name][i].reshape(-1) for name in self._example]
            given = torch.cat([torch.from_numpy(u[i, rows.free]), torch.from_numpy(pinned[i]), *own])
            x, (found, _, _) = layer.solve_with_warm(given, first[i, rows.free], (weight[i, rows.kept], bounds, bounds))
            u[i, rows.free], u[i, rows.fixed], multipliers[i, rows.kept] = x.numpy(), pinned[i], found.numpy()
        return Answer(u, multipliers, np.full(count, UNKNOWN, np.int64), status)

    @property
    def _parameters(self) -> int:
        return self.structure.unknowns + sum(value.numel() for value in self._example.values())

    def _objective(self, x: Tensor, p: Tensor) -> Tensor:
        return 0.5 * ((x - p[: len(x)]) ** 2).sum()

    def _values(self, x: Tensor, p: Tensor) -> Tensor:
        """Evaluate the kept rows at the free unknowns x; p holds û, the pinned unknowns and params, in this order."""
        unknowns = self.structure.unknowns
        u = torch.cat([x, p[len(x) : unknowns]])[self.place].reshape(self.structure.shape)
        params, begin = {}, unknowns
        for name, value in self._example.items():
            size = value.numel()
            params[name] = p[begin : begin + size].reshape(value.shape)
            begin += size
        laws = [law for law in self.structure.laws if isinstance(law, TracedLaw)]
        return torch.cat([law.graph(u, params).reshape(-1) for law in laws])[self.kept]

    @cached_property
    def _slopes(self) -> tuple[Index, Index]:
        matrix = self.structure.pattern.csr(np.ones(len(self.structure.pattern.indices)))
        found = matrix[self.rows.kept][:, self.rows.free].tocoo()
        return found.row.astype(np.int64), found.col.astype(np.int64)

    @cached_property
    def _curvature(self) -> tuple[Index, Index]:
        """The lower triangle of I + Σλ∇²h."""
        pattern = self.structure.hessian_pattern
        assert pattern is not None
        matrix = pattern.csr(np.ones(len(pattern.indices)))[self.rows.free][:, self.rows.free].tocoo()
        size, below = len(self.rows.free), matrix.row > matrix.col
        diagonal = np.arange(size)
        rows = np.concatenate([diagonal, matrix.row[below]]).astype(np.int64)
        return rows, np.concatenate([diagonal, matrix.col[below]]).astype(np.int64)
