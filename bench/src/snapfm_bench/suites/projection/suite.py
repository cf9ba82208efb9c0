"""A suite of the speed benchmark: which methods run on which cases, how often, how long each may take; and its records.

The record of one cell is about one method on one case, in one process. It holds plain values; a number that is not finite is
None.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from snapfm.errors import ParamsError, SnapfmError, UnknownName
from snapfm_bench.judge import Verdict
from snapfm_bench.problems import Problem, problem
from snapfm_bench.record import CellState
from snapfm_bench.suites.suite import Seconds, SuiteRegistry, at_least, positive

if TYPE_CHECKING:
    from snapfm_bench.peers.catalog import PeerMethod

CATALOG = "snapfm_bench.peers.catalog"
OURS = "ours"
TUNED = "ipopt-tuned"  # the rival that every headline names
AXES = ("rows", "samples", "unknowns")
LAST = "tau 1.00"  # the input of the last projection of a walk, where most methods have nothing left to do

_FILE_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Kind(StrEnum):
    """What a cell does."""

    PROJECTION = "projection"  # project recorded inputs, several times over
    WALK = "walk"  # a whole run of constrained sampling, network included
    CURVE = "curve"  # the same inputs with more and more iterations


@dataclass(frozen=True)
class MethodTurn:
    """One input of a projection cell: hot seconds of every repeat, and the verdict."""

    input: str  # "tau 0.50", "truth + noise", …
    seconds: tuple[float, ...]  # of whole calls on the whole batch
    verdict: Verdict


@dataclass(frozen=True)
class SuitePoint:
    """One point of a convergence curve: after so many iterations, the median over samples."""

    iterations: int
    seconds: float
    violation: float | None
    stationarity: float | None


@dataclass(frozen=True)
class ProjectionCell:
    """One method on one case."""

    case: str
    method: str
    kind: Kind
    state: CellState
    why: str | None = None  # of a cell without times: one sentence
    problem: str = ""
    samples: int = 0
    unknowns: int = 0
    rows: int = 0
    tolerance: float = 0.0
    cold: dict[str, float] = field(default_factory=dict)  # seconds: structure, build, first_call
    turns: tuple[MethodTurn, ...] = ()  # of a projection
    steps: int | None = None  # of a walk
    steps_done: int | None = None  # of them; fewer than steps in a walk that did not end
    walk: dict[str, float] = field(default_factory=dict)  # seconds: velocity, projection, total; of the median walk
    walks: tuple[float, ...] = ()  # total seconds of every repeat
    verdict: Verdict | None = None  # of a walk: its last projection
    curve: tuple[SuitePoint, ...] = ()
    phases: dict[str, float] = field(default_factory=dict)  # hot seconds of one call by phase, if the method has them
    # Resident memory of the cell's process at its highest, above what it held before the structure was built; not its children's.
    peak_bytes: int | None = None
    threads: int = 0
    load: float | None = None  # runnable threads of the last minute before the cell, by the system
    seconds: float = 0.0  # of the whole cell
    seed: int = 0
    inputs: str | None = None  # digest of fields and params, the same for all methods of a case
    suite: str = ""  # digest of the suite it was run for
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """Identify the cell within its suite."""
        return self.case, self.method, str(self.kind)

    @property
    def totals(self) -> tuple[float, ...]:
        """Return the total seconds of every walk; older records have one."""
        return self.walks or (self.walk["total"],)

    @property
    def verdicts(self) -> list[Verdict]:
        """List all verdicts on its answers."""
        return [turn.verdict for turn in self.turns] + ([self.verdict] if self.verdict is not None else [])


def methods(catalog: str = CATALOG) -> Mapping[str, PeerMethod]:
    """Return the methods by name: `METHODS` of a module, shaped as that of the shipped catalog."""
    try:
        found: Mapping[str, PeerMethod] = importlib.import_module(catalog).METHODS
    except (ModuleNotFoundError, AttributeError) as cause:
        raise UnknownName(
            f"catalog = {catalog!r} expects a module with METHODS, a table of methods by name; got none ({cause}). Leave "
            f"the key out for {CATALOG!r}, or put the module on PYTHONPATH."
        ) from cause
    return found


@dataclass(frozen=True)
class Case:
    """A problem with its settings, what is done with it, and where its inputs come from.

    Inputs are the outputs of the shipped network `model` at the flow times `taus`, or projected truth with noise of size `noisy`.
    """

    name: str
    problem: str
    title: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    samples: Annotated[int, at_least(1)] = 32
    kinds: tuple[str, ...] = (str(Kind.PROJECTION),)
    taus: tuple[float, ...] = ()
    noisy: Annotated[float, positive] | None = None
    model: str | None = None
    steps: Annotated[int, at_least(1)] = 100  # of the flow, in walks and where inputs are recorded
    axis: str | None = None  # what grows from case to case
    published: str | None = None  # the problem of the published tables it is compared with
    methods: tuple[str, ...] = ()  # none: the suite's
    projection_methods: tuple[str, ...] = ()  # those of its projections alone
    budget: Seconds | None = None  # None: the suite's
    walk_budget: Seconds | None = None

    def build(self) -> Problem:
        """Build the problem."""
        return problem(self.problem, **self.settings)

    @property
    def needs_model(self) -> bool:
        """Whether inputs or walks need the network."""
        return bool(self.taus) or Kind.WALK in self.kinds


@dataclass(frozen=True)
class ProjectionSuite:
    """Everything that determines the records of a run, except models and machine."""

    name: str
    title: str
    methods: tuple[str, ...]
    cases: tuple[Case, ...]
    walk_methods: tuple[str, ...] = ()  # those that walk; none: all of them
    curve_methods: tuple[str, ...] = ()
    threads: Annotated[int, at_least(1)] = 2
    repeats: Annotated[int, at_least(1)] = 5  # hot calls on each input
    walk_repeats: Annotated[int, at_least(1)] = 1  # walks of a method that is fast enough for more than one
    warmup: Annotated[int, at_least(1)] = 1  # calls before them, the first of which is judged
    budget: Seconds = 60.0  # wall seconds of one cell
    walk_budget: Seconds | None = None  # of one that walks; None: the same
    tolerance: Annotated[float, positive] = 1e-5
    seed: Annotated[int, at_least(0)] = 0
    catalog: str = CATALOG
    options: Mapping[str, Any] = field(default_factory=dict)  # in place of a method's own, where it takes options

    def methods_of(self, case: Case, kind: Kind) -> tuple[str, ...]:
        """Return the methods whose cells of a kind run on a case; those of the case come first."""
        fewer = {Kind.WALK: self.walk_methods, Kind.CURVE: self.curve_methods}.get(kind, ())
        own = case.projection_methods if kind is Kind.PROJECTION else ()
        return own or case.methods or fewer or self.methods

    def names(self) -> list[str]:
        """Return the names of all its methods, each once."""
        return list(dict.fromkeys(name for case in self.cases for kind in Kind for name in self.methods_of(case, kind)))

    def budget_of(self, case: Case, kind: Kind) -> float:
        """Return the wall seconds of a cell; those of the case come first."""
        walk = (case.walk_budget or self.walk_budget) if kind is Kind.WALK else None
        return walk or case.budget or self.budget

    def case(self, name: str) -> Case:
        """Return a case by name."""
        return next(case for case in self.cases if case.name == name)


def _check(what: str, suite: ProjectionSuite) -> None:
    if not isinstance(suite.options, dict):
        raise ParamsError(
            f'{what} expects options to be a table; got {suite.options!r}. Write options = {{ "ipopt.tol" = 1e-6 }}.'
        )
    if not isinstance(suite.catalog, str):
        raise ParamsError(f"{what} expects catalog to be the name of a module; got {suite.catalog!r}. Leave it out.")
    known = list(methods(suite.catalog))
    for key in ("methods", "walk_methods", "curve_methods"):
        _check_some(what, key, getattr(suite, key), known, UnknownName)
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
    _check_some(what, "kinds", case.kinds, list(map(str, Kind)), ParamsError)
    if not case.kinds:
        raise ParamsError(f"{what} expects kinds to name at least one; got none. Choose of {list(map(str, Kind))}.")
    for tau in case.taus:
        if not isinstance(tau, int | float) or isinstance(tau, bool) or not 0.0 <= tau <= 1.0:
            raise ParamsError(f"{what} expects taus to be flow times in [0, 1]; got {tau!r}. Give such numbers.")
    if case.axis is not None and case.axis not in AXES:
        raise ParamsError(f"{what} expects axis to be one of {list(AXES)}; got {case.axis!r}. Choose one of these.")
    for key in ("methods", "projection_methods"):
        _check_some(what, key, getattr(case, key), known, UnknownName)
    if case.kinds != (Kind.WALK,) and not case.taus and case.noisy is None:
        raise ParamsError(
            f"{what} expects inputs, taus or noisy; got neither. Add `taus = [0.0, 0.5, 1.0]` and a model, or `noisy = 0.01`."
        )
    if case.taus and case.noisy is not None:
        raise ParamsError(f"{what} expects either taus or noisy; got both. Make two cases of it.")
    if case.needs_model and not case.model:
        raise ParamsError(
            f"{what} expects model, the shipped network that walks or gives inputs; got none. Add a line `model = …`."
        )
    if not isinstance(case.settings, dict):
        raise ParamsError(
            f"{what} expects settings to be a table; got {case.settings!r}. Write settings = {{ nx = 21 }}."
        )
    try:
        case.build()  # refuses problems and settings by name
    except SnapfmError as cause:
        raise type(cause)(f"{what}: {cause}") from cause


def _check_some(what: str, key: str, names: Sequence[Any], known: Sequence[str], unknown: type[SnapfmError]) -> None:
    """Refuse names that are unknown or repeated."""
    for place, name in enumerate(names):
        if name not in known:
            raise unknown(f"{what} expects {key} to be some of {list(known)}; got {name!r}. Choose of these.")
        if name in names[:place]:
            raise ParamsError(f"{what} expects {key} to name each once; got {name!r} twice. Remove one.")


_SHELF = SuiteRegistry("snapfm_bench.suites.projection", "snapfm bench", ProjectionSuite, _check)
suite_names, load_suite = _SHELF.names, _SHELF.load
