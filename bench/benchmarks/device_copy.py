"""What projecting fields of a device costs the host: copies of a batch, and projections of it as a whole and in pieces.

There is no device here. A copy from host memory to host memory stands for the host's share of a copy; what a bus and a driver
add is not in these figures. Pieces are those of snapfm.project.cpu_fallback, whose copies hide behind the work on others.
"""

from __future__ import annotations

from typing import Any

import torch

import snapfm
from benchmarks.batch import PROBLEMS, nearby
from benchmarks.record import median_seconds
from snapfm.project.cpu_fallback import pieces_of

SAMPLES = 256  # several pieces


def run() -> dict[str, Any]:
    return {"samples": SAMPLES, "problems": [_problem(name) for name in PROBLEMS]}


def _problem(name: str) -> dict[str, Any]:
    project, params, some = nearby(snapfm.problem(name), 32)
    times = SAMPLES // len(some)
    u_hat = some.repeat(times, *[1] * (some.dim() - 1)).float()
    given = {key: value.repeat(times, *[1] * (value.dim() - 1)) for key, value in params.items()}
    pieces = [(u_hat[piece], {key: value[piece] for key, value in given.items()}) for piece in pieces_of(SAMPLES)]
    memory = torch.empty_like(u_hat)
    return {
        "problem": name,
        "bytes": u_hat.nbytes,
        "pieces": len(pieces),
        "copy_seconds": median_seconds(lambda: memory.copy_(u_hat)),
        "move_seconds": median_seconds(lambda: project.move(u_hat, given)),
        "move_in_pieces_seconds": median_seconds(lambda: [project.move(*piece) for piece in pieces]),
        "project_seconds": median_seconds(lambda: project(u_hat, given)),
        "project_in_pieces_seconds": median_seconds(lambda: [project(*piece) for piece in pieces]),
    }
