"""Affine projection of 32 fields of 100×100 (heat-ic-mass), as a multiple of copying the same float64 batch."""

from __future__ import annotations

from statistics import median
from typing import Any

import torch

import snapfm
from benchmarks.record import seconds

ROUNDS = 9  # the two are timed in turns, so that a slow spell of the machine hits both


def run() -> dict[str, Any]:
    problem = snapfm.problem("heat-ic-mass")
    generator = torch.Generator().manual_seed(0)
    params = problem.params(32, generator)
    project = snapfm.Projector(problem.laws, shape=problem.grid.shape, params=params)
    u_hat = torch.randn(32, *problem.grid.shape, dtype=torch.float64, generator=generator)
    result = project(u_hat, params).raise_for_status()
    copies, projections = [], []
    for _ in range(ROUNDS):
        copies.append(seconds(u_hat.clone, 100))
        projections.append(seconds(lambda: project(u_hat, params), 30))
    return {
        "samples": 32,
        "shape": list(problem.grid.shape),
        "copy_ms": 1e3 * median(copies),
        "projection_ms": 1e3 * median(projections),
        "copies": median(p / c for p, c in zip(projections, copies)),
        "violation": float(result.violation.max()),
        "stationarity": float(result.stationarity.max()),
    }
