"""Records of micro benchmarks: one JSON line per run, appended; tables in the docs are made from them, never by hand."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from snapfm.errors import Status
from snapfm_bench import record
from snapfm_bench.machine import machine_and_threads

RECORDS = Path(__file__).parents[1] / "records"


def seconds(function: Callable[[], object], repeats: int = 50) -> float:
    """Time a call: the smallest of many, after a warm-up, because other work only ever adds time."""
    function()
    best = float("inf")
    for _ in range(repeats):
        began = perf_counter()
        function()
        best = min(best, perf_counter() - began)
    return best


def median_seconds(function: Callable[[], object], repeats: int = 5) -> float:
    """Time a call: the median, after a warm-up."""
    function()
    spent = []
    for _ in range(repeats):
        began = perf_counter()
        function()
        spent.append(perf_counter() - began)
    return median(spent)


def statuses(status: Tensor) -> dict[str, int]:
    """Count statuses by name."""
    found = torch.bincount(status.int(), minlength=len(Status)).tolist()
    return {one.name: count for one, count in zip(Status, found) if count}


def commit(tree: Path = RECORDS) -> str | None:
    """Name the commit of a tree, with a plus where files differ from it; None outside a repository."""
    asked = ["git", "describe", "--always", "--dirty=+"]
    return subprocess.run(asked, cwd=tree, capture_output=True, text=True).stdout.strip() or None


def append(case: str, figures: dict[str, Any], load: float | None = None) -> Path:
    """Add one record to the file of its case; `load` is that of the machine before it began."""
    file = RECORDS / f"{case}.jsonl"
    record.append(file, {"case": case, **figures, "load": load, "machine": machine_and_threads()})
    return file


def latest(case: str) -> dict[str, Any]:
    """Read the newest record of a case."""
    found: dict[str, Any] = json.loads((RECORDS / f"{case}.jsonl").read_text().splitlines()[-1])
    return found
