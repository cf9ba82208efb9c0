"""The child process of one cell, or of the inputs of a case: `python -m snapfm_bench.suites.projection.cell`.

A cell projects recorded inputs several times, solves one of them with more and more iterations (a convergence curve), or runs
constrained sampling from noise to fields with the method as projector (a walk). In a walk our method uses its own projector, as
a user would; a peer replaces it and, like ours, certifies only at the end. The process leaves a record in its job's folder,
whatever its method raises.
"""

from __future__ import annotations

import faulthandler
import json
import os
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean, median
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.errors import MissingDependency, UnsupportedLaw
from snapfm.laws import Params
from snapfm.project import Moved, Projection
from snapfm.sampling import PCFM, sample
from snapfm.sampling.path import STRAIGHT
from snapfm.sampling.task import device_and_dtype
from snapfm.seeds import base_seed, draw
from snapfm.solve.base import Solution
from snapfm_bench.flow import evaluator, shipped
from snapfm_bench.flow.storage import write_file
from snapfm_bench.judge import Answers, claims, lawful_and_nearest, measure
from snapfm_bench.machine import imported
from snapfm_bench.record import CellState, finite, load, npz, to_line
from snapfm_bench.suites.projection.fixture import FIELDS, INPUTS, RECORD, Fixture, Job, fields_of, prepared
from snapfm_bench.suites.projection.inputs import fingerprint, make, pack
from snapfm_bench.suites.projection.suite import OURS, Kind, MethodTurn, ProjectionCell, SuitePoint
from snapfm_bench.suites.supervise import receive

_KEPT = 2  # samples whose fields are kept for pictures
_POINTS = 20_000  # of such a field at most: a picture shows no more, and records are kept with the code
_LIMIT = 12  # iterations of a curve: second-order methods converge long before, and the others have shown their slope
_PACED = 3  # steps of a walk after which its pace is known
_MARGIN = 3.0  # a walk is stopped when, at its pace, it would take this many budgets
_REPEATS = 0.15  # of a budget: walks are repeated while all of them fit into it
_GRACE = 60.0  # seconds above the budget after which a process without its runner ends, even inside a call that hangs


def projection(stand: Fixture) -> dict[str, Any]:
    """Project every input, judge it and time it; cold and hot times are separate, phases are kept if the method has them."""
    inputs, params = stand.inputs, stand.inputs.params

    def calling(u_hat: Tensor) -> Callable[[], object]:
        return lambda: stand.solver.run(u_hat, params, stand.tolerance)

    stand.first_call(calling(next(iter(inputs.fields.values()))))
    turns = []
    pictured, middle = inputs.middle()
    for label, u_hat in inputs.fields.items():
        stand.report(f"judged call on {label}")
        began = perf_counter()
        solved = stand.solver.solve(u_hat, params, stand.tolerance)  # warms up as well
        judged = perf_counter() - began
        answers = stand.answers(solved)
        verdict = stand.verdict(u_hat, answers)
        if label == pictured and stand.job.method == OURS:
            _keep(stand, u_hat, answers.u, label)
        turns.append(MethodTurn(label, stand.repeated(label, calling(u_hat), len(inputs.fields), judged), verdict))
    phases = getattr(stand.solver, "phases", None)
    if phases is None:
        return {"turns": tuple(turns)}
    stand.report("phases")
    spent = phases(middle, params, stand.tolerance)
    return {"turns": tuple(turns), "phases": {name: float(value) for name, value in spent.items()}}


def curve(stand: Fixture) -> dict[str, Any]:
    """Solve one input with more and more iterations until the judge confirms all samples; keep the median sample."""
    label, u_hat = stand.inputs.middle()
    params = stand.inputs.params
    stand.first_call(lambda: stand.solver.run(u_hat, params, stand.tolerance))
    points = []
    for iterations in range(_LIMIT + 1):

        def call(iterations: int = iterations) -> Solution:
            return stand.solver.limited(u_hat, params, stand.tolerance, iterations)

        stand.report(f"{iterations} iterations on {label}")
        answers = stand.answers(call())
        sizes = measure(stand.projector.laws, u_hat, answers.u, answers.multipliers, params)
        seconds = median(stand.repeated(f"{label} with {iterations} iterations", call, _LIMIT + 1))
        points.append(
            SuitePoint(iterations, seconds, finite(sizes.violation.median()), finite(sizes.nearness.median()))
        )
        if bool(lawful_and_nearest(sizes, stand.tolerance)[1].all()):
            break
    return {"curve": tuple(points)}


