"""Records of micro benchmarks: one JSON line per run, appended; tables in the docs are made from them, never by hand."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

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


def machine() -> dict[str, Any]:
    """Describe what the figures were taken on."""
    packages = ("torch", "numpy", "scipy", "numba", "snapfm")
    return {
        "processor": platform.machine(),
        "model": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in packages},
    }


def append(case: str, figures: dict[str, Any]) -> Path:
    """Add one record to the file of its case."""
    RECORDS.mkdir(exist_ok=True)
    path = RECORDS / f"{case}.jsonl"
    line = json.dumps({"case": case, **figures, "machine": machine()}, ensure_ascii=False)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    return path


def latest(case: str) -> dict[str, Any]:
    """Read the newest record of a case."""
    lines = (RECORDS / f"{case}.jsonl").read_text(encoding="utf-8").splitlines()
    record: dict[str, Any] = json.loads(lines[-1])
    return record


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
