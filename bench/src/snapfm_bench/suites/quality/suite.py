"""A suite of sample quality: which samplers run on which tasks, how many samples, how long each may take; and its records.

The record of one cell, task × sampler, holds plain numbers and names. A number that is not finite is None.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from snapfm.errors import ParamsError, SettingError, SnapfmError
from snapfm.sampling import SAMPLERS as KINDS
from snapfm.sampling import Sampler
from snapfm_bench.problems import Problem, problem
from snapfm_bench.record import CellState
from snapfm_bench.suites.suite import Seconds, SuiteRegistry, at_least, check_one_of, positive

TRUE_FIELDS, TRUE_MEAN = "true-fields", "true-mean"  # reference rows: answers that need no model
TRIAL = "@"  # between a sampler's name and the steps of a trial
STORED = "stored "  # before the names of rows of files that others released
REFERENCES = {TRUE_FIELDS: "True fields", TRUE_MEAN: "True mean"}


@dataclass(frozen=True)
class Interval:
    """A score with its bootstrap interval."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class LawScore:
    """The constraint error of one law: mean over samples of ‖R‖₂, that of the worst sample, and the worst single row."""

    law: str
    rows: int
    error: Interval
    largest: float | None
    worst_row: float | None


@dataclass(frozen=True)
class TextureScore:
    """Whether samples look like true fields from point to point."""

    noise: int  # samples that are noise
    correlation: tuple[float | None, ...]  # of neighbours along each axis, the median sample
    true_correlation: tuple[float | None, ...]
    spectrum_distance: tuple[float | None, ...]
    alike: bool
    oversized: int = 0  # samples whose values are not of the size of true ones; older records did not look


@dataclass(frozen=True)
class CoverageScore:
    """The share of true values inside a central interval of the samples, and what the right distribution would cover."""

    level: float
    expected: float
    found: Interval


@dataclass(frozen=True)
class QualityCell:
    """One sampler on one task. Scores that older records lack are None or empty: not measured."""

    task: str
    sampler: str
    status: CellState
    samples: int
    steps: int | None = None  # of the flow; None for reference rows
    steps_done: int | None = None
    error: str | None = None  # of a FAILED cell, or why ABSENT
    mmse: Interval | None = None
    smse: Interval | None = None
    crps: Interval | None = None
    energy_distance: Interval | None = None
    spread_skill: Interval | None = None
    coverage: tuple[CoverageScore, ...] = ()
    laws: tuple[LawScore, ...] = ()
    finite: int | None = None  # samples without NaN and infinity
    converged: int | None = None  # samples with a certificate; None if the sampler has none
    texture: TextureScore | None = None
    smallest: float | None = None
    largest: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)  # velocity, projection, total
    calls: int | None = None  # of the network, for the whole batch
    model: str | None = None  # digest of the weights
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Identify the cell within its suite."""
        return self.task, self.sampler


Cells = Mapping[tuple[str, str], QualityCell]


def stored_rows(cells: Cells) -> dict[str, str]:
    """Return the names and titles of the rows of stored files."""
    names = dict.fromkeys(name for _, name in cells if name.startswith(STORED))
    return {name: f"Stored files: {name.removeprefix(STORED)}" for name in names}


DTYPES = ("float32", "float64")

_SEEDS_APART = 2  # the truth is drawn with the seed after the suite's

Several = Annotated[int, at_least(2)]
Steps = Annotated[int, at_least(1)]


@dataclass(frozen=True)
class QualityTask:
    """A problem with the settings under which data obey its laws, the model of its equation, and how many true fields."""

    name: str
    title: str
    problem: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    truth: Several | None = None

    def build(self) -> Problem:
        """Build the problem."""
        return problem(self.problem, **self.settings)


@dataclass(frozen=True)
class SamplerEntry:
    """A sampler with its settings; samples, steps and budget are the suite's unless given."""

    name: str
    title: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    samples: Several | None = None
    steps: Steps | None = None
    budget: Seconds | None = None
    step_choices: tuple[int, ...] = ()  # the best of them by CRPS on the selection seed is scored

    @property
    def trials(self) -> tuple[SamplerEntry, ...]:
        """The same sampler with each number of steps to choose from; their cells are those of the selection seed."""
        named = ((steps, f"{self.name}{TRIAL}{steps}") for steps in self.step_choices)
        return tuple(replace(self, name=name, title=name, steps=steps, step_choices=()) for steps, name in named)

    def build(self) -> Sampler:
        """Make the sampler."""
        return KINDS[self.kind](**self.settings)


