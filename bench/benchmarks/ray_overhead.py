"""Throughput of two Ray workers against two plain processes (`--part K/2`) on the same samples, on one machine.

Samples a second between the first and the last finished block, so that neither the start of Ray nor that of Python counts; both
take turns, and medians are recorded, with the wall time from start to end beside them. Wants a quiet machine, and snapfm[ray].
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

COUNT, BATCH, ROUNDS = 1280, 32, 5
COMMAND = ("sample", "burgers-ic-mass-flux", "--batch", str(BATCH), "--steps", "5", "--threads", "1")


def run(count: int = COUNT, rounds: int = ROUNDS) -> dict[str, Any]:
    found: dict[str, list[tuple[float, float]]] = {"processes": [], "ray": []}
    load = os.getloadavg()[0]
    for _ in range(rounds):
        found["processes"].append(_timed(count, [("--part", "1/2"), ("--part", "2/2")]))
        found["ray"].append(_timed(count, [("--engine", "ray", "--workers", "2")]))
    rates = {name: median(rate for rate, _ in turns) for name, turns in found.items()}
    return {
        "command": f"{' '.join(COMMAND)} --count {count}", "rounds": rounds, "load": load, "samples_a_second": rates,
        "wall_seconds": {name: median(wall for _, wall in turns) for name, turns in found.items()},
        "all_rates": {name: [rate for rate, _ in turns] for name, turns in found.items()},
        "ratio": rates["ray"] / rates["processes"],
    }  # fmt: skip


def _timed(count: int, calls: list[tuple[str, ...]]) -> tuple[float, float]:
    """Run some commands at once; return samples a second between the first and the last block, and the wall time."""
    with tempfile.TemporaryDirectory() as folder:
        out, began = Path(folder, "a.zarr"), time.perf_counter()
        fixed = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "snapfm", *COMMAND, "--count", str(count), "--out", str(out), *more],
                env={**os.environ, **fixed}, stdout=subprocess.DEVNULL,
            )
            for more in calls
        ]  # fmt: skip
        assert [one.wait() for one in started] == [0] * len(started)
        wall = time.perf_counter() - began
        marks = sorted(file.stat().st_mtime for file in (out / "sample" / "c").iterdir())
        return (len(marks) - 1) * BATCH / (marks[-1] - marks[0]), wall
