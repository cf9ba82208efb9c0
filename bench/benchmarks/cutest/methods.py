"""Ours and Ipopt on the same functions: the nearest feasible point to a start, with the same budget of wall time for each.

Ipopt gets what its authors would ask for: limits that are not relaxed, because answers are judged at the limits themselves; a
quasi-Newton Hessian where the package's own is wrong; and more equations than unknowns, which it refuses, as narrow ranges.
"""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array

import snapfm
from benchmarks.cutest.problems import Feasible
from snapfm.arrays import Values
from snapfm.compile.sparsity.differences import check_slopes
from snapfm.errors import LawError, MissingDependency

TOLERANCE = 1e-8


@dataclass(frozen=True)
class Answer:
    """One projected point: the method's own verdict, and the time of the call."""

    x: Values
    status: str
    seconds: float
    cpu: float  # seconds of the processor, whatever else the machine does
    iterations: int
    reformulated: bool = False  # the method refuses the problem as it is


class Way(Protocol):
    """A method, prepared for one problem."""

    def project(self, x: Values, seconds: float) -> Answer:
        """Project one point within a budget."""
        ...


class Ours:
    """Projector on an Oracle of the constraints, and Bounds."""

    def __init__(self, problem: Feasible) -> None:
        def value(u: Any, p: Any) -> Any:
            return problem.value(u)

        def jacobian(u: Any, p: Any) -> Any:
            return problem.jacobian(u)

        def hessian(u: Any, p: Any, y: Any) -> Any:
            return problem.hessian(u, y)

        def projector(curvature: dict[str, Any]) -> snapfm.Projector:
            law = snapfm.Oracle(
                "constraints", value, jacobian, lower=problem.c_lower, upper=problem.c_upper, pattern=problem.pattern,
                example=_domain(problem), **curvature,
            )  # fmt: skip
            laws: list[Any] = [law]
            if np.isfinite(problem.lower).any() or np.isfinite(problem.upper).any():
                laws.append(snapfm.Bounds(torch.from_numpy(problem.lower), torch.from_numpy(problem.upper)))
            return snapfm.Projector(laws, (len(problem.x0),), tolerance=TOLERANCE)

        affine = bool(problem.linear.all())
        try:
            self.projector = projector({"hessian": None if affine else hessian, "hessian_pattern": problem.pairs})
        except LawError as error:
            if "hessian expects the derivative" not in str(error):
                raise
            # Some Hessians of the package are wrong, as differences of its Jacobian show (HIMMELBFNE, GULFNE).
            self.projector = projector({})

    def project(self, x: Values, seconds: float) -> Answer:
        """Project one point within a budget."""
        began, cpu = time.perf_counter(), time.process_time()
        found = self.projector(torch.from_numpy(x)[None], seconds=seconds)
        spent, cpu = time.perf_counter() - began, time.process_time() - cpu
        return Answer(
            found.u[0].numpy(), snapfm.Status(int(found.status[0])).name, spent, cpu, int(found.iterations[0])
        )


