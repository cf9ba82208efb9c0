"""Another method from the start point that our presolve makes possible: determined unknowns in place, affine rows obeyed.

Peers begin at û. Ours begins further: unknowns that rows determine one after the other are substituted first, and affine rows
that share no unknown with others are projected onto in closed form. This hands that field to a peer, whose time it counts as.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from snapfm.compile.derivatives import evaluate_params
from snapfm.errors import UnsupportedLaw
from snapfm.kernels.threads import Clock, Deadline
from snapfm.laws import Params
from snapfm.project.projector import Projector
from snapfm.solve.affine import Affine
from snapfm.solve.base import Solution
from snapfm.solve.budget import certified
from snapfm.solve.newton import Newton
from snapfm.solve.stage import Ended, State
from snapfm.solve.substitute import Substitute
from snapfm_bench.peers.certificate import Answer


class Startable(Protocol):
    """A peer that can begin elsewhere than at û, with options of its own."""

    more: dict[str, Any]

    def prepare(self, tolerance: float, count: int) -> object:
        """Do the cold work for a batch size."""

    def run(self, start: Tensor, params: Params, tolerance: float, *, begin: Tensor) -> Answer:
        """Solve from `begin` without the certificate."""

    def certify(self, start: Tensor, params: Params, tolerance: float, answer: Answer) -> Solution:
        """Complete an answer."""

    def limited(self, start: Tensor, params: Params, tolerance: float, iterations: int, /) -> Solution:
        """Solve with so many iterations at most."""


class FromPresolve:
    """A peer, and the start points it is given; raises UnsupportedLaw where presolve has none to give."""

    def __init__(self, peer: Startable, project: Projector) -> None:
        method = project.method
        if not isinstance(method, Newton) or method.opaque:
            raise UnsupportedLaw(
                "a start from presolve expects laws that are written out as scalar operations; these are not. Use the peer alone."
            )
        self.peer, self.method, self.more = peer, method, peer.more

    def prepare(self, tolerance: float, count: int) -> object:
        """Prepare the peer."""
        return self.peer.prepare(tolerance, count)

    def run(self, start: Tensor, params: Params, tolerance: float) -> Answer:
        """Find the start, then solve from it."""
        return self.peer.run(start, params, tolerance, begin=self.begin(start, params))

    def solve(self, start: Tensor, params: Params, tolerance: float) -> Solution:
        """Solve, with multipliers, residual and status."""
        return self.peer.certify(start, params, tolerance, self.run(start, params, tolerance))

    def limited(self, start: Tensor, params: Params, tolerance: float, iterations: int) -> Solution:
        """Solve with so many iterations at most, from û."""
        return self.peer.limited(start, params, tolerance, iterations)

    def begin(self, start: Tensor, params: Params) -> Tensor:
        """Return û (b, *shape) with the determined unknowns in place; a sample for which that is not finite keeps û."""
        plan, laws, count = self.method.plan, self.method.laws, len(start)
        given = start.reshape(count, laws.unknowns).numpy()
        u_hat, ended = np.empty((count, plan.unknowns)), Ended.blank(count)
        plan.coordinates.enter(given, u_hat)
        known = plan.from_params(evaluate_params(plan.reduction.tape, laws.example[0], params, count))
        state = State(
            u_hat, u_hat.copy(), known.params, np.zeros((count, laws.rows)), certified(1.0), None, 1,
            Deadline(Clock(np.inf)), known=known.stages,
        )  # fmt: skip
        with np.errstate(all="ignore"):
            for stage in plan.stages:
                if isinstance(stage, (Substitute, Affine)):
                    stage.solve(state, ended)
            plan.coordinates.leave(u_hat, state.u)
            begun = np.empty(given.shape)
            plan.coordinates.field(given, u_hat, state.u, begun)
        found = torch.from_numpy(begun).reshape(start.shape)
        finite = torch.isfinite(found).flatten(1).all(dim=1)
        return torch.where(finite.reshape(-1, *[1] * (start.ndim - 1)), found, start)
