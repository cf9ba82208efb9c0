"""Ours and Ipopt on the same functions: the nearest feasible point to a start, with a budget for each."""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

import snapfm
from benchmarks.cutest.problems import Feasible
from snapfm.arrays import Values
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
    """Ipopt through ipyopt, with its defaults but for the tolerances."""

    def __init__(self, problem: Feasible) -> None:
        try:
            ipyopt = importlib.import_module("ipyopt")
        except ImportError as cause:
            raise MissingDependency(
                "ipyopt is needed for Ipopt on functions. Install it with: pip install 'snapfm[cutest]'"
            ) from cause
        self.problem, n = problem, len(problem.x0)
        self._near: Values = problem.x0
        row, column = problem.pairs
        each = np.arange(n)
        extra = np.concatenate([each, row]), np.concatenate([each, column])  # entries that come twice are added
        big = 2e19

        def h(x: Any, y: Any, factor: float, out: Any) -> Any:
            out[:n] = factor
            out[n:] = problem.hessian(x, np.asarray(y)) if len(row) else 0.0
            return out

        def put(function: Any) -> Any:
            def call(x: Any, out: Any) -> Any:
                out[()] = function(x)
                return out

            return call

        self._solver = ipyopt.Problem(
            n, np.maximum(problem.lower, -big), np.minimum(problem.upper, big), len(problem.c_lower),
            np.maximum(problem.c_lower, -big), np.minimum(problem.c_upper, big), problem.pattern, extra,
            lambda x: float(0.5 * ((x - self._near) ** 2).sum()), put(lambda x: x - self._near), put(problem.value),
            put(problem.jacobian), h,
        )  # fmt: skip
        self._solver.set(print_level=0, sb="yes", tol=TOLERANCE, constr_viol_tol=TOLERANCE, max_iter=3000)

    def project(self, x: Values, seconds: float) -> Answer:
        """Project one point within a budget."""
        self._near = x
        self._solver.set(max_cpu_time=seconds)  # of the Ipopt inside, which knows no wall time
        began, cpu = time.perf_counter(), time.process_time()
        found, _, status = self._solver.solve(x.copy())
        spent, cpu = time.perf_counter() - began, time.process_time() - cpu
        return Answer(
            np.asarray(found), _STATUS.get(int(status), str(status)), spent, cpu, int(self._solver.stats["n_iter"])
        )


_STATUS = {0: "SOLVED", 1: "ACCEPTABLE", 2: "INFEASIBLE", 3: "TINY_STEP", 4: "DIVERGING", -1: "ITERATIONS", -2: "RESTORATION",
           -3: "STEP_FAILED", -4: "TIME", -5: "TIME", -10: "TOO_FEW_DEGREES", -13: "INVALID_NUMBER"}  # fmt: skip


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
