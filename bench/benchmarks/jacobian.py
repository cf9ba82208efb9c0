"""Jacobian values of Burgers flux 10 for 32 samples: scalar program against vmap(jacrev), time and memory of one run."""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import Any

import torch

import snapfm
from benchmarks.record import seconds
from snapfm.compile import compile_laws

SAMPLES = 32
DENSE_SAMPLES = (32, 16, 8, 4, 2, 1)  # the largest that fits is taken
DENSE_LIMIT = 12_000_000_000  # bytes a dense try may take before it counts as not fitting


def run() -> dict[str, Any]:
    sparse = _apart("sparse", SAMPLES)
    dense = None
    for count in DENSE_SAMPLES:
        dense = _apart("dense", count)
        if dense is not None:
            break
    assert sparse is not None
    assert dense is not None
    per_sparse = {key: sparse[key] / SAMPLES for key in ("seconds", "bytes")}
    per_dense = {key: dense[key] / dense["samples"] for key in ("seconds", "bytes")}
    return {
        "samples": SAMPLES,
        "dense_samples": dense["samples"],
        "sparse_ms": 1e3 * sparse["seconds"],
        "dense_ms": 1e3 * dense["seconds"],
        "sparse_mb": sparse["bytes"] / 1e6,
        "dense_mb": dense["bytes"] / 1e6,
        "faster": per_dense["seconds"] / per_sparse["seconds"],
        "smaller": per_dense["bytes"] / per_sparse["bytes"],
    }


def measure(way: str, count: int) -> dict[str, float]:
    problem = snapfm.problem("burgers-ic-mass-flux", flux_steps=10)
    generator = torch.Generator().manual_seed(0)
    params = {name: value.expand(count, *value.shape[1:]) for name, value in problem.params(count, generator).items()}
    laws = compile_laws(problem.laws, problem.grid.shape, params)
    u = torch.rand(count, *problem.grid.shape, dtype=torch.float64, generator=generator)

    def residual(field: torch.Tensor, params: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.cat([law.graph(field, params) for law in laws.laws])

    if way == "sparse":

        def call() -> object:
            return laws.jacobian(u, params)

    else:
        dense = torch.func.vmap(torch.func.jacrev(residual))

        def call() -> object:
            return dense(u, params)

    first = {name: value[:1] for name, value in params.items()}
    laws.jacobian(u[:1], first)  # builds the program and compiles what runs it
    torch.func.vmap(torch.func.jacrev(torch.sin))(u[:1, :2, 0])  # loads torch's derivative machinery
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": seconds(call, 10 if way == "sparse" else 1),
        "bytes": 1024.0 * max(peak - before, 1),
        "samples": count,
    }


def _apart(way: str, count: int) -> dict[str, float] | None:
    """Measure in a process of its own, so that peak memory is of this way alone; None if it does not fit."""
    program = (
        f"import resource, json; resource.setrlimit(resource.RLIMIT_AS, ({DENSE_LIMIT}, {DENSE_LIMIT}));"
        f"from benchmarks.jacobian import measure; print(json.dumps(measure({way!r}, {count})))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    import json

    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found
