"""The figures of one demonstration, as kept in evidence.json, and the arrays its pictures show. Needs no torch and no model."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from snapfm.evidence.record import load

Array: TypeAlias = NDArray[np.float64]
Run = Literal["free", "lawful"]
RUNS: tuple[Run, Run] = ("free", "lawful")


@dataclass(frozen=True)
class Violation:
    """How far a batch is from a law: over all samples, and for the median sample."""

    largest: float
    typical: float


@dataclass(frozen=True)
class LawFigures:
    """One law, before and after: the free run, the lawful run (both float32), and the latter carried to float64."""

    name: str
    rows: int
    free: Violation
    lawful: Violation
    lawful64: Violation


@dataclass(frozen=True)
class Seconds:
    """Where the time of one run went."""

    velocity: float
    projection: float

    @property
    def total(self) -> float:
        """Both parts together."""
        return self.velocity + self.projection

    @property
    def projection_share(self) -> float:
        """The share of the time that the laws cost, in [0, 1]."""
        return self.projection / self.total if self.total > 0 else 0.0


@dataclass(frozen=True)
class Record:
    """What was run, on what, and what came out."""

    problem: str
    model: str
    weights: int
    shape: tuple[int, ...]
    count: int
    steps: int
    seed: int
    tolerance: float
    laws: tuple[LawFigures, ...]
    statuses: tuple[str, ...]
    stationarity: float
    free_seconds: Seconds
    lawful_seconds: Seconds
    threads: int
    versions: dict[str, str]

    @property
    def converged(self) -> int:
        """Number of samples that obey their laws to the tolerance."""
        return sum(status == "CONVERGED" for status in self.statuses)

    def seconds(self, run: Run) -> Seconds:
        """Where the time of a run went."""
        return self.free_seconds if run == "free" else self.lawful_seconds

    def to_json(self) -> str:
        """Write the record as indented JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Read a record written by `to_json`; every number comes back bit for bit."""
        return load(cls, json.loads(text))


@dataclass(frozen=True, eq=False)
class Evidence:
    """Fields (b, nx, nt) of both runs, what was asked of them, and the figures on record."""

    record: Record
    x: Array  # (nx,)
    t: Array  # (nt,)
    free: Array  # (b, nx, nt), made in float32
    lawful: Array  # (b, nx, nt), made in float32
    initial: Array  # (b, nx): the initial condition asked for
    free_mass: Array  # (b, nt)
    lawful_mass: Array  # (b, nt)
    target_mass: Array  # (b,)

    def fields(self, run: Run) -> Array:
        """The fields of a run."""
        return self.free if run == "free" else self.lawful

    def mass(self, run: Run) -> Array:
        """The masses of a run over time."""
        return self.free_mass if run == "free" else self.lawful_mass
