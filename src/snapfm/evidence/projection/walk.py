"""A walk cell: constrained sampling from noise to fields with a method as its projector, network included.

Ours walks as a user has it, through its own projector. A peer takes its place: like ours, it is asked for certificates only at
the end.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from snapfm.evidence.projection.methods import OURS
from snapfm.evidence.projection.stand import Stand, fields_of
from snapfm.flow import evaluator, shipped
from snapfm.laws import Params
from snapfm.project import Moved, Projection
from snapfm.project.base import Solution
from snapfm.project.judge import judge
from snapfm.sampling import PCFM, sample
from snapfm.sampling.path import STRAIGHT
from snapfm.sampling.task import home
from snapfm.seeds import base_seed, draw

_PACED = 3  # steps after which the pace is known
_MARGIN = 3.0  # a walk is stopped when at its pace it would take so many budgets


class TooSlow(Exception):
    """The walk would exceed its budget by far."""


def walk(stand: Stand) -> dict[str, Any]:
    """Walk; fill in the seconds of network and projection, and the verdict on the last projection."""
    case, suite, budget = stand.case, stand.suite, stand.budget
    assert case.model is not None  # the suite was checked
    network, method = shipped(case.model), AsProjector(stand)
    # The first projection of the walk, which compiles; the network is warm after it.
    noise = draw(
        base_seed(torch.Generator().manual_seed(suite.seed)), 0, case.samples,
        lambda one: torch.randn(method.shape, generator=one, dtype=torch.float64),
    )  # fmt: skip
    with torch.no_grad():
        speed = evaluator(network)(noise.to(home(network, noise.dtype)[1]), 0.0).double()
    stand.first_call(lambda: method.move(STRAIGHT.shoot(noise, speed, 0.0), stand.inputs.params))
    began = perf_counter()

    def step(done: int, total: int) -> None:
        stand.tell(f"step {done} of {total}", done, total)
        foreseen = (perf_counter() - began) / done * total
        if _PACED <= done < total and foreseen > _MARGIN * budget:
            raise TooSlow(
                f"given up after step {done} of {total}: at its pace the walk would take {foreseen:.0f} s of {budget:g} s"
            )

    samples = sample(
        network,
        method,  # type: ignore[arg-type]  # acts as a projector
        stand.inputs.params,
        count=case.samples,
        steps=case.steps,
        generator=torch.Generator().manual_seed(suite.seed),
        sampler=PCFM(),
        dtype=torch.float64,
        on_failure="keep",
        progress=step,
    )
    total = perf_counter() - began
    assert method.last is not None  # a walk ends with a certified call
    return {
        "walk": {**samples.seconds, "total": total},
        "steps_done": case.steps,
        "verdict": stand.verdict(*method.last),
    }


class AsProjector:
    """A method with the interface of a projector; ours goes through its own, whose warm starts it keeps."""

    def __init__(self, stand: Stand) -> None:
        self._stand, self._own = stand, stand.job.method == OURS
        self.shape = stand.projector.shape
        self.last: tuple[Tensor, Solution] | None = None  # input and answer of the last certified call

    def move(
        self, u_hat: Tensor, params: Params | None = None, *, warm: Any = None, tolerance: float | None = None
    ) -> Moved:
        """Project without a certificate."""
        stand = self._stand
        if self._own:
            return stand.projector.move(u_hat, params, warm=warm, tolerance=tolerance)
        answer = stand.solver.run(u_hat.double(), stand.inputs.params, tolerance or stand.tolerance)
        return Moved(fields_of(answer, self.shape).to(u_hat), None)

    def __call__(
        self, u_hat: Tensor, params: Params | None = None, *, warm: Any = None, tolerance: float | None = None
    ) -> Projection:
        """Project and certify."""
        stand = self._stand
        if self._own:
            found = stand.projector(u_hat, params, warm=warm, tolerance=tolerance)
            self.last = u_hat.double(), _as_solution(found)
            return found
        solved = stand.solver.solve(u_hat.double(), stand.inputs.params, tolerance or stand.tolerance)
        self.last = u_hat.double(), solved
        return self._as_projection(solved, u_hat, tolerance or stand.tolerance)

    def _as_projection(self, solved: Solution, u_hat: Tensor, tolerance: float) -> Projection:
        projector = self._stand.projector
        judged = judge(projector.structure, solved.residual, projector.limits, solved.u)
        answers = self._stand.answers(solved)
        return Projection(
            u=answers.u.to(u_hat),
            status=torch.where(answers.claimed, 0, 1).to(torch.int8) if solved.status is None else solved.status,
            violation=judged.violation,
            stationarity=solved.stationarity,
            iterations=solved.iterations,
            distance=solved.distance,
            multipliers=dict(answers.multipliers),
            by_law=judged.by_law,
            tolerance=tolerance,
            rounding=torch.zeros_like(judged.violation),  # walks judge their float64 answers
            second_order=torch.full((len(u_hat),), -1, dtype=torch.int8),
        )


def _as_solution(found: Projection) -> Solution:
    flat = found.u.double().flatten(1)
    rows = torch.cat([flat[:, :0], *found.multipliers.values()], dim=1)
    # The residual is the method's own word, which the judge does not ask for.
    return Solution(
        flat, rows, found.iterations, rows.new_zeros(rows.shape), found.stationarity, found.distance, found.status
    )
