"""Another method from the start point that our presolve makes possible: determined unknowns in place, affine rows obeyed.

Peers begin at û. Ours begins further: unknowns that rows determine one after the other are substituted first, and affine rows
that share no unknown with others are projected onto in closed form. This hands that field to a peer, whose time it counts as.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from snapfm.compile.derivatives import evaluate_externals
from snapfm.errors import UnsupportedLaw
from snapfm.laws import Params
from snapfm.project.projector import Projector
from snapfm.solve.base import Solution
from snapfm.solve.newton import Newton
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
        method, count = self.method, len(start)
        given = start.reshape(count, method.laws.unknowns).numpy()
        u = np.empty((count, method.tape.unknowns))
        method.coordinates.enter(given, u)
        origin, externals = u.copy(), evaluate_externals(method.tape, method.laws.example[0], params, count)
        with np.errstate(all="ignore"):
            for level, rows in method.substitutions:
                rows.substitute(level, u, externals)
            method.affine.solve(u, externals, None, np.zeros((count, method.laws.rows)))
            method.coordinates.leave(origin, u)
        found = torch.from_numpy(u[:, : given.shape[1]].copy()).reshape(start.shape)
        finite = torch.isfinite(found).flatten(1).all(dim=1)
        return torch.where(finite.reshape(-1, *[1] * (start.ndim - 1)), found, start)
