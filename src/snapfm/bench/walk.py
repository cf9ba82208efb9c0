"""A walk cell: constrained sampling from noise to fields with a method as its projector, network included.

Ours walks as a user has it, through its own projector. A peer stands in for one: it is not charged for certificates but at
the end, where ours gives them too.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from snapfm.bench.methods import OURS
from snapfm.bench.stand import Stand, fields_of
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
_MARGIN = 3.0  # a walk is given up when at its pace it would take so many budgets


class TooSlow(Exception):
    """The walk would not end within its budget by far."""


def walk(stand: Stand) -> dict[str, Any]:
    """Fill a record: seconds of network and projection, and the verdict on the last projection."""
    case, suite = stand.case, stand.suite
    assert case.model is not None  # the suite was checked
    network = shipped(case.model)
    standin, shot = Standin(stand), _first_shot(stand, network)
    stand.first_call(lambda: standin.move(shot, stand.inputs.params))
    budget = suite.budget_of(case, stand.job.kind)  # type: ignore[arg-type]  # a cell has a kind
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
        standin,  # type: ignore[arg-type]  # a projector's face
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
    u_hat, solved = standin.last()
    return {
        "walk": {**samples.seconds, "total": total},
        "steps_done": case.steps,
        "verdict": stand.verdict(u_hat, solved),
    }


class Standin:
    """A method with the face of a projector; ours goes through its own, whose warm starts it keeps."""

    def __init__(self, stand: Stand) -> None:
        self._stand, self._own = stand, stand.job.method == OURS
        self.shape = stand.projector.shape
        self._last: tuple[Tensor, Solution] | None = None

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
            self._last = u_hat.double(), _as_solution(found)
            return found
        solved = stand.solver.solve(u_hat.double(), stand.inputs.params, tolerance or stand.tolerance)
        self._last = u_hat.double(), solved
        return self._as_projection(solved, u_hat, tolerance or stand.tolerance)

    def last(self) -> tuple[Tensor, Solution]:
        """Give the last call's input and answer."""
        assert self._last is not None  # a walk ends with a call
        return self._last

    def _as_projection(self, solved: Solution, u_hat: Tensor, tolerance: float) -> Projection:
        stand = self._stand
        structure = stand.projector.structure
        judged = judge(structure, solved.residual, stand.projector.limits, solved.u)
        answers = stand.answers(solved)
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


def _first_shot(stand: Stand, network: nn.Module) -> Tensor:
    """Give what the walk's first projection is fed; the network is warm after it."""
    seed = base_seed(torch.Generator().manual_seed(stand.suite.seed))
    shape = stand.projector.shape
    noise = draw(seed, 0, stand.case.samples, lambda one: torch.randn(shape, generator=one, dtype=torch.float64))
    with torch.no_grad():
        speed = evaluator(network)(noise.to(home(network, noise.dtype)[1]), 0.0).double()
    return STRAIGHT.shoot(noise, speed, 0.0)
