"""The record of one cell of a benchmark, as it stands in records.jsonl: plain numbers and names, nothing of torch.

A cell is one method on one case, in one process. A number that is not finite is None. `steps_done` says how far a walk came,
`inputs` names the arrays all methods of a case were given. Imports nothing of snapfm.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """What became of a cell; only DONE has times."""

    DONE = "DONE"
    DNF = "DNF"  # the wall budget was used up
    FAILED = "FAILED"  # the method raised, or its process died
    ABSENT = "ABSENT"  # the package behind it is not installed
    REFUSED = "REFUSED"  # the method cannot take these laws


class Kind(StrEnum):
    """What a cell does."""

    PROJECTION = "projection"  # project recorded inputs, several times over
    WALK = "walk"  # a whole run of constrained sampling, network included
    CURVE = "curve"  # the same inputs with more and more iterations


@dataclass(frozen=True)
class LawError:
    """One law, by the judge: mean over samples of ‖R‖₂ (math.md, eq. ce), and the worst single row of all samples."""

    law: str
    error: float | None
    worst_row: float | None


@dataclass(frozen=True)
class Verdict:
    """What the answers are worth, by the float64 judge; of all samples, whatever the method says of them."""

    samples: int
    claimed: int  # samples the method calls converged
    converged: int  # those of them that hold before the judge
    lawful: int  # samples within the tolerance, nearest or not
    violation: float | None  # worst of all samples
    stationarity: float | None  # worst of the samples that have multipliers
    distances: tuple[float | None, ...]  # ‖u − û‖₂ of every sample; None where the answer is not lawful
    iterations_median: float | None
    iterations_worst: int | None
    laws: tuple[LawError, ...] = ()
    # What the distances would be, to first order, if every answer kept its laws exactly; None where it does not hold. Records
    # from before there were these have none.
    exact_distances: tuple[float | None, ...] = ()


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
        """Place in the grid of cells."""
        return self.case, self.method, str(self.kind)

    def to_line(self) -> str:
        """Write the record as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_raw(cls, raw: dict[str, Any]) -> Cell:
        """Read a record back from what json gives."""
        given = {one.name: raw[one.name] for one in fields(cls) if one.name in raw}
        given["kind"], given["state"] = Kind(given["kind"]), State(given["state"])
        given["turns"] = tuple(
            Turn(turn["input"], tuple(turn["seconds"]), _verdict(turn["verdict"])) for turn in given.get("turns", ())
        )
        given["verdict"] = None if given.get("verdict") is None else _verdict(given["verdict"])
        given["curve"] = tuple(Point(**point) for point in given.get("curve", ()))
        return cls(**given)


def _verdict(raw: dict[str, Any]) -> Verdict:
    laws = tuple(LawError(**law) for law in raw.get("laws", ()))
    exact = tuple(raw.get("exact_distances", ()))
    return Verdict(**{**raw, "laws": laws, "distances": tuple(raw["distances"]), "exact_distances": exact})
