"""A suite: which methods run on which cases, how often, and how long each may take. Read from a small TOML file.

Knows the problems by name and the methods by theirs; runs nothing.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from snapfm.bench.methods import CATALOG, methods
from snapfm.bench.record import Kind
from snapfm.errors import ParamsError, SnapfmError, UnknownName
from snapfm.problems import Problem, problem

AXES = ("rows", "samples", "unknowns")

_SUITES = resources.files("snapfm.bench") / "suites"
_FILE_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Case:
    """A problem with its settings, what is done with it, and where its inputs come from.

    Inputs are what the shipped network `model` gives at the flow times `taus`, or projected truth with noise of size `noisy`.
    """

    name: str
    problem: str
    title: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 32
    kinds: tuple[str, ...] = (str(Kind.PROJECTION),)
    taus: tuple[float, ...] = ()
    noisy: float | None = None
    model: str | None = None
    steps: int = 100  # of the flow, in walks and where inputs are recorded
    axis: str | None = None  # what grows from case to case
    published: str | None = None  # the problem of the published tables it is compared with
    methods: tuple[str, ...] = ()  # none: the suite's
    budget: float | None = None  # None: the suite's
    walk_budget: float | None = None

    def build(self) -> Problem:
        """Build the problem."""
        return problem(self.problem, **self.settings)

    @property
    def needs_model(self) -> bool:
        """Tell whether inputs or walks need the network."""
        return bool(self.taus) or Kind.WALK in self.kinds


@dataclass(frozen=True)
class Suite:
    """All that decides the records of a run, except for models and machine."""

    name: str
    title: str
    methods: tuple[str, ...]
    cases: tuple[Case, ...]
    threads: int = 2
    repeats: int = 5  # hot calls on each input
    warmup: int = 1  # calls before them, the first of which is judged
    budget: float = 60.0  # wall seconds of one cell
    walk_budget: float | None = None  # of one that walks; None: the same
    tolerance: float = 1e-5
    seed: int = 0
    catalog: str = CATALOG

    def methods_of(self, case: Case) -> tuple[str, ...]:
        """Name the methods that run on a case."""
        return case.methods or self.methods

    def budget_of(self, case: Case, kind: Kind) -> float:
        """Give the wall seconds of a cell; what the case says comes first."""
        if kind is Kind.WALK:
            return case.walk_budget or self.walk_budget or case.budget or self.budget
        return case.budget or self.budget

    def case(self, name: str) -> Case:
        """Give a case by name."""
        return next(case for case in self.cases if case.name == name)

    def to_raw(self) -> dict[str, Any]:
        """Give plain values, as a record's header keeps them."""
        return asdict(self)

    @classmethod
    def from_raw(cls, raw: Mapping[str, Any]) -> Suite:
        """Read a header back."""
        cases = tuple(Case(**_with_tuples(case, "kinds", "taus", "methods")) for case in raw["cases"])
        return cls(**{**_with_tuples(raw, "methods"), "cases": cases})


def suite_names() -> list[str]:
    """List the suites shipped with the package."""
    return sorted(entry.name.removesuffix(".toml") for entry in _SUITES.iterdir() if entry.name.endswith(".toml"))


def load_suite(name: str) -> Suite:
    """Read a shipped suite by name, or any other by the path of its TOML file."""
    if name in suite_names():
        return _built_suite(name, _shipped(name))
    file = Path(name)
    if not file.is_file():
        raise UnknownName(
            f"snapfm bench SUITE expects one of {suite_names()} or the path of a TOML file; got {name!r}, which is neither. "
            "Write a file like those in snapfm/bench/suites."
        )
    raw = _parsed(file.stem, file.read_text(encoding="utf-8"))
    if "extends" not in raw:
        return _built_suite(file.stem, raw)
    base = raw.pop("extends")
    if base not in suite_names():
        raise UnknownName(
            f"suite '{file.stem}' expects extends to be one of {suite_names()}; got {base!r}. Name a shipped suite."
        )
    return _built_suite(base, {**_shipped(base), **raw})


def _shipped(name: str) -> dict[str, Any]:
    return _parsed(name, (_SUITES / f"{name}.toml").read_text(encoding="utf-8"))


