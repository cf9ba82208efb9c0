"""Πnet, an orthogonal projection layer in JAX, on affine laws: all that its convex sets have in common with laws here.

Dense: the pseudo-inverse of all rows is computed once. Batches are jitted and run on the threads of XLA.
"""

from __future__ import annotations

from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from snapfm.arrays import Values
from snapfm.compile import CompiledLaws, RowKind
from snapfm.errors import MissingDependency, Status, UnsupportedLaw
from snapfm.laws import Params
from snapfm.solve.base import Limits, Solution
from snapfm_bench.peers.certificate import Answer, broken, certified, converged
from snapfm_bench.peers.presolved import Presolved
from snapfm_bench.peers.scope import equalities_only


def _jax() -> ModuleType:
    try:
        import jax
        import pinet
    except ImportError as cause:
        raise MissingDependency(
            "pinet is needed for the Πnet peer; it is not installed. Install it with: pip install pinet-hcnn"
        ) from cause
    jax.config.update("jax_enable_x64", True)  # its own default would stop at a violation of 1e-5
    found: ModuleType = pinet
    return found


class Pinet:
    """Prepared for compiled laws that are affine equalities; raises UnsupportedLaw for others.

    Pinned unknowns and implied rows are removed. Tolerance: it has none, as one projection onto affine rows is exact. It returns
    no multipliers: those of the answer are found by least squares, outside its time.
    """

    def __init__(self, structure: CompiledLaws, limits: Limits) -> None:
        self.pinet = _jax()
        equalities_only("Pinet", structure, limits)
        if (structure.kinds != RowKind.AFFINE).any():
            raise UnsupportedLaw(
                "Pinet expects laws whose rows are affine with constant slopes; got others. Use casadi Newton, or leave them out."
            )
        self.structure, self.limits = structure, limits
        self.rows = Presolved(structure, limits)

    def prepare(self, tolerance: float, count: int = 1) -> None:
        """Compute the pseudo-inverse, once."""
        _ = self.layer

    @cached_property
    def matrix(self) -> csr_array:
        """The kept rows over all unknowns."""
        return csr_array(self.structure.pattern.csr(self.structure.constants)[self.rows.kept])

    @cached_property
    def layer(self) -> Any:
        """The jitted projection of free unknowns (b, n), right-hand sides (b, m)."""
        import jax

        dense = jax.numpy.asarray(self.matrix[:, self.rows.free].toarray())[None]
        blank = jax.numpy.zeros((1, dense.shape[1], 1))
        constraint = self.pinet.EqualityConstraint(a_mat=dense, b=blank, method="pinv", var_b=True)

        def call(x: Any, b: Any) -> Any:
            right = self.pinet.EqualityConstraintsSpecification(b=b[..., None])
            return constraint.project(self.pinet.ProjectionInstance(x=x[..., None], eq=right)).x[..., 0]

        return jax.jit(call)

    def run(self, start: Tensor, params: Params, tolerance: float) -> Answer:
        """Project without multipliers: what is timed."""
        count, rows = len(start), self.rows
        u: Values = start.reshape(count, self.structure.unknowns).numpy().copy()
        able = np.flatnonzero(~broken(start, params).numpy())
        status = np.full(count, Status.NONFINITE, np.int8)
        if len(able) and len(rows.kept):
            # An affine row is a·u + constant: its right-hand side over free unknowns is minus what the others give.
            u[:, rows.fixed] = rows.pinned(params, count)
            known = u.copy()
            known[:, rows.free] = 0.0
            zero = torch.zeros(count, *self.structure.shape, dtype=torch.float64)
            constant = self.structure.residual(zero, params).numpy()[:, rows.kept]
            right = -(constant + (self.matrix @ known.T).T)
            u[np.ix_(able, rows.free)] = np.asarray(self.layer(u[np.ix_(able, rows.free)], right[able]))
        elif len(able):
            u[np.ix_(able, rows.fixed)] = rows.pinned(params, count)[able]
        status[able] = Status.ITERATION_LIMIT
        return Answer(u, np.zeros((count, self.structure.rows)), np.ones(count, np.int64), status)

    def solve(self, start: Tensor, params: Params, tolerance: float) -> Solution:
        """Project, and find multipliers by least squares."""
        answer, rows = self.run(start, params, tolerance), self.rows
        free = self.matrix[:, rows.free]
        away = start.reshape(answer.u.shape).numpy()[:, rows.free] - answer.u[:, rows.free]
        if len(rows.kept):
            gram = (free @ free.T).toarray()
            answer.multipliers[:, rows.kept] = np.linalg.lstsq(gram, free @ away.T, rcond=None)[0].T
        solved = certified(self.structure, self.limits, start, params, answer, rows)
        assert solved.status is not None
        solved.status[converged(self.structure, self.limits, solved, tolerance)] = int(Status.CONVERGED)
        solved.status[broken(start, params)] = int(Status.NONFINITE)
        return solved

    def limited(self, start: Tensor, params: Params, tolerance: float, iterations: int) -> Solution:
        """Do the same as `solve`: there is nothing to limit."""
        return self.solve(start, params, tolerance)
