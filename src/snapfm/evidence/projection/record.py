"""The record of one cell: one method on one case, in one process. Plain values; a number that is not finite is None."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from snapfm.evidence.judge import Verdict
from snapfm.evidence.record import State


class Kind(StrEnum):
    """What a cell does."""

    PROJECTION = "projection"  # project recorded inputs, several times over
    WALK = "walk"  # a whole run of constrained sampling, network included
    CURVE = "curve"  # the same inputs with more and more iterations


@dataclass(frozen=True)
class Turn:
    """One input of a projection cell: hot seconds of every repeat, and the verdict."""

    input: str  # "tau 0.50", "truth + noise", …
    seconds: tuple[float, ...]  # of whole calls on the whole batch
    verdict: Verdict


@dataclass(frozen=True)
class Point:
    """One point of a convergence curve: after so many iterations, the median over samples."""

    iterations: int
    seconds: float
    violation: float | None
    stationarity: float | None


@dataclass(frozen=True)
class Cell:
    """One method on one case."""

    case: str
    method: str
    kind: Kind
    state: State
    why: str | None = None  # of a cell without times: one sentence
    problem: str = ""
    samples: int = 0
    unknowns: int = 0
    rows: int = 0
    tolerance: float = 0.0
    cold: dict[str, float] = field(default_factory=dict)  # seconds: structure, build, first_call
    turns: tuple[Turn, ...] = ()  # of a projection
    steps: int | None = None  # of a walk
    steps_done: int | None = None  # of them; fewer than steps in a walk that did not end
    walk: dict[str, float] = field(default_factory=dict)  # seconds: velocity, projection, total
    verdict: Verdict | None = None  # of a walk: its last projection
    curve: tuple[Point, ...] = ()
    phases: dict[str, float] = field(default_factory=dict)  # hot seconds of one call by phase, where a method can tell
    # Resident memory of the cell's process at its highest, above what it held before the structure was built; not its children's.
    peak_bytes: int | None = None
    threads: int = 0
    load: float | None = None  # runnable threads of the last minute before the cell, by the system
    seconds: float = 0.0  # of the whole cell
    seed: int = 0
    inputs: str | None = None  # digest of fields and params, the same for all methods of a case
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """Identify the cell within its suite."""
        return self.case, self.method, str(self.kind)

    @property
    def verdicts(self) -> list[Verdict]:
        """List all verdicts on its answers."""
        return [turn.verdict for turn in self.turns] + ([self.verdict] if self.verdict is not None else [])
