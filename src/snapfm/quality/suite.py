"""A suite: which samplers run on which tasks, how many samples, and how long each may take. Read from a small TOML file.

Knows the samplers by name and the problems by theirs; runs nothing.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from snapfm.errors import ParamsError, SettingError, SnapfmError, UnknownName
from snapfm.problems import Problem, problem
from snapfm.quality.record import REFERENCES
from snapfm.sampling import ECI, PCFM, DFlow, EndProjection, Flow, Guidance, Projected, Sampler

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

_SUITES = resources.files("snapfm.quality") / "suites"


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
    return sorted(entry.name.removesuffix(".toml") for entry in _SUITES.iterdir() if entry.name.endswith(".toml"))


def load_suite(name: str) -> Suite:
    """Read a shipped suite by name, or any other by the path of its TOML file."""
    if name in suite_names():
        return _read(name, (_SUITES / f"{name}.toml").read_text(encoding="utf-8"))
    file = Path(name)
    if not file.is_file():
        raise UnknownName(
            f"snapfm quality SUITE expects one of {suite_names()} or the path of a TOML file; got {name!r}, which is neither. "
            "Write a file like those in snapfm/quality/suites."
        )
    return _read(file.stem, file.read_text(encoding="utf-8"))


def _read(name: str, text: str) -> Suite:
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as cause:
        raise ParamsError(f"suite '{name}' is expected to be TOML; got a file with {cause}. Mend that line.") from cause
    tasks = tuple(_entry(TaskEntry, f"suite '{name}' task", key, value) for key, value in _tables(name, raw, "tasks"))
    samplers = tuple(
        _entry(SamplerEntry, f"suite '{name}' sampler", key, value) for key, value in _tables(name, raw, "samplers")
    )
    raw = {"name": name, "title": name, **raw, "tasks": tasks, "samplers": samplers}
    suite: Suite = _built(Suite, f"suite '{name}'", raw)
    _check(suite)
    return suite


def _tables(name: str, raw: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
    found = raw.get(key)
    if not isinstance(found, dict) or not found:
        raise ParamsError(f"suite '{name}' expects a table [{key}.NAME] for each of its {key}; got none. Add one.")
    return list(found.items())


def _entry(kind: type, what: str, name: str, raw: Any) -> Any:
    if not isinstance(raw, dict):
        raise ParamsError(
            f"{what} '{name}' expects a table of settings; got {raw!r}. Write it as [{what.split()[-1]}s.{name}]."
        )
    return _built(kind, f"{what} '{name}'", {"name": name, "title": name, **raw})


def _built(kind: type, what: str, raw: Mapping[str, Any]) -> Any:
    known = inspect.signature(kind).parameters
    unknown = sorted(set(raw) - set(known))
    if unknown:
        raise ParamsError(f"{what} expects keys among {sorted(known)}; got {unknown[0]!r}. Use one of these names.")
    missing = [
        key for key, parameter in known.items() if parameter.default is inspect.Parameter.empty and key not in raw
    ]
    if missing:
        raise ParamsError(f"{what} expects a value for {missing[0]!r}; got none. Add a line `{missing[0]} = …`.")
    return kind(**raw)


def _check(suite: Suite) -> None:
    """Refuse what cannot run, before anything has been simulated."""
    what = f"suite '{suite.name}'"
    for key, least in (("samples", 2), ("truth", 2), ("steps", 1), ("seed", 0), ("bootstrap", 2)):
        _whole(what, key, getattr(suite, key), least)
    _positive(what, "budget", suite.budget)
    _positive(what, "tolerance", suite.tolerance)
    if suite.dtype not in DTYPES:
        raise ParamsError(
            f"{what} expects dtype to be one of {list(DTYPES)}; got {suite.dtype!r}. float64 keeps every digit."
        )
    for task in suite.tasks:
        if task.truth is not None:
            _whole(f"{what} task '{task.name}'", "truth", task.truth, 2)
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
            _whole(what, key, getattr(sampler, key), least)
    if sampler.budget is not None:
        _positive(what, "budget", sampler.budget)
    try:
        sampler.build()
    except SnapfmError as cause:
        raise ParamsError(f"{what}: {cause}") from cause
    except TypeError as cause:
        known = list(inspect.signature(KINDS[sampler.kind]).parameters)
        raise SettingError(f"{what} expects settings among {known}; got {dict(sampler.settings)}: {cause}.") from cause


def _whole(what: str, key: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ParamsError(
            f"{what} expects {key} to be a whole number >= {least}; got {value!r}. Ask for at least {least}."
        )


def _positive(what: str, key: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ParamsError(f"{what} expects {key} to be a positive number; got {value!r}. Give one.")
