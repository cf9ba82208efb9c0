"""Newton: the method for laws with a sparse pattern: the laws reduced to a plan, which an executor runs.

Opaque laws are one system of their own. Must not import project.projector or project.judge.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index, Values
from snapfm.compile import CompiledLaws, RowKind
from snapfm.compile.derivatives import evaluate_params
from snapfm.compile.lower import Unlowerable
from snapfm.compile.units import Units
from snapfm.errors import Status
from snapfm.laws import Params
from snapfm.linear import Solver
from snapfm.reduce.reduce import Reduction, reduce
from snapfm.solve.base import Adjoints, Limits, Solution, Warm
from snapfm.solve.budget import Budget, certified, flow_step_stopping
from snapfm.solve.gradient import refuse_without_hessian
from snapfm.solve.kinks.generalized import NO_WEIGHT, with_weights
from snapfm.solve.opaque import LawEvaluator, opaque_reduction
from snapfm.solve.pieces import Call, Compiled, Executor, Linearized
from snapfm.solve.plan import Field, Known, PieceResult, Plan
from snapfm.solve.stage import Ended
from snapfm.solve.tangent import Tangents


class Newton:
    """Prepared for compiled laws and limits, in units: with lengths in x = u/s and rows that are weighted.

    `linear` factorizes the KKT matrices and everything else that is solved with. The default, Automatic(), takes Lanes() inside
    the compiled loop or, for large matrices, Fronts() through a callback. Without `retry` a sample on which Newton's iteration
    fails is not tried again. Raises TooLarge for factors of more than `most` bytes, unless laws have kinks: there is no other
    method for those.
    """

    def __init__(
        self, laws: CompiledLaws, limits: Limits, linear: Solver | None = None, retry: bool = True,
        most: float = math.inf, units: Units | None = None,
    ) -> None:  # fmt: skip
        self.laws, self.limits, self._linear, self._units = laws, limits, linear, units
        if units is not None:
            self.laws = laws = laws.in_units(units)
        reduction, self.opaque = _reduced(laws, limits)
        self.plan = Plan(reduction, limits, linear, most, self.opaque, None if units is None else units.unknowns)
        self.executor: Executor = Compiled(self.plan, laws.rows, laws.threads, retry)
        self.inequality_rows = np.flatnonzero(~laws.equality_rows)
        self.implied: Index = reduction.implied  # rows that hold if the others do
        self._known: tuple[Params, Known] | None = None  # params and what follows from them; replaced whole, read once

    @property
    def kinked(self) -> bool:
        """Whether laws have kinks."""
        return self.plan.kinks > 0

    def solve(self, u_hat: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget) -> Solution:
        """Project a float64 batch (b, *shape); iterations begin at û, or where `warm` says."""
        flat = self._flat(u_hat)
        call = Call(certified(tolerance), budget, self._evaluator(params), certify=True)
        answers, ended = self._project(flat, np.empty(flat.shape), params, warm, call)
        u = torch.from_numpy(answers.u)
        residual = self.laws.residual(u.reshape(u_hat.shape), params)
        multipliers = answers.multipliers if self._units is None else answers.multipliers * self._units.rows
        off = self._complementarity(residual.numpy(), multipliers, flat)
        generalized = (answers.weights != NO_WEIGHT).any(axis=1)
        return Solution(
            u, torch.from_numpy(multipliers), torch.from_numpy(ended.iterations), residual,
            torch.from_numpy(np.maximum(answers.stationarity, off)), torch.from_numpy(answers.distance),
            torch.from_numpy(ended.status), self._warm(answers, ended),
            torch.from_numpy(ended.second), torch.from_numpy(generalized), answers.weights if generalized.any() else None,
        )  # fmt: skip

    def move(
        self, u_hat: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget
    ) -> tuple[Tensor, Warm]:
        """Project without a certificate, in the dtype of û: multipliers of substituted rows stay zero."""
        moved = torch.empty_like(u_hat)
        call = Call(flow_step_stopping(tolerance), budget, self._evaluator(params), certify=False)
        return moved, self._warm(*self._project(self._flat(u_hat), self._flat(moved), params, warm, call))

    def bytes(self, samples: int) -> float:
        """Predict the memory that a piece of so many samples takes while it is solved."""
        return self.executor.bytes(samples)

    def recall(self, u: Tensor, multipliers: Tensor, usable: Tensor) -> Warm:
        """Return the warm start at another projector's result: fields (b, *shape), multipliers (b, m)."""
        plan = self.plan
        own = np.empty((len(u), plan.unknowns))
        plan.coordinates.enter(self._flat(u), own)
        known = multipliers.numpy() if self._units is None else multipliers.numpy() / self._units.rows
        return Warm(own[:, plan.moving], known, usable.numpy(), self)

    def tangents(self) -> Tangents:
        """Prepare the laws to be linearized at any field."""
        return Tangents(self.laws, self.plan, self._linear)

    def adjoint(self, solved: Solution, params: Params, gradient: Tensor, in_params: bool) -> Adjoints:
        """Solve the linearized problem at an answer (math.md, eq. adjoint); NaN where it has no solution."""
        if self.opaque:  # all others have the Hessians of their systems
            refuse_without_hessian(self.laws)
        flat: Values = gradient.reshape(len(gradient), self.laws.unknowns).numpy()
        multipliers, weights, units = solved.multipliers.numpy(), solved.weights, self._units
        multipliers = multipliers if units is None else multipliers / units.rows
        cells = self._from_params(params, len(flat)).params
        if weights is not None:
            cells, multipliers = with_weights(cells, multipliers, weights)
        w, nu, by_params = np.empty(flat.shape), np.zeros(multipliers.shape), np.zeros(cells.shape)
        problem = Linearized(solved.u.numpy(), flat, cells, multipliers, weights, w, nu, by_params)
        self.executor.adjoint(problem, self._evaluator(params), in_params)
        nu, by_params = nu[:, : self.laws.rows], by_params[:, : self.plan.reduction.tape.params]
        lost = ~np.isfinite(flat.sum(axis=1) + w.sum(axis=1))
        broken = np.flatnonzero(lost | ~np.isfinite(nu.sum(axis=1) + by_params.sum(axis=1)))
        # Where nothing is asked of a sample that is not finite, NaN must not reach params that samples share.
        idle = broken[~flat[broken].any(axis=1)]
        for one in (w, nu, by_params):
            one[lost], one[idle] = np.nan, 0.0
        start = w if units is None else w / units.unknowns**2
        nu = nu if units is None else nu * units.rows
        by_cells = None if self.opaque else torch.from_numpy(by_params)
        return Adjoints(torch.from_numpy(w), torch.from_numpy(nu), by_cells, torch.from_numpy(start))

    def _project(
        self, u_hat: Field, u: Field, params: Params, warm: Warm | None, call: Call
    ) -> tuple[PieceResult, Ended]:
        return self.executor.project(u_hat, u, self._from_params(params, len(u_hat)), warm, call)

    def _flat(self, fields: Tensor) -> Field:
        flat: Field = fields.reshape(len(fields), self.laws.unknowns).numpy()
        return flat

    def _warm(self, answers: PieceResult, ended: Ended) -> Warm:
        return Warm(answers.place, answers.multipliers, ended.status == Status.CONVERGED, self)

    def _evaluator(self, params: Params) -> LawEvaluator | None:
        """Make the callback of one call, if the laws need it."""
        if not self.opaque:
            return None
        (part,) = self.plan.systems
        return LawEvaluator(self.laws, part.system.rows[0], params, part.at, self._units)

    def _from_params(self, params: Params, count: int) -> Known:
        """Evaluate what depends on params only; kept while params stay the same, as they do in every flow step."""
        kept = self._known
        if kept is not None and kept[0] is params:  # equal params are one object: see Projector
            return kept[1]
        if self.opaque:
            cells = np.arange(count, dtype=np.float64)[:, None]  # the number of the sample
        else:
            cells = evaluate_params(self.plan.reduction.tape, self.laws.example[0], params, count)
        known = self.plan.from_params(cells)
        self._known = (params, known)
        return known

    def _complementarity(self, residual: Values, multipliers: Values, u_hat: Field) -> Values:
        """Return per sample how far multipliers of inequalities have the wrong sign, or are not complementary.

        Their product is a square of lengths: over the size of the field, it is a length as stationarity is.
        """
        inequality = self.inequality_rows
        if not len(inequality):
            return np.zeros(len(residual))
        size = np.abs(u_hat if self._units is None else u_hat / self._units.unknowns).max(axis=1, initial=0.0)[:, None]
        sign, room = multipliers[:, inequality], np.maximum(-residual[:, inequality], 0.0)
        off: Values = np.maximum(-sign, np.abs(sign) * room / np.where(size > 0.0, size, 1.0)).max(axis=1, initial=0.0)
        return off


def _reduced(laws: CompiledLaws, limits: Limits) -> tuple[Reduction, bool]:
    """Reduce the laws; return whether torch has to evaluate them."""
    redundant = laws.presolve.dropped
    if not laws.opaque:
        tape, rows = laws.scalar.tape, laws.scalar.rows
        constant = laws.kinds == RowKind.AFFINE
        try:
            return reduce(
                tape, rows, laws.equality_rows, constant, limits.bounded, redundant, laws.scalar.transform
            ), False
        except Unlowerable:  # the Hessian is too dense to be listed
            pass
    return opaque_reduction(laws), True
