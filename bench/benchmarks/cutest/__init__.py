"""CUTEst: project the start points of its constrained problems onto their feasible sets, ours against Ipopt.

`python -m benchmarks cutest` runs what bench/runs/cutest/outcomes.jsonl lacks, and counts. `python -m benchmarks.cutest`
runs a part of it: every so many problems, one of several shares, or what fits a slice of time, and prints the table.
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

from benchmarks.cutest.battery import outcomes, run_all
from benchmarks.cutest.problems import names
from benchmarks.cutest.table import count

OUTCOMES = Path(__file__).parents[2] / "runs" / "cutest" / "outcomes.jsonl"
SECONDS = 10.0  # budget of one start


def run(
    every: int = 1,
    seconds: float = SECONDS,
    file: Path = OUTCOMES,
    share: int = 0,
    shares: int = 1,
    within: float = inf,
) -> dict[str, Any]:
    """Run every so many problems, or a share of them, as far as the time goes, and count all outcomes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    run_all(names()[::every], file, seconds, share, shares, within)
    return count(outcomes(file))