@dataclass(frozen=True)
class QualitySuite:
    """All that decides the records of a run, except for models and machine."""

    name: str
    title: str
    tasks: tuple[QualityTask, ...]
    samplers: tuple[SamplerEntry, ...]
    samples: Several
    truth: Several  # true fields that samples are compared with
    steps: Steps
    seed: Annotated[int, at_least(0)] = 0
    trial_samples: Several | None = None  # of the trials that choose steps; as many as are scored if None
    selection_seed: Annotated[int, at_least(0)] = 1000  # of noise, conditions and truth by which steps are chosen
    bootstrap: Several = 1000  # resamplings behind every interval
    budget: Seconds = 600.0  # wall seconds of one cell
    tolerance: Annotated[float, positive] = 1e-10  # of the projector
    dtype: str = "float64"  # of the fields; the network keeps its own

    @property
    def references(self) -> dict[str, str]:
        """Return the reference rows: one of true fields for every number of samples that a sampler has of its own."""
        others = sorted({one.samples for one in self.samplers if one.samples and one.samples != self.samples})
        return REFERENCES | {f"{TRUE_FIELDS}-{count}": f"{REFERENCES[TRUE_FIELDS]}, {count}" for count in others}


def _check(what: str, suite: QualitySuite) -> None:
    if suite.dtype not in DTYPES:
        raise ParamsError(
            f"{what} expects dtype to be one of {list(DTYPES)}; got {suite.dtype!r}. float64 keeps every digit."
        )
    if abs(suite.selection_seed - suite.seed) < _SEEDS_APART and any(one.step_choices for one in suite.samplers):
        raise ParamsError(
            f"{what} expects a selection_seed at least {_SEEDS_APART} from seed {suite.seed}; got {suite.selection_seed}. Steps "
            "are chosen on other random numbers than those they are scored on."
        )
    for task in suite.tasks:
        task.build()  # refuses problems and settings by name
    for sampler in suite.samplers:
        _check_sampler(f"{what} sampler '{sampler.name}'", sampler)


def _check_sampler(what: str, sampler: SamplerEntry) -> None:
    if sampler.name in REFERENCES or sampler.name.startswith(f"{TRUE_FIELDS}-"):
        raise ParamsError(
            f"{what} expects a name other than {list(REFERENCES)}, which are reference rows. Choose another."
        )
    if TRIAL in sampler.name:
        raise ParamsError(f"{what} expects a name without '{TRIAL}', which marks trials of steps. Choose another.")
    for steps in sampler.step_choices:
        at_least(1)(what, "step_choices", steps)
    if sampler.step_choices and (sampler.steps or len(set(sampler.step_choices)) < 2):
        raise ParamsError(
            f"{what} expects two or more different step_choices, and then no steps; got {list(sampler.step_choices)} and steps "
            f"{sampler.steps}. Give one of the two."
        )
    check_one_of(what, "kind", list(KINDS), sampler.kind)
    try:
        sampler.build()
    except SnapfmError as cause:
        raise ParamsError(f"{what}: {cause}") from cause
    except TypeError as cause:
        known = list(inspect.signature(KINDS[sampler.kind]).parameters)
        raise SettingError(f"{what} expects settings among {known}; got {dict(sampler.settings)}: {cause}.") from cause


_SHELF = SuiteRegistry("snapfm_bench.suites.quality", "snapfm quality", QualitySuite, _check)
suite_names, load_suite = _SHELF.names, _SHELF.load