class Ipopt:
    """Ipopt through ipyopt, with its defaults but for the tolerances and limits that are not relaxed."""

    options: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, problem: Feasible) -> None:
        try:
            self._ipyopt = importlib.import_module("ipyopt")
        except ImportError as cause:
            raise MissingDependency(
                "ipyopt is needed for Ipopt on functions. Install it with: pip install 'snapfm-bench[cutest]'"
            ) from cause
        self.problem, self._near = problem, problem.x0
        self._end, self._exact = np.inf, _right_hessian(problem)
        self._solver, self._ranges = self._made(0.0), False

    def project(self, x: Values, seconds: float) -> Answer:
        """Project one point within a budget."""
        self._near = x
        began, cpu = time.perf_counter(), time.process_time()
        self._end = began + seconds
        found, _, status = self._solver.solve(x.copy())
        if int(status) == _TOO_FEW and not self._ranges:
            # Equalities become ranges as wide as the tolerance: no answer within it is lost. Made once, as preparing is.
            self._solver, self._ranges = self._made(TOLERANCE), True
            return self.project(x, seconds)
        spent, cpu = time.perf_counter() - began, time.process_time() - cpu
        done = int(self._solver.stats["n_iter"])
        return Answer(np.asarray(found), _STATUS.get(int(status), str(status)), spent, cpu, done, self._ranges)

    def _made(self, width: float) -> Any:
        """Set the problem up, with equalities that may be off by `width`."""
        problem, n = self.problem, len(self.problem.x0)
        row, column = problem.pairs
        each = np.arange(n)
        extra = np.concatenate([each, row]), np.concatenate([each, column])  # entries that come twice are added
        equal = width * (problem.c_lower == problem.c_upper)

        def h(x: Any, y: Any, factor: float, out: Any) -> Any:
            out[:n] = factor
            out[n:] = problem.hessian(x, np.asarray(y)) if len(row) else 0.0
            return out

        def put(function: Any) -> Any:
            def call(x: Any, out: Any) -> Any:
                out[()] = function(x)
                return out

            return call

        solver = self._ipyopt.Problem(
            n, np.maximum(problem.lower, -_FREE), np.minimum(problem.upper, _FREE), len(problem.c_lower),
            np.maximum(problem.c_lower - equal, -_FREE), np.minimum(problem.c_upper + equal, _FREE), problem.pattern, extra,
            lambda x: float(0.5 * ((x - self._near) ** 2).sum()), put(lambda x: x - self._near), put(problem.value),
            put(problem.jacobian), h if self._exact else None,
            # The Ipopt inside knows no wall time, and ours is bounded by it.
            intermediate_callback=lambda *_: time.perf_counter() < self._end,
        )  # fmt: skip
        solver.set(print_level=0, sb="yes", tol=TOLERANCE, constr_viol_tol=TOLERANCE, bound_relax_factor=0.0)
        solver.set(max_iter=3000, **self.options)
        return solver


class TunedIpopt(Ipopt):
    """Ipopt with options that its manual suggests where the defaults fail, and multipliers that start at zero."""

    options = {"mu_strategy": "adaptive", "constr_mult_init_max": 0.0}  # noqa: RUF012


METHODS: dict[str, type[Ours] | type[Ipopt]] = {"ours": Ours, "ipopt": Ipopt, "ipopt_tuned": TunedIpopt}

_FREE = 2e19  # what Ipopt takes for no limit
_TOO_FEW = -10
_STATUS = {0: "SOLVED", 1: "ACCEPTABLE", 2: "INFEASIBLE", 3: "TINY_STEP", 4: "DIVERGING", 5: "TIME", -1: "ITERATIONS",
           -2: "RESTORATION", -3: "STEP_FAILED", -4: "TIME", -5: "TIME", _TOO_FEW: "TOO_FEW_DEGREES",
           -13: "INVALID_NUMBER"}  # fmt: skip


def _right_hessian(problem: Feasible) -> bool:
    """Whether the package's Hessian agrees with differences of its Jacobian, by the check that ours makes too."""
    rows, n = len(problem.c_lower), len(problem.x0)
    weight = np.random.default_rng(0).standard_normal(rows)

    def pulled(x: Values) -> Values:
        return csr_array((problem.jacobian(x), problem.pattern), shape=(rows, n)).T @ weight

    at = _domain(problem)
    lower = csr_array((problem.hessian(at, weight), problem.pairs), shape=(n, n))
    whole = csr_array(lower + lower.T - diags_array(lower.diagonal()))
    try:
        check_slopes("hessian", "pairs", pulled, whole, at)
    except LawError:
        return False
    return True


def _domain(problem: Feasible) -> Values:
    """Return a point at which derivatives can be compared: beside the start, inside the bounds where they leave room."""
    width = np.where(np.isfinite(problem.upper - problem.lower), problem.upper - problem.lower, 1.0)
    scale = np.minimum(1e-2 * np.maximum(1.0, np.abs(problem.x0)), 0.1 * width)
    beside = problem.x0 + scale * np.random.default_rng(0).uniform(0.2, 1.0, len(problem.x0))
    inside = np.clip(
        beside, problem.lower + 0.01 * np.minimum(width, 1.0), problem.upper - 0.01 * np.minimum(width, 1.0)
    )
    inside = np.where(problem.lower == problem.upper, problem.lower, inside)
    return inside if np.isfinite(problem.value(inside)).all() else problem.x0
