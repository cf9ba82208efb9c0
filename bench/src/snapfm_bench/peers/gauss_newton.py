"""Batched dense Gauss–Newton in torch: Jacobians from vmap(jacrev), a dense JJᵀ, without the Hessian of the laws (W = I).

    λ = (JJᵀ)⁻¹ (h(u) + J(û − u)),   u ← û − Jᵀλ

The projection of physics-constrained flow matching, repeated until it converges: one step is its projection, the fixed point
is the nearest field. Needs no structure but the redundant rows; memory and time grow with rows × unknowns.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from snapfm.compile import CompiledLaws
from snapfm.compile.trace.trace import TracedLaw
from snapfm.errors import Status
from snapfm.laws import Params
from snapfm.solve.base import Limits, Solution
from snapfm_bench.peers.certificate import accepted
from snapfm_bench.peers.scope import equalities_only

ITERATIONS = 50  # near an answer it takes 4; where the Hessian matters 20 to 40


class GaussNewton:
    """Prepared for compiled laws that are equalities; raises UnsupportedLaw for inequalities and bounds.

    Redundant rows are dropped: with them a dense JJᵀ would be singular. Tolerance: a sample stops at the violation asked for
    with a stationarity that the judge accepts.
    """

    def __init__(self, structure: CompiledLaws, limits: Limits, iterations: int = ITERATIONS) -> None:
        equalities_only("GaussNewton", structure, limits)
        self.structure, self.iterations = structure, iterations
        gone = set(structure.presolve.dropped.tolist())
        self.kept = torch.tensor([row for row in range(structure.rows) if row not in gone])
        self._slopes = vmap(jacrev(self._residual))

    def _residual(self, u: Tensor, params: Params) -> Tensor:
        return torch.cat(
            [law.graph(u, dict(params)).reshape(-1) for law in self.structure.laws if isinstance(law, TracedLaw)]
        )

    def prepare(self, tolerance: float, count: int = 1) -> None:
        """Do nothing: nothing is built that a second call could use."""

    def run(self, start: Tensor, params: Params, tolerance: float) -> Solution:
        """Do the same as `solve`: the certificate is its stopping rule."""
        return self.solve(start, params, tolerance)

    def solve(self, start: Tensor, params: Params, tolerance: float) -> Solution:
        """Project a float64 batch (b, *shape) from û; every sample stops for itself."""
        return self.limited(start, params, tolerance, self.iterations)

    def again(self, start: Tensor, params: Params, tolerance: float, last: Solution) -> Solution:
        """Project as `run` does, each sample from the fields of the last answer; multipliers follow from them."""
        usable = torch.isfinite(last.u).all(dim=1, keepdim=True)
        begin = torch.where(usable, last.u, start.reshape(last.u.shape))
        return self.limited(start, params, tolerance, self.iterations, begin)

    def limited(
        self, start: Tensor, params: Params, tolerance: float, limit: int, begin: Tensor | None = None
    ) -> Solution:
        """Project with a limit of iterations of its own: one point of a convergence curve."""
        count, target = len(start), start.reshape(len(start), self.structure.unknowns)
        u = (target if begin is None else begin).clone()
        multipliers = start.new_zeros(count, self.structure.rows)
        stationarity = start.new_full((count,), torch.inf)
        status = torch.full((count,), int(Status.ITERATION_LIMIT), dtype=torch.int8)
        iterations = torch.zeros(count, dtype=torch.int64)
        live = torch.arange(count)
        while len(live):
            sample = {name: value[live] for name, value in params.items()}
            field = u[live].reshape(len(live), *self.structure.shape)
            residual = self.structure.residual(field, sample)
            slopes = self._slopes(field, sample).reshape(len(live), self.structure.rows, self.structure.unknowns)
            rest = u[live] - target[live] + torch.einsum("bm,bmn->bn", multipliers[live], slopes)
            stationarity[live] = rest.abs().amax(dim=1)
            violation = residual.abs().amax(dim=1)
            done = (violation <= tolerance) & (stationarity[live] <= accepted(tolerance))
            finite = torch.isfinite(violation) & torch.isfinite(stationarity[live])
            status[live[done]] = int(Status.CONVERGED)
            status[live[~finite]] = int(Status.NONFINITE)
            going = ~done & finite
            live, residual, slopes = live[going], residual[going], slopes[going]
            if int(iterations.max()) == limit or not len(live):
                break
            live = self._step(live, target, residual[:, self.kept], slopes[:, self.kept], u, multipliers, status)
            iterations[live] += 1
        residual = self.structure.residual(u.reshape(start.shape), params)
        return Solution(u, multipliers, iterations, residual, stationarity, (u - target).norm(dim=1), status)

    def _step(
        self, live: Tensor, target: Tensor, residual: Tensor, slopes: Tensor, u: Tensor, multipliers: Tensor,
        status: Tensor,
    ) -> Tensor:  # fmt: skip
        """Step the live samples and return those that could. Written: u, multipliers, status (of a singular JJᵀ)."""
        gram = slopes @ slopes.mT
        right = residual + torch.einsum("bmn,bn->bm", slopes, target[live] - u[live])
        factor, info = torch.linalg.cholesky_ex(gram)
        able = info == 0
        status[live[~able]] = int(Status.STALLED)
        weight = torch.cholesky_solve(right[able, :, None], factor[able])[..., 0]
        live = live[able]
        multipliers[live[:, None], self.kept] = weight
        u[live] = target[live] - torch.einsum("bm,bmn->bn", weight, slopes[able])
        return live
