"""The record of one cell, task × sampler: plain numbers and names. A number that is not finite is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from snapfm.evidence.record import State

TRUE_FIELDS, TRUE_MEAN = "true-fields", "true-mean"  # reference rows: answers that need no model
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


@dataclass(frozen=True)
class Cell:
    """One sampler on one task."""

    task: str
    sampler: str
    status: State
    samples: int
    steps: int | None = None  # of the flow; None for reference rows
    steps_done: int | None = None
    error: str | None = None  # of a FAILED cell, or why ABSENT
    mmse: Interval | None = None
    smse: Interval | None = None
    laws: tuple[LawScore, ...] = ()
    finite: int | None = None  # samples without NaN and infinity
    converged: int | None = None  # samples with a certificate; None where the sampler gives none
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


Cells = Mapping[tuple[str, str], Cell]
