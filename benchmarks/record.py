"""Records of micro benchmarks: one JSON line per run, appended; tables in the docs are made from them, never by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from snapfm.evidence import record
from snapfm.evidence.machine import machine

RECORDS = Path(__file__).parent / "records"


def seconds(function: Callable[[], object], repeats: int = 50) -> float:
    """Time a call: the smallest of many, after a warm-up, because other work only ever adds time."""
    function()
    best = float("inf")
    for _ in range(repeats):
        began = perf_counter()
        function()
        best = min(best, perf_counter() - began)
    return best


def append(case: str, figures: dict[str, Any]) -> Path:
    """Add one record to the file of its case."""
    file = RECORDS / f"{case}.jsonl"
    record.append(file, {"case": case, **figures, "machine": machine()})
    return file


def latest(case: str) -> dict[str, Any]:
    """Read the newest record of a case."""
    return record.newest(RECORDS / f"{case}.jsonl")
