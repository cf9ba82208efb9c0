"""What `run` asks of a child process, and the names of the files that the child leaves."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

PREPARED = "prepared.json"  # seconds of preparations; the figures of a level are in LEVEL.json


@dataclass(frozen=True)
class Job:
    """One method on one case at some levels; without a case kernels are compiled and nothing else is done."""

    folder: str
    method: str
    case: str | None
    levels: tuple[str, ...]
    timeout: float  # seconds of each level; preparing counts to the first
    memory: int  # bytes of address space

    def to_line(self) -> str:
        """Write the job as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, line: str) -> Job:
        """Read it again."""
        raw = json.loads(line)
        return cls(**{**raw, "levels": tuple(raw["levels"])})
