"""A suite of sample quality: which samplers run on which tasks, how many samples, and how long each may take."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from snapfm.errors import ParamsError, SettingError, SnapfmError
from snapfm.evidence.quality.record import REFERENCES
from snapfm.evidence.suite import AtLeast, Positive, Seconds, Shelf, check_one_of
from snapfm.problems import Problem, problem
from snapfm.sampling import ECI, PCFM, DFlow, EndProjection, Flow, Guidance, Projected, Sampler

_SAMPLERS: tuple[type[Sampler], ...] = (Flow, PCFM, EndProjection, Projected, ECI, Guidance, DFlow)
KINDS: dict[str, type[Sampler]] = {kind.__name__: kind for kind in _SAMPLERS}
DTYPES = ("float32", "float64")

Several = Annotated[int, AtLeast(2)]
Steps = Annotated[int, AtLeast(1)]


@dataclass(frozen=True)
class Task:
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

    def build(self) -> Sampler:
        """Make the sampler."""
        return KINDS[self.kind](**self.settings)


@dataclass(frozen=True)
class Suite:
    """All that decides the records of a run, except for models and machine."""

    name: str
    title: str
    tasks: tuple[Task, ...]
    samplers: tuple[SamplerEntry, ...]
    samples: Several
    truth: Several  # true fields that samples are compared with
    steps: Steps
    seed: Annotated[int, AtLeast(0)] = 0
    bootstrap: Several = 1000  # resamplings behind every interval
    budget: Seconds = 600.0  # wall seconds of one cell
    tolerance: Annotated[float, Positive()] = 1e-10  # of the projector
    dtype: str = "float64"  # of the fields; the network keeps its own


def _check(what: str, suite: Suite) -> None:
    if suite.dtype not in DTYPES:
        raise ParamsError(
            f"{what} expects dtype to be one of {list(DTYPES)}; got {suite.dtype!r}. float64 keeps every digit."
        )
    for task in suite.tasks:
        task.build()  # refuses problems and settings by name
    for sampler in suite.samplers:
        _check_sampler(f"{what} sampler '{sampler.name}'", sampler)


def _check_sampler(what: str, sampler: SamplerEntry) -> None:
    if sampler.name in REFERENCES:
        raise ParamsError(
            f"{what} expects a name other than {list(REFERENCES)}, which are reference rows. Choose another."
        )
    check_one_of(what, "kind", list(KINDS), sampler.kind)
    try:
        sampler.build()
    except SnapfmError as cause:
        raise ParamsError(f"{what}: {cause}") from cause
    except TypeError as cause:
        known = list(inspect.signature(KINDS[sampler.kind]).parameters)
        raise SettingError(f"{what} expects settings among {known}; got {dict(sampler.settings)}: {cause}.") from cause


_SHELF = Shelf("snapfm.evidence.quality", "snapfm quality", Suite, _check)
suite_names, load_suite = _SHELF.names, _SHELF.load
