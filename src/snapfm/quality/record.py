"""The record of one cell, task × sampler, as it stands in records.jsonl: plain numbers and names, nothing of torch.

A number that is not finite is None: a sample that blew up has no score. Imports nothing of snapfm.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

TRUE_FIELDS, TRUE_MEAN = "true-fields", "true-mean"  # reference rows: answers that need no model
REFERENCES = {TRUE_FIELDS: "True fields", TRUE_MEAN: "True mean"}


class Status(StrEnum):
    """What became of a cell; only DONE has scores."""

    DONE = "DONE"
    DNF = "DNF"  # the wall budget was used up
    FAILED = "FAILED"  # the sampler raised
    ABSENT = "ABSENT"  # the task's model is not shipped


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
    status: Status
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
        """Place in the grid of cells."""
        return self.task, self.sampler

    def to_line(self) -> str:
        """Write the record as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_raw(cls, raw: dict[str, Any]) -> Cell:
        """Read a record back from what json gives."""
        given = {one.name: raw[one.name] for one in fields(cls) if one.name in raw}
        given["status"] = Status(given["status"])
        for name in ("mmse", "smse"):
            given[name] = None if given.get(name) is None else Interval(**given[name])
        given["laws"] = tuple(LawScore(**{**law, "error": Interval(**law["error"])}) for law in given.get("laws", ()))
        if given.get("texture") is not None:
            texture: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in given["texture"].items()
            }
            given["texture"] = TextureScore(**texture)
        return cls(**given)


def finite(value: float) -> float | None:
    """Give the number if it is one."""
    return value if math.isfinite(value) else None
