"""Estimate the time of flow steps on GPUs that are not here: `python -m benchmarks.gpu_time`.

Counts the instructions and bytes of every launch of a projection, executed on the CPU (tests.device) for samples of the six
problems at their full size, and multiplies them by assumed costs. Never run on hardware: take it for the right order of
magnitude. Appends a record; `table()` writes it for docs/gpu.md.

A step is that of a flow (without certificate) from a cold start: a warm one takes fewer iterations.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from tests.device.compared import LIMIT, Given
from tests.device.emulated.machine import COUNTED
from tests.device.emulated.translate import KINDS
from tests.device.launches import Device, Launch
from tests.device.step import Step

import snapfm
from benchmarks.before import PROBLEMS
from benchmarks.record import append, commit, latest
from snapfm.solve.budget import enough

BATCHES = (32, 1024, 8192)
SAMPLES, NOISE, TOLERANCE = 2, 0.3, 1e-5


@dataclass(frozen=True)
class Card:
    """A GPU, by its data sheet."""

    name: str
    multiprocessors: int
    gigahertz: float
    bytes_a_second: float
    float_cycles: float  # of one multiprocessor for an instruction of a warp in float64


@dataclass(frozen=True)
class Assumptions:
    """Costs of a warp's instructions, in cycles; from published microbenchmarks of these generations, rounded."""

    issue: float = 2.5  # between dependent instructions of one warp that wait for nothing else
    load: float = 35.0  # until a load from the nearest caches arrives, of which some overlap
    overlap: float = 1.5
    barrier: float = 25.0
    shuffle: float = 12.0
    float_wait: float = 8.0  # until a result in float64 is there
    warps: int = 8  # resident on a multiprocessor, with 255 registers a thread
    issued: float = 2.0  # instructions of different warps a cycle that a multiprocessor can really start
    launch: float = 4e-6  # seconds of a launch, of an entry or of an operation of torch in between


@dataclass(frozen=True)
class Launched:
    """What one launch does for a sample: teams, instructions of a team's first thread, bytes of all its arrays."""

    entry: str
    teams: float
    counts: dict[str, float]
    bytes: float


CARDS = (
    Card("L40S", 142, 2.5, 864e9, 16.0),
    Card("A100", 108, 1.41, 1.9e12, 1.0),
    Card("H100", 132, 1.75, 3.35e12, 0.5),
)


def main() -> None:
    """Count, estimate, print and record."""
    assumed, rows = Assumptions(), []
    for name in PROBLEMS:
        launched, between, ended = _counted(name)
        for card in CARDS:
            by_entry: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(BATCHES))
            for one in launched:
                for k, batch in enumerate(BATCHES):
                    by_entry[one.entry][k] += _seconds(card, assumed, batch, one)
            around = between * assumed.launch
            seconds = [around + sum(one[k] for one in by_entry.values()) for k in range(len(BATCHES))]
            row = {"problem": name, "card": card.name, "launches": len(launched), "operations_between": between} | ended
            rows.append(row | {"seconds": seconds, "by_entry": dict(by_entry)})
            print(f"{name:34} {card.name}: " + "  ".join(f"{1e3 * one:8.3f} ms" for one in seconds), flush=True)
    figures = {
        "commit": commit(), "batches": BATCHES, "assumed": asdict(assumed), "cards": [asdict(one) for one in CARDS],
        "samples": SAMPLES, "noise": NOISE, "tolerance": TOLERANCE, "rows": rows,
    }  # fmt: skip
    print(f"recorded in {append('gpu_time', figures)}")
    print(table())


def table() -> str:
    """Write the newest record as the table of docs/gpu.md, in milliseconds."""
    record = latest("gpu_time")
    cards = [card["name"] for card in record["cards"]]
    lines = ["| problem | launches | " + " | ".join(cards) + " |", "|---|---|" + "---|" * len(cards)]
    by_problem: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in record["rows"]:
        by_problem[row["problem"]].append(row)
    for name, rows in by_problem.items():
        figures = [" / ".join(f"{1e3 * one:.2g}" for one in row["seconds"]) for row in rows]
        lines.append(
            f"| {name} | {rows[0]['launches']} + {rows[0]['operations_between']} | " + " | ".join(figures) + " |"
        )
    return "\n".join(lines)


def _counted(name: str) -> tuple[list[Launched], int, dict[str, Any]]:
    """Project samples of a problem on the emulated device; return its launches, the operations between them, and how it ended.

    That is, the status and iterations of every sample, and the instructions that a team needs for one in `newton`.
    """
    problem, generator = snapfm.problem(name), torch.Generator().manual_seed(0)
    fields, params = problem.truth(SAMPLES, generator)
    u_hat = fields + NOISE * torch.randn(fields.shape, generator=generator, dtype=fields.dtype)
    given, device = Given.of(problem.laws, u_hat, params, TOLERANCE), Device(flag=COUNTED, keeps=True)
    assert given is not None
    with torch.no_grad():
        inside = given.project.inside_params(params, SAMPLES)
        field = u_hat.reshape(SAMPLES, -1).numpy().astype(np.float64)
        step = Step(given.project.method, inside, field, enough(TOLERANCE), LIMIT, device)
        found = step.project(certify=False)
    status = [snapfm.Status(one).name for one in found.status]
    launched = [_launched(one) for one in device.launches]
    return launched, step.between, {
        "status": status, "iterations": found.iterations.tolist(),
        "newton": [one.counts for one in launched if one.entry == "newton"],
    }  # fmt: skip


def _launched(one: Launch) -> Launched:
    counts = {kind: count / one.count for kind, count in zip(KINDS, one.report.counts)}
    touched = sum(array.nbytes for array in one.after) / SAMPLES
    return Launched(one.entry, one.count / SAMPLES, counts, touched)


def _seconds(card: Card, assumed: Assumptions, batch: int, one: Launched) -> float:
    """Estimate a launch: whichever is longer, waiting in waves of warps or issuing all instructions; then memory and launch."""
    counts, teams = one.counts, one.teams * batch
    total = counts["loads"] + counts["stores"] + counts["floats"] + counts["others"]
    waiting = (
        assumed.issue * total
        + assumed.load / assumed.overlap * counts["loads"]
        + assumed.barrier * counts["barriers"]
        + assumed.shuffle * counts["shuffles"]
        + max(card.float_cycles, assumed.float_wait) * counts["floats"]
    )
    waves = -(-teams // (card.multiprocessors * assumed.warps))
    issuing = teams * max(total / assumed.issued, card.float_cycles * counts["floats"]) / card.multiprocessors
    cycles = max(waves * waiting, issuing)
    return cycles / (1e9 * card.gigahertz) + batch * one.bytes / card.bytes_a_second + assumed.launch


if __name__ == "__main__":
    main()