def _parsed(name: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as cause:
        raise ParamsError(f"suite '{name}' is expected to be TOML; got a file with {cause}. Mend that line.") from cause


def _built_suite(name: str, raw: Mapping[str, Any]) -> Suite:
    what = f"suite '{name}'"
    tables = raw.get("cases")
    if not isinstance(tables, dict) or not tables:
        raise ParamsError(f"{what} expects a table [cases.NAME] for each of its cases; got none. Add one.")
    cases = tuple(_case(f"{what} case '{key}'", key, value) for key, value in tables.items())
    given = {"name": name, "title": name, **raw, "cases": cases}
    _check_lists(what, given, "methods")
    suite: Suite = _built(Suite, what, _with_tuples(given, "methods"))
    _check(what, suite)
    return suite


def _case(what: str, name: str, raw: Any) -> Case:
    if not isinstance(raw, dict):
        raise ParamsError(f"{what} expects a table of settings; got {raw!r}. Write it as [cases.{name}].")
    _check_lists(what, raw, "kinds", "taus", "methods")
    case: Case = _built(Case, what, _with_tuples({"name": name, "title": name, **raw}, "kinds", "taus", "methods"))
    return case


def _check_lists(what: str, raw: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if key in raw and not isinstance(raw[key], list):
            raise ParamsError(f"{what} expects {key} to be a list; got {raw[key]!r}. Write {key} = [{raw[key]!r}].")


def _with_tuples(raw: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: tuple(value) if key in keys else value for key, value in raw.items()}


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


def _check(what: str, suite: Suite) -> None:
    """Refuse what cannot run, before anything has been started."""
    for key, least in (("threads", 1), ("repeats", 1), ("warmup", 1), ("seed", 0)):
        _whole(what, key, getattr(suite, key), least)
    for key in ("budget", "tolerance"):
        _positive(what, key, getattr(suite, key))
    if suite.walk_budget is not None:
        _positive(what, "walk_budget", suite.walk_budget)
    if not isinstance(suite.catalog, str):
        raise ParamsError(f"{what} expects catalog to be the name of a module; got {suite.catalog!r}. Leave it out.")
    known = list(methods(suite.catalog))
    _check_methods(what, suite.methods, known)
    if not suite.methods:
        raise ParamsError(f"{what} expects at least one method in methods; got none. Name some of {known}.")
    for case in suite.cases:
        _check_case(f"{what} case '{case.name}'", case, known)


def _check_case(what: str, case: Case, known: Sequence[str]) -> None:
    if not _FILE_SAFE.fullmatch(case.name):
        raise ParamsError(
            f"{what} expects a name of letters, digits, '.', '_' and '-', which files are named by; got {case.name!r}. "
            "Rename it and say more in its title."
        )
    for key in ("samples", "steps"):
        _whole(what, key, getattr(case, key), 1)
    for key in ("noisy", "budget", "walk_budget"):
        if getattr(case, key) is not None:
            _positive(what, key, getattr(case, key))
    for place, kind in enumerate(case.kinds):
        if kind not in list(Kind) or kind in case.kinds[:place]:
            raise ParamsError(
                f"{what} expects kinds to be some of {[str(one) for one in Kind]}, each once; got {kind!r}. Choose of these."
            )
    if not case.kinds:
        raise ParamsError(
            f"{what} expects kinds to name at least one; got none. Choose of {[str(one) for one in Kind]}."
        )
    for tau in case.taus:
        if not isinstance(tau, int | float) or isinstance(tau, bool) or not 0.0 <= tau <= 1.0:
            raise ParamsError(f"{what} expects taus to be flow times in [0, 1]; got {tau!r}. Give such numbers.")
    if case.axis is not None and case.axis not in AXES:
        raise ParamsError(f"{what} expects axis to be one of {list(AXES)}; got {case.axis!r}. Choose one of these.")
    _check_methods(what, case.methods, known)
    _check_inputs(what, case)
    if not isinstance(case.settings, dict):
        raise ParamsError(
            f"{what} expects settings to be a table; got {case.settings!r}. Write settings = {{ nx = 21 }}."
        )
    try:
        case.build()  # refuses problems and settings by name
    except SnapfmError as cause:
        raise type(cause)(f"{what}: {cause}") from cause


def _check_inputs(what: str, case: Case) -> None:
    projects = Kind.PROJECTION in case.kinds or Kind.CURVE in case.kinds
    if projects and not case.taus and case.noisy is None:
        raise ParamsError(
            f"{what} expects inputs, taus or noisy; got neither. Add `taus = [0.0, 0.5, 1.0]` and a model, or `noisy = 0.01`."
        )
    if case.taus and case.noisy is not None:
        raise ParamsError(f"{what} expects either taus or noisy; got both. Make two cases of it.")
    if case.needs_model and not case.model:
        raise ParamsError(
            f"{what} expects model, the shipped network that walks or gives inputs; got none. Add a line `model = …`."
        )


def _check_methods(what: str, names: Sequence[Any], known: Sequence[str]) -> None:
    for place, name in enumerate(names):
        if name not in known:
            raise UnknownName(f"{what} expects methods to be some of {list(known)}; got {name!r}. Choose of these.")
        if name in names[:place]:
            raise ParamsError(f"{what} expects methods to name each once; got {name!r} twice. Remove one.")


def _whole(what: str, key: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ParamsError(
            f"{what} expects {key} to be a whole number >= {least}; got {value!r}. Ask for at least {least}."
        )


def _positive(what: str, key: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ParamsError(f"{what} expects {key} to be a positive number; got {value!r}. Give one.")
