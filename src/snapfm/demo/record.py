"""The figures of one demonstration, as kept in evidence.json: documents quote this record, never a typed number.

Plain numbers and names only; imports nothing of snapfm.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


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
        """The part of the time that the laws cost, in [0, 1]."""
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

    def to_json(self) -> str:
        """Write the record as indented JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Read a record written by `to_json`; every number comes back bit for bit."""
        raw: dict[str, Any] = json.loads(text)
        raw["laws"] = tuple(_law(law) for law in raw["laws"])
        for name in ("shape", "statuses"):
            raw[name] = tuple(raw[name])
        for name in ("free_seconds", "lawful_seconds"):
            raw[name] = Seconds(**raw[name])
        return cls(**raw)


def _law(raw: dict[str, Any]) -> LawFigures:
    judged = {name: Violation(**raw[name]) for name in ("free", "lawful", "lawful64")}
    return LawFigures(name=raw["name"], rows=raw["rows"], **judged)
