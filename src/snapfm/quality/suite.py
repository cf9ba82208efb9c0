"""A suite: which samplers run on which tasks, how many samples, and how long each may take. Read from a small TOML file.

Knows the samplers by name and the problems by theirs; runs nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from snapfm.errors import ParamsError, SettingError, SnapfmError, UnknownName
from snapfm.problems import Problem, problem
from snapfm.quality.record import REFERENCES
from snapfm.sampling import ECI, PCFM, DFlow, EndProjection, Flow, Guidance, Projected, Sampler
from snapfm.suitefile import Shelf, built, check_positive, check_whole, named, tables

KINDS: dict[str, type[Sampler]] = {
    "Flow": Flow,
    "PCFM": PCFM,
    "EndProjection": EndProjection,
    "Projected": Projected,
    "ECI": ECI,
    "Guidance": Guidance,
    "DFlow": DFlow,
}
DTYPES = ("float32", "float64")

_SHELF = Shelf("snapfm.quality", "snapfm quality")


@dataclass(frozen=True)
class TaskEntry:
    """A problem with the settings under which data obey its laws, the model of its equation, and how many true fields."""

    name: str
    title: str
    problem: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    truth: int | None = None

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
    samples: int | None = None
    steps: int | None = None
    budget: float | None = None

    def build(self) -> Sampler:
        """Make the sampler."""
        return KINDS[self.kind](**self.settings)


@dataclass(frozen=True)
class Suite:
    """All that decides the records of a run, except for models and machine."""

    name: str
    title: str
    tasks: tuple[TaskEntry, ...]
    samplers: tuple[SamplerEntry, ...]
    samples: int
    truth: int  # true fields that samples are compared with
    steps: int
    seed: int = 0
    bootstrap: int = 1000  # resamplings behind every interval
    budget: float = 600.0  # wall seconds of one cell
    tolerance: float = 1e-10  # of the projector
    dtype: str = "float64"  # of the fields; the network keeps its own

    def to_raw(self) -> dict[str, Any]:
        """Give plain values, as a record's header keeps them."""
        return asdict(self)

    @classmethod
    def from_raw(cls, raw: Mapping[str, Any]) -> Suite:
        """Read a header back."""
        tasks = tuple(TaskEntry(**task) for task in raw["tasks"])
        samplers = tuple(SamplerEntry(**sampler) for sampler in raw["samplers"])
        return cls(**{**raw, "tasks": tasks, "samplers": samplers})


def suite_names() -> list[str]:
    """List the suites shipped with the package."""
    return _SHELF.names()


def load_suite(name: str) -> Suite:
    """Read a shipped suite by name, or any other by the path of its TOML file."""
    name, raw = _SHELF.find(name)
    what = f"suite '{name}'"
    tasks = tuple(
        named(TaskEntry, f"{what} task '{key}'", "tasks", key, value)
        for key, value in tables(what, raw, "tasks").items()
    )
    samplers = tuple(
        named(SamplerEntry, f"{what} sampler '{key}'", "samplers", key, value)
        for key, value in tables(what, raw, "samplers").items()
    )
    suite = built(Suite, what, {"name": name, "title": name, **raw, "tasks": tasks, "samplers": samplers})
    _check(suite)
    return suite


def _check(suite: Suite) -> None:
    """Refuse what cannot run, before anything has been simulated."""
    what = f"suite '{suite.name}'"
    for key, least in (("samples", 2), ("truth", 2), ("steps", 1), ("seed", 0), ("bootstrap", 2)):
        check_whole(what, key, getattr(suite, key), least)
    check_positive(what, "budget", suite.budget)
    check_positive(what, "tolerance", suite.tolerance)
    if suite.dtype not in DTYPES:
        raise ParamsError(
            f"{what} expects dtype to be one of {list(DTYPES)}; got {suite.dtype!r}. float64 keeps every digit."
        )
    for task in suite.tasks:
        if task.truth is not None:
            check_whole(f"{what} task '{task.name}'", "truth", task.truth, 2)
        task.build()  # refuses problems and settings by name
    for sampler in suite.samplers:
        _check_sampler(f"{what} sampler '{sampler.name}'", sampler)


def _check_sampler(what: str, sampler: SamplerEntry) -> None:
    if sampler.name in REFERENCES:
        raise ParamsError(
            f"{what} expects a name other than {list(REFERENCES)}, which are reference rows. Choose another."
        )
    if sampler.kind not in KINDS:
        raise UnknownName(f"{what} expects kind to be one of {list(KINDS)}; got {sampler.kind!r}. Choose one of these.")
    for key, least in (("samples", 2), ("steps", 1)):
        if getattr(sampler, key) is not None:
            check_whole(what, key, getattr(sampler, key), least)
    if sampler.budget is not None:
        check_positive(what, "budget", sampler.budget)
    try:
        sampler.build()
    except SnapfmError as cause:
        raise ParamsError(f"{what}: {cause}") from cause
    except TypeError as cause:
        known = list(inspect.signature(KINDS[sampler.kind]).parameters)
        raise SettingError(f"{what} expects settings among {known}; got {dict(sampler.settings)}: {cause}.") from cause