def _keep(stand: Fixture, before: Tensor, after: Tensor, label: str) -> None:
    first, last = (thinned(one[:_KEPT].numpy().astype(np.float32)) for one in (before, after))
    axes = np.array([axis.name for axis in stand.problem.grid.axes])
    content = npz(np.savez_compressed, before=first, after=last, axes=axes, input=np.array(label))
    write_file(stand.job.folder / FIELDS, content)


def thinned(fields: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Drop points of large fields (b, *shape), evenly along every axis; both ends stay."""
    share = (_POINTS / max(_POINTS, fields[0].size)) ** (1 / (fields.ndim - 1))
    for axis, size in enumerate(fields.shape[1:], start=1):
        place = np.linspace(0, size - 1, max(2, int(share * size))) if share < 1 else np.arange(size)
        fields = fields.take(place.round().astype(np.int64), axis)
    return fields


class TooSlow(Exception):
    """The walk would exceed its budget by far."""


def walk(stand: Fixture) -> dict[str, Any]:
    """Sample with the method as projector; return the seconds of its parts and the verdict on the last projection."""
    case, suite, budget = stand.case, stand.suite, stand.budget
    assert case.model is not None  # the suite was checked
    network, method = shipped(case.model), AsProjector(stand)
    # The first projection of the walk compiles; after it the network is warm, too.
    noise = draw(
        base_seed(torch.Generator().manual_seed(suite.seed)), 0, case.samples,
        lambda one: torch.randn(method.shape, generator=one, dtype=torch.float64),
    )  # fmt: skip
    with torch.no_grad():
        speed = evaluator(network)(noise.to(device_and_dtype(network, noise.dtype)[1]), 0.0).double()
    predicted = STRAIGHT.shoot(noise, speed, 0.0)

    def first() -> None:  # a cold start and a warm one: each may compile, or build a solver of its own
        method.move(predicted, stand.inputs.params, warm=method.move(predicted, stand.inputs.params))

    stand.first_call(first)
    walks: list[dict[str, float]] = []
    while not walks or (len(walks) < suite.walk_repeats and _again(walks, budget)):
        began = perf_counter()

        def step(done: int, total: int, began: float = began) -> None:
            stand.report(f"step {done} of {total}", done, total)
            foreseen = (perf_counter() - began) / done * total
            if not walks and _PACED <= done < total and foreseen > _MARGIN * budget:
                raise TooSlow(
                    f"given up after step {done} of {total}: at its pace the walk would take {foreseen:.0f} s of {budget:g} s"
                )

        samples = sample(
            network, method, stand.inputs.params, count=case.samples, steps=case.steps,  # type: ignore[arg-type]  # as a projector
            generator=torch.Generator().manual_seed(suite.seed), sampler=PCFM(), dtype=torch.float64, on_failure="keep",
            progress=step,
        )  # fmt: skip
        walks.append({**samples.seconds, "total": perf_counter() - began})
    assert method.last is not None  # a walk ends with a certified call
    order = sorted(walks, key=lambda one: one["total"])
    middle = order[(len(order) - 1) // 2], order[len(order) // 2]  # the same one twice, unless there is an even number
    return {
        "walk": {part: fmean(one[part] for one in middle) for part in order[0]},
        "walks": tuple(one["total"] for one in walks),
        "steps_done": case.steps,
        "verdict": stand.verdict(*method.last),
    }


def _again(walks: list[dict[str, float]], budget: float) -> bool:
    """Return whether another walk fits into the share of the budget that repeats may take."""
    spent = [one["total"] for one in walks]
    return sum(spent) + max(spent) <= _REPEATS * budget


class AsProjector:
    """A method with the interface of a projector; ours is called through its own projector, with its warm starts.

    A peer that takes warm starts gets its own last answer as one, wherever ours would. It returns fields without a certificate,
    which PCFM does not read: the judge certifies the last answers.
    """

    def __init__(self, stand: Fixture) -> None:
        self._stand, self._own = stand, stand.job.method == OURS
        self.shape = stand.projector.shape
        self.last: tuple[Tensor, Answers] | None = None  # input and answers of the last certified call
        self._again = getattr(stand.solver, "again", None)  # of a peer that takes warm starts
        self._answer: Any = None  # what it returned last

    def move(self, u_hat: Tensor, params: Params, *, warm: Any = None, tolerance: float | None = None) -> Moved:
        """Project without a certificate."""
        stand = self._stand
        if self._own:
            return stand.projector.move(u_hat, params, warm=warm, tolerance=tolerance)
        asked = (u_hat.double(), stand.inputs.params, tolerance or stand.tolerance)
        if warm is None or self._again is None or self._answer is None:
            self._answer = stand.solver.run(*asked)
        else:
            self._answer = self._again(*asked, self._answer)
        return Moved(fields_of(self._answer, self.shape).to(u_hat), None)

    def __call__(
        self, u_hat: Tensor, params: Params, *, warm: Any = None, tolerance: float | None = None
    ) -> Projection | Moved:
        """Project and keep the answers for the judge."""
        stand = self._stand
        if self._own:
            found = stand.projector(u_hat, params, warm=warm, tolerance=tolerance)
            multipliers = {name: one.double() for name, one in found.multipliers.items()}
            answers = Answers(found.u.double(), multipliers, claims(found.status, len(u_hat)), found.iterations)
            self.last = u_hat.double(), answers
            return found
        solved = stand.solver.solve(u_hat.double(), stand.inputs.params, tolerance or stand.tolerance)
        answers = stand.answers(solved)
        self.last = u_hat.double(), answers
        return Moved(answers.u.to(u_hat), None)


def main() -> None:
    """Run the job."""
    job = load(Job, json.loads(receive()))
    case = job.suite.case(job.case)
    torch.set_num_threads(job.suite.threads)
    if job.method is None or job.kind is None:
        write_file(job.folder / INPUTS, pack(make(job.suite, case), fingerprint(job.suite, case) or ""))
    else:
        faulthandler.dump_traceback_later(job.suite.budget_of(case, job.kind) + _GRACE, exit=True)
        blank = ProjectionCell(job.case, job.method, job.kind, CellState.DONE, threads=torch.get_num_threads())
        write_file(job.folder / RECORD, to_line(_filled(job, blank)).encode())
    # The work is done: threads and processes that may not want to end, or crash when the interpreter does, do not count.
    os._exit(0)


def _filled(job: Job, cell: ProjectionCell) -> ProjectionCell:
    assert job.kind is not None
    try:
        stand = prepared(job)
        found = {Kind.PROJECTION: projection, Kind.CURVE: curve, Kind.WALK: walk}[job.kind](stand)
    except MissingDependency as cause:
        return replace(cell, state=CellState.ABSENT, why=_sentence(cause))
    except UnsupportedLaw as cause:
        return replace(cell, state=CellState.REFUSED, why=_sentence(cause))
    except TooSlow as cause:
        return replace(cell, state=CellState.DNF, why=str(cause))
    except Exception as cause:  # a method that fails is a result of the table, not its end
        return replace(cell, state=CellState.FAILED, why=f"{type(cause).__name__}: {_sentence(cause)}")
    about = {"versions": imported()}  # of this process, where the method is
    return replace(cell, cold=stand.cold, peak_bytes=stand.more_bytes(), machine=about, **found)


def _sentence(cause: Exception) -> str:
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else "it says nothing"


if __name__ == "__main__":
    main()
