"""A suite: which methods run on which cases, how often, and how long each may take. Read from a small TOML file.

Knows the problems by name and the methods by theirs; runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from snapfm.bench.methods import CATALOG, methods
from snapfm.bench.record import Kind
from snapfm.errors import ParamsError, SnapfmError, UnknownName
from snapfm.problems import Problem, problem
from snapfm.suitefile import Shelf, built, check_positive, check_whole, named, tables

AXES = ("rows", "samples", "unknowns")

_SHELF = Shelf("snapfm.bench", "snapfm bench")
_LISTS = ("kinds", "taus", "methods")  # of a case
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
        cases = tuple(Case(**_with_tuples(case, *_LISTS)) for case in raw["cases"])
        return cls(**{**_with_tuples(raw, "methods"), "cases": cases})


def suite_names() -> list[str]:
    """List the suites shipped with the package."""
    return _SHELF.names()


def load_suite(name: str) -> Suite:
    """Read a shipped suite by name, or any other by the path of its TOML file, which may extend a shipped one."""
    name, raw = _SHELF.find(name)
    base = raw.pop("extends", None)
    if base is None:
        return _built_suite(name, raw)
    if base not in suite_names():
        raise UnknownName(
            f"suite '{name}' expects extends to be one of {suite_names()}; got {base!r}. Name a shipped suite."
        )
    return _built_suite(base, {**_SHELF.shipped(base), **raw})


def _built_suite(name: str, raw: Mapping[str, Any]) -> Suite:
    what = f"suite '{name}'"
    cases = tuple(
        named(Case, f"{what} case '{key}'", "cases", key, _listed(f"{what} case '{key}'", value, *_LISTS))
        for key, value in tables(what, raw, "cases").items()
    )
    given = _listed(what, {"name": name, "title": name, **raw, "cases": cases}, "methods")
    suite = built(Suite, what, given)
    _check(what, suite)
    return suite


def _listed(what: str, raw: Any, *keys: str) -> Any:
    """Give a table with tuples for its lists; what is no table is left to be refused."""
    if not isinstance(raw, dict):
        return raw
    for key in keys:
        if key in raw and not isinstance(raw[key], list):
            raise ParamsError(f"{what} expects {key} to be a list; got {raw[key]!r}. Write {key} = [{raw[key]!r}].")
    return _with_tuples(raw, *keys)


def _with_tuples(raw: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: tuple(value) if key in keys else value for key, value in raw.items()}


def _check(what: str, suite: Suite) -> None:
    """Refuse what cannot run, before anything has been started."""
    for key, least in (("threads", 1), ("repeats", 1), ("warmup", 1), ("seed", 0)):
        check_whole(what, key, getattr(suite, key), least)
    for key in ("budget", "tolerance"):
        check_positive(what, key, getattr(suite, key))
    if suite.walk_budget is not None:
        check_positive(what, "walk_budget", suite.walk_budget)
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
        check_whole(what, key, getattr(case, key), 1)
    for key in ("noisy", "budget", "walk_budget"):
        if getattr(case, key) is not None:
            check_positive(what, key, getattr(case, key))
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
