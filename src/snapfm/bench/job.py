"""The job of one process: what it is to do and where it leaves its files. Plain JSON, sent on its standard input."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from snapfm.bench.record import Kind
from snapfm.bench.suite import Suite

# Files of a job's folder.
RECORD = "record.json"
PROGRESS = "progress.json"
FIELDS = "fields.npz"
INPUTS = "inputs.npz"
ERRORS = "stderr.txt"


@dataclass(frozen=True)
class Job:
    """One cell; or, without a method, the inputs of a case."""

    suite: Suite
    case: str
    method: str | None
    kind: Kind | None
    folder: Path  # for what it writes
    inputs: Path | None = None  # what it reads
    digest: str = ""

    def to_line(self) -> str:
        """Write the job as one line of JSON."""
        raw = asdict(self) | {"folder": str(self.folder), "inputs": self.inputs and str(self.inputs)}
        return json.dumps(raw) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Job:
        """Read a job back."""
        raw: dict[str, Any] = json.loads(line)
        return cls(
            suite=Suite.from_raw(raw["suite"]),
            case=raw["case"],
            method=raw["method"],
            kind=None if raw["kind"] is None else Kind(raw["kind"]),
            folder=Path(raw["folder"]),
            inputs=None if raw["inputs"] is None else Path(raw["inputs"]),
            digest=raw["digest"],
        )


@dataclass(frozen=True)
class Progress:
    """How far a cell is, for the screen and for a record of one that is stopped."""

    doing: str = "starting"
    steps_done: int | None = None
    steps: int | None = None
    cold: dict[str, float] | None = None


def write_progress(folder: Path, progress: Progress) -> None:
    """Leave word of how far a cell is, whole or not at all."""
    partial = folder / f".{PROGRESS}"
    partial.write_text(json.dumps(asdict(progress)), encoding="utf-8")
    os.replace(partial, folder / PROGRESS)


def read_progress(folder: Path) -> Progress:
    """Read how far a cell is."""
    try:
        return Progress(**json.loads((folder / PROGRESS).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Progress()
