"""Estimate the time of Newton's iterations on GPUs that are not here: `python -m benchmarks.gpu_time`.

Counts the instructions and bytes of the PTX, executed on the CPU (tests.device.emulated) for samples of the six problems, and
multiplies them by assumed costs. Never run on hardware: take it for the right order of magnitude. Appends a record.

The entry `newton` alone: coordinates, substitutions and sums over slices are memory traffic, and there is no launch yet.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from tests.device.captured import newton_calls
from tests.device.emulated.machine import COUNTED
from tests.device.emulated.translate import KINDS
from tests.device.launches import solve

import snapfm
from benchmarks.before import PROBLEMS
from benchmarks.record import append, commit

BATCHES = (32, 1024, 8192)
NOISE = 0.3


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
    launch: float = 5e-6  # seconds


CARDS = (
    Card("L40S", 142, 2.5, 864e9, 16.0),
    Card("A100", 108, 1.41, 1.9e12, 1.0),
    Card("H100", 132, 1.75, 3.35e12, 0.5),
)


def main() -> None:
    """Count, estimate, print and record."""
    assumed, rows = Assumptions(), []
    for name in PROBLEMS:
        counted = _counted(name)
        if counted is None:
            print(f"{name:34} affine: no iterations")
            continue
        systems, counts, kept = counted
        for card in CARDS:
            seconds = [_seconds(card, assumed, systems * batch, counts, kept) for batch in BATCHES]
            rows.append({"problem": name, "card": card.name, "systems": systems, "counts": counts, "seconds": seconds})
            print(f"{name:34} {card.name}: " + "  ".join(f"{1e3 * one:8.3f} ms" for one in seconds))
    figures = {
        "commit": commit(),
        "batches": BATCHES,
        "assumed": asdict(assumed),
        "cards": [asdict(one) for one in CARDS],
    }
    print(f"recorded in {append('gpu_time', figures | {'rows': rows})}")


def _counted(name: str) -> tuple[int, dict[str, float], float] | None:
    """Return systems per sample, instructions per system (of its first thread) and bytes that a system keeps."""
    problem, generator = snapfm.problem(name), torch.Generator().manual_seed(0)
    fields, params = problem.truth(2, generator)
    u_hat = fields + NOISE * torch.randn(fields.shape, generator=generator, dtype=fields.dtype)
    project = snapfm.Projector(
        problem.laws, problem.grid.shape, {k: v[:1] for k, v in params.items()}, tolerance=1e-5
    )  # fmt: skip
    calls = newton_calls(project, u_hat, params)
    if not calls:
        return None
    lanes = len(calls[0].before)
    report = solve(calls[0], flag=COUNTED).report
    return lanes // 2, {kind: one / lanes for kind, one in zip(KINDS, report.counts)}, 8.0 * float(calls[0].at[-1])


def _seconds(card: Card, assumed: Assumptions, systems: int, counts: dict[str, float], kept: float) -> float:
    """Estimate one launch: whichever is longer, waiting in waves of warps or issuing all instructions; then memory and launch."""
    total = counts["loads"] + counts["stores"] + counts["floats"] + counts["others"]
    waiting = (
        assumed.issue * total
        + assumed.load / assumed.overlap * counts["loads"]
        + assumed.barrier * counts["barriers"]
        + assumed.shuffle * counts["shuffles"]
        + max(card.float_cycles, assumed.float_wait) * counts["floats"]
    )
    waves = -(-systems // (card.multiprocessors * assumed.warps))
    issuing = systems * max(total / assumed.issued, card.float_cycles * counts["floats"]) / card.multiprocessors
    cycles = max(waves * waiting, issuing)
    return cycles / (1e9 * card.gigahertz) + systems * kept / card.bytes_a_second + assumed.launch


if __name__ == "__main__":
    main()
