"""One cell: a sampler on a task, within its wall budget, scored against simulated truth; and what all cells of a task share.

First calls (tracing, compiling) are made in `prepare`, before any clock runs. Scores are computed by metrics, in float64, from
fields alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from snapfm.laws import Law, Params
from snapfm.metrics.bootstrap import Estimate
from snapfm.metrics.coverage import coverage
from snapfm.metrics.crps import crps
from snapfm.metrics.energy_distance import TrueFields, energy_distance
from snapfm.metrics.moments import Moments, moment_errors, moments
from snapfm.metrics.scores import constraint_errors
from snapfm.metrics.spread_skill import spread_skill
from snapfm.metrics.texture import texture
from snapfm.project import Projector
from snapfm.sampling import sample
from snapfm.sampling.conditional.spread import own_spread
from snapfm_bench.flow import VelocityNetwork, evaluator, shipped, shipped_names
from snapfm_bench.machine import digest, machine_and_threads
from snapfm_bench.problems import Problem
from snapfm_bench.record import CellState, finite
from snapfm_bench.suites.quality.suite import (
    TRUE_FIELDS,
    TRUE_MEAN,
    Cells,
    CoverageScore,
    Interval,
    LawScore,
    QualityCell,
    QualitySuite,
    QualityTask,
    SamplerEntry,
    TextureScore,
)

_TRUTH_SEED = 1  # added to the suite's: conditions and truth share no random number with the noise
_COMPARED = 2048  # true fields that whole distributions are compared with: 160 MB of 100 × 100 points, twice
_EXAMPLES = 64  # true fields kept for their texture, for which a dozen are enough


Progress = Callable[[float], None]  # the share of the steps that are done
Outcome = tuple[QualityCell, Moments | None]  # the record and, if the cell has fields, their mean and spread


@dataclass(frozen=True)
class Truth:
    """What samples are compared with: mean and spread of all true fields, and some of them themselves."""

    moments: Moments
    fields: Tensor
    pairs: TrueFields
    count: int

    @property
    def examples(self) -> Tensor:
        """The fields whose texture is compared."""
        return self.fields[:_EXAMPLES]

    @classmethod
    def of(cls, fields: Tensor) -> Truth:
        """Compute what scores need from true fields (b, *shape)."""
        compared = fields[:_COMPARED].clone()
        return cls(moments(fields), compared, TrueFields.of(compared), len(fields))


def score(
    laws: Sequence[Law],
    u: Tensor,
    params: Params,
    truth: Truth,
    rounds: int,
    seed: int = 0,
    weights: Tensor | None = None,
) -> dict[str, Any]:
    """Score fields (b, *shape) by their laws and against true fields; the keys are those of QualityCell.

    `weights` (b,) count in the distribution; laws hold for every sample.
    """
    whole = torch.isfinite(u.flatten(1)).all(1)
    found: dict[str, Any] = {}
    if bool(whole.all()):
        errors = moment_errors(u, truth.moments, seed, rounds, weights)
        ranks = coverage(u, truth.fields, weights, seed, rounds)
        ratio = spread_skill(u, (truth.moments, truth.count), weights, seed, rounds)
        found = {
            "mmse": _interval(errors.mmse),
            "smse": _interval(errors.smse),
            "crps": _interval(crps(u, truth.fields, weights, seed, rounds)),
            "energy_distance": _interval(energy_distance(u, truth.pairs, weights, seed, rounds)),
            "spread_skill": _interval(ratio),
            "coverage": tuple(CoverageScore(one.level, one.expected, _interval(one.found)) for one in ranks),
        }
    laws_found = tuple(
        LawScore(one.law, one.rows, _interval(one.error), finite(one.largest), finite(one.worst_row))
        for one in constraint_errors(laws, u, params, seed, rounds)
    )
    return {
        **found,
        "laws": laws_found,
        "finite": int(whole.sum()),
        "texture": _texture(u, truth.examples),
        "smallest": finite(u.min()),
        "largest": finite(u.max()),
    }


def _texture(u: Tensor, examples: Tensor) -> TextureScore:
    found = texture(u, examples)
    axes = (found.correlation.median(0).values, found.true_correlation, found.spectrum_distance)
    median, true, distance = (tuple(finite(value) for value in values.tolist()) for values in axes)
    return TextureScore(int(found.noise.sum()), median, true, distance, found.alike, int(found.oversized.sum()))


def _interval(found: Estimate) -> Interval:
    """Convert an estimate; one that is not finite has no interval either."""
    return Interval(finite(found.value), finite(found.low), finite(found.high))


@dataclass(frozen=True)
class QualityFixture:
    """What the cells of one task share; no network if its model is not shipped."""

    task: QualityTask
    problem: Problem
    truth: Truth
    params: Params
    network: VelocityNetwork | None
    projector: Projector | None


def model_digest(model: str) -> str | None:
    """Identify the weights of a shipped model; None if it is not shipped."""
    return digest(shipped(model)) if model in shipped_names() else None


def prepare(suite: QualitySuite, task: QualityTask) -> QualityFixture:
    """Simulate the truth of a task, load its model and build its projector."""
    problem = task.build()
    count = task.truth or suite.truth
    most = max(suite.samples, *(entry.samples or 0 for entry in suite.samplers))
    fields, params = problem.draw_truth(suite.seed + _TRUTH_SEED, 0, max(count, most))
    network = shipped(task.model) if task.model in shipped_names() else None
    projector = None
    if network is not None:
        some = _first(params, suite.samples)
        projector = Projector(problem.laws, problem.grid.shape, some, tolerance=suite.tolerance)
        projector(torch.zeros(suite.samples, *problem.grid.shape), some)
    return QualityFixture(task, problem, Truth.of(fields[:count]), params, network, projector)


def reference_cell(suite: QualitySuite, here: QualityFixture, name: str) -> Outcome:
    """Score an answer that needs no model: as many true fields, drawn independently, or the true mean every time."""
    count = suite.samples
    if name == TRUE_MEAN:
        mean = here.truth.moments.mean
        u, params = mean.expand(count, *mean.shape), _first(here.params, count)
    else:
        _, _, other = name.removeprefix(TRUE_FIELDS).partition("-")
        count = int(other) if other else count
        u, params = here.problem.draw_truth(suite.seed + _TRUTH_SEED, here.truth.count, count)
    scores = score(here.problem.laws, u, params, here.truth, suite.bootstrap, suite.seed)
    cell = QualityCell(here.task.name, name, CellState.DONE, count, machine=machine_and_threads(), **scores)
    return cell, moments(u)


def sampler_cell(
    suite: QualitySuite, here: QualityFixture, entry: SamplerEntry, progress: Progress | None = None
) -> Outcome:
    """Run and score a sampler; an exception and a used-up budget are recorded, not passed on."""
    count, steps = entry.samples or suite.samples, entry.steps or suite.steps
    blank = QualityCell(here.task.name, entry.name, CellState.DONE, count, steps, machine=machine_and_threads())
    if here.network is None or here.projector is None:
        return replace(blank, status=CellState.ABSENT, error=f"model '{here.task.model}' is not shipped"), None
    watched = _Watched(here.network, entry.budget or suite.budget, progress)
    params = _first(here.params, count)
    blank, error = replace(blank, model=model_digest(here.task.model)), None
    try:
        samples = sample(
            watched, here.projector, params, count=count, steps=steps,
            generator=torch.Generator().manual_seed(suite.seed), sampler=entry.build(), dtype=getattr(torch, suite.dtype),
            on_failure="keep", progress=watched.step,
        )  # fmt: skip
        seconds = {**samples.seconds, "total": watched.seconds()}
        scores = score(here.problem.laws, samples.u, params, here.truth, suite.bootstrap, suite.seed, samples.weights)
    except _Late:
        state = CellState.DNF
    except Exception as cause:  # a sampler that fails is a result of the table, not its end
        state, error = CellState.FAILED, f"{type(cause).__name__}: {cause}".splitlines()[0]
    else:
        certified = None if samples.projection is None else int(samples.projection.converged.sum())
        done = replace(
            blank, steps_done=watched.done, converged=certified, seconds=seconds, calls=samples.calls, **scores
        )
        return done, moments(samples.u)
    spent = {"total": watched.seconds()}
    return replace(blank, status=state, error=error, steps_done=watched.done, seconds=spent, calls=watched.calls), None


def chosen_steps(entry: SamplerEntry, task: str, cells: Cells) -> int | None:
    """Return the number of steps whose trial has the lowest CRPS, the smaller of equal ones; None if no trial has one."""
    scored = [
        (cell.crps.value, trial.steps)
        for trial in entry.trials
        if (cell := cells.get((task, trial.name))) is not None and cell.crps is not None and cell.crps.value is not None
    ]
    return min(scored)[1] if scored else None


def chosen_cell(
    suite: QualitySuite, here: QualityFixture, entry: SamplerEntry, cells: Cells, progress: Progress | None = None
) -> Outcome:
    """Run and score a sampler with the steps that its trials choose; one without a scored trial has failed."""
    steps = chosen_steps(entry, here.task.name, cells)
    if steps is not None or here.network is None:
        return sampler_cell(suite, here, replace(entry, steps=steps, step_choices=()), progress)
    states = {
        str(cells[here.task.name, one.name].status) for one in entry.trials if (here.task.name, one.name) in cells
    }
    error = f"no number of steps could be scored: trials are {', '.join(sorted(states)) or 'missing'}"
    count = entry.samples or suite.samples
    return QualityCell(
        here.task.name, entry.name, CellState.FAILED, count, error=error, model=model_digest(here.task.model),
        machine=machine_and_threads(),
    ), None  # fmt: skip


class _Late(Exception):
    """The wall budget is used up."""


class _Watched(nn.Module):
    """A network with a clock: counts steps and calls, and ends the run when its budget is used up.

    Every call checks the clock, as some samplers take minutes between two steps.
    """

    def __init__(self, network: VelocityNetwork, budget: float, progress: Progress | None) -> None:
        super().__init__()
        self._budget, self._progress, self._began = budget, progress, time.perf_counter()
        self.network, self._quick = network, evaluator(network)
        self.spread = own_spread(network)  # for samplers that ask for it
        self.done = self.calls = 0

    def seconds(self) -> float:
        """Return the wall time since the start."""
        return time.perf_counter() - self._began

    def step(self, done: int, total: int) -> None:
        """Record a finished step."""
        self.done = done
        if self._progress is not None:
            self._progress(done / total)
        if done < total:  # a finished run counts, late or not
            self._check()

    def forward(self, u: Tensor, tau: float | Tensor) -> Tensor:
        self._check()
        self.calls += 1
        speed: Tensor = self._quick(u, tau)
        return speed

    def _check(self) -> None:
        if self.seconds() > self._budget:
            raise _Late


def _first(params: Params, count: int) -> dict[str, Tensor]:
    return {name: value[:count] for name, value in params.items()}
