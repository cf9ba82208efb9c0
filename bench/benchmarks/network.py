"""What a velocity network costs: the plain module against its evaluator, in turn, on the same fields.

The paper-size network has its first weights, which cost as much as trained ones; the small ones are those shipped.
"""

from __future__ import annotations

import os
import statistics
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from snapfm_bench.flow import FNOVelocity, evaluator, preset, shipped

TAU = 0.3
# Preset or shipped model, shape of a field, samples, repeats.
CASES: tuple[tuple[str, tuple[int, ...], int, int], ...] = (
    ("paper", (100, 100), 32, 7),
    ("paper", (100, 100), 1, 15),
    ("heat-small", (100, 100), 32, 40),
    ("heat-small", (100, 100), 1, 100),
    ("navier-stokes-small", (16, 16, 50), 32, 40),
    ("navier-stokes-small", (16, 16, 50), 2, 100),
)


def run() -> dict[str, Any]:
    with torch.no_grad():
        rows = [_row(*case) for case in CASES]
    return {"tau": TAU, "rows": rows}


def _row(name: str, shape: tuple[int, ...], samples: int, repeats: int) -> dict[str, Any]:
    network = FNOVelocity(preset(name, shape)).eval() if name == "paper" else shipped(name)
    fast = evaluator(network)
    u = torch.randn(samples, *shape, generator=torch.Generator().manual_seed(0))
    began = perf_counter()
    found = fast(u, TAU)
    first = perf_counter() - began
    expected = network(u, TAU)
    seconds: dict[str, list[float]] = {"plain": [], "fast": []}
    for _ in range(repeats):
        seconds["plain"].append(_seconds(network, u))
        seconds["fast"].append(_seconds(fast, u))
    middle = {way: statistics.median(values) for way, values in seconds.items()}
    return {
        "network": name,
        "shape": shape,
        "samples": samples,
        "repeats": repeats,
        "load": os.getloadavg()[0],  # runnable threads of the last minute, these included: above 2, others worked too
        "first_call_seconds": first,  # arranges the weights and takes the memory
        "plain_seconds": middle["plain"],
        "fast_seconds": middle["fast"],
        "plain_smallest_seconds": min(seconds["plain"]),
        "fast_smallest_seconds": min(seconds["fast"]),
        "ratio": middle["plain"] / middle["fast"],
        "largest_answer": float(expected.abs().max()),
        "largest_difference": float((found - expected).abs().max()),
    }


def _seconds(velocity: Any, u: Tensor) -> float:
    began = perf_counter()
    velocity(u, TAU)
    return perf_counter() - began
