"""POUNCE, a port of Ipopt to Rust: a batch on its threads, the symbolic factorization shared by samples of one thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from snapfm.arrays import Index, Values
from snapfm.compile import CompiledLaws
from snapfm.errors import Status, require
from snapfm.laws import Params
from snapfm.solve.base import Limits
from snapfm_bench.peers.certificate import Answer, accepted, broken, complementarity
from snapfm_bench.peers.numeric import Numeric, Sample
from snapfm_bench.peers.stoppable import Stoppable

ITERATIONS = 500  # as for Ipopt

# Its statuses, in Ipopt's numbers; every other one counts as STALLED, also "acceptable", which misses the tolerance.
STATUS = {
    0: Status.CONVERGED,
    2: Status.INFEASIBLE,
    -1: Status.ITERATION_LIMIT,
    -13: Status.NONFINITE,
}


def pounce() -> ModuleType:
    """Import pounce, or say how to install it."""
    return require("pounce", "the POUNCE peer", "peers", of="snapfm-bench")


@dataclass(frozen=True)
class PounceAnswer(Answer):
    """An answer with what POUNCE returned for it: fields, multipliers and barrier, its own warm start."""

    ends: list[Any] = field(default_factory=list, repr=False)


class Pounce(Stoppable):
    """POUNCE on a batch.

    Tolerance: as for Ipopt, whose options it has: `tol` and `constr_viol_tol` are the tolerance asked for, `dual_inf_tol` and
    `compl_inf_tol` what the judge accepts, nothing is relaxed or merely acceptable. Laws are called back one at a time; the
    threads share the linear algebra. A warm start is its own: it is handed what it returned for the last input.
    """

    def __init__(self, structure: CompiledLaws, limits: Limits, iterations: int = ITERATIONS) -> None:
        pounce()
        super().__init__(structure, limits, iterations)
        _ = self.rows.hessians  # raises if the Hessian is too dense, before any work is done
        self.lock = Lock()
        self.more: dict[str, Any] = {}  # options of somebody who knows better

    @cached_property
    def hessian(self) -> Triangle:
        """The pattern of the lower triangle of I + Σλ∇²h."""
        return Triangle(self.rows)

    def prepare(self, tolerance: float, count: int = 1) -> None:
        """Build values, Jacobian and Hessian, once; `solve` does so at first use."""
        _ = self.rows.values, self.rows.jacobians, self.hessian

    def again(self, start: Tensor, params: Params, tolerance: float, last: Answer) -> Answer:
        """Project as `run` does, with its own warm start from the last answer, to a nearby input."""
        return self.run(start, params, tolerance, warms=last.ends if isinstance(last, PounceAnswer) else None)

    def run(
        self,
        start: Tensor,
        params: Params,
        tolerance: float,
        iterations: int | None = None,
        warms: list[Any] | None = None,
    ) -> Answer:
        """Project without the certificate."""
        self.prepare(tolerance, len(start))
        rows, count = self.rows, len(start)
        u: Values = start.reshape(count, self.structure.unknowns).numpy().copy()
        multipliers, done = np.zeros((count, self.structure.rows)), np.zeros(count, np.int64)
        status = np.full(count, Status.NONFINITE, np.int8)
        able = np.flatnonzero(~broken(start, params).numpy())
        samples = [rows.sample(start, params, int(i)) for i in able]
        ends = pounce().solve_nlp_batch(
            [self._problem(sample) for sample in samples],
            [np.clip(sample.target, rows.lower, rows.upper) for sample in samples],
            options={
                **options(self.limits, tolerance, self.iterations if iterations is None else iterations),
                **self.more,
            },
            share_structure=True,
            warms=warms if warms is not None and len(warms) == len(able) else None,
        )
        for i, sample, (x, info) in zip(able, samples, ends):
            u[i], multipliers[i, rows.kept] = sample.whole(x), info["mult_g"]
            done[i], status[i] = info["iter_count"], STATUS.get(int(info["status"]), Status.STALLED)
        return PounceAnswer(u, multipliers, done, status, ends)

    def _problem(self, sample: Sample) -> Any:
        rows = self.rows
        return pounce().Problem(
            n=len(rows.free),
            m=len(rows.kept),
            problem_obj=_Callbacks(sample, self.hessian, self.lock),
            lb=rows.lower,
            ub=rows.upper,
            cl=np.where(rows.equal, 0.0, -np.inf),
            cu=np.zeros(len(rows.kept)),
        )


def options(limits: Limits, tolerance: float, iterations: int) -> dict[str, Any]:
    """Map the tolerance as `Pounce` says."""
    return {
        "print_level": 0,
        "max_iter": iterations,
        "tol": tolerance,
        "constr_viol_tol": tolerance,
        "compl_inf_tol": complementarity(limits, tolerance),
        "dual_inf_tol": accepted(tolerance),
        "bound_relax_factor": 0.0,
        "acceptable_iter": 0,
        # As tuned for Ipopt: no least-squares start of the multipliers, no scaling of rows of order one.
        "constr_mult_init_max": 0.0,
        "nlp_scaling_method": "none",
    }


class Triangle:
    """The pattern of the lower triangle of I + Σλ∇²h, and where the entries of both terms go."""

    def __init__(self, rows: Numeric) -> None:
        unknowns, hessian = len(rows.free), rows.hessians
        self.chosen: Index = np.flatnonzero(hessian.rows >= hessian.columns)
        keys = hessian.columns[self.chosen] * unknowns + hessian.rows[self.chosen]
        diagonal = np.arange(unknowns) * (unknowns + 1)
        places = np.union1d(keys, diagonal)
        self.places, self.diagonal = np.searchsorted(places, keys), np.searchsorted(places, diagonal)
        self.rows, self.columns = places % unknowns, places // unknowns

    def values(self, hessian: Values, scale: float) -> Values:
        """Add scale·I to the entries of Σλ∇²h."""
        out = np.zeros(len(self.rows))
        out[self.places] = hessian[self.chosen]
        out[self.diagonal] += scale
        return out


class _Callbacks:
    """What POUNCE calls, by the names that it expects; functions keep their memory, so threads take turns."""

    def __init__(self, sample: Sample, triangle: Triangle, lock: Lock) -> None:
        self._sample, self._triangle, self._lock = sample, triangle, lock

    def objective(self, x: Values) -> float:
        away = x - self._sample.target
        return 0.5 * float(away @ away)

    def gradient(self, x: Values) -> Values:
        return x - self._sample.target

    def constraints(self, x: Values) -> Values:
        with self._lock:
            return self._sample.residual(x)

    def jacobianstructure(self) -> tuple[Index, Index]:
        pattern = self._sample.rows.jacobians
        return pattern.rows, pattern.columns

    def jacobian(self, x: Values) -> Values:
        with self._lock:
            return self._sample.jacobian_entries(x).copy()

    def hessianstructure(self) -> tuple[Index, Index]:
        return self._triangle.rows, self._triangle.columns

    def hessian(self, x: Values, lagrange: Values, obj_factor: float) -> Values:
        with self._lock:
            return self._triangle.values(self._sample.hessian_entries(x, lagrange), obj_factor)
