"""`python -m benchmarks any_law [CASE …]`: any law at speed, ours against Ipopt, each case and method in a process of its own.

Cases are laws as users write them (`cases/`): the rows of the issues' tables and others of the same kinds, with inputs near the
truth and far from it. Ours and Ipopt, with tuned and with default options, have one thread, the same tolerance, the same time
and the same memory; answers of all are judged from outside (snapfm_bench.judge). A method that is too slow, crashes
or runs out of memory is a recorded outcome. Every finished case is one line of records/any_law.jsonl; a run that was stopped
goes on with the cases that the same code has not done yet, and cases that are named are run again.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import benchmarks.any_law.cases  # noqa: F401  registers the cases
from benchmarks.any_law.case import CASES, Case
from benchmarks.any_law.job import PREPARED, Job
from benchmarks.any_law.methods import METHODS, OURS
from benchmarks.any_law.summary import DONE, compared, summary
from benchmarks.record import RECORDS, append
from snapfm_bench.suites.supervise import ProcessEnd, supervised

TIMEOUT = 120.0  # seconds of a method on one level of a case, preparing included
MEMORY = 12 * 2**30  # bytes of address space of a process
_AROUND = 150.0  # seconds of a process beside that: imports, small projections, drawing, the judge
_COMPILING = 900.0  # seconds for all kernels, once
_ROOT = Path(__file__).parents[3]
_CODE = ("src/snapfm", "benchmarks/any_law")  # what a figure depends on
_WORDS = 300  # characters kept of a reason


def run(cases: Sequence[str] = (), timeout: float = TIMEOUT) -> dict[str, Any]:
    """Run cases (all that this code has not run yet by default), record each, and sum up."""
    for name in cases:
        if name not in CASES:
            raise SystemExit(
                f"any_law expects names of cases, of {', '.join(CASES)}; got {name!r}. Choose among these."
            )
    code, had = digest(), rows()
    done = {} if cases else {name: row for name, row in had.items() if (row["code"], row["timeout"]) == (code, timeout)}
    todo = [CASES[name] for name in cases or CASES if name not in done]
    with tempfile.TemporaryDirectory(prefix="any-law-") as folder:
        if todo:
            job = Job(folder, OURS, None, (), timeout, MEMORY)
            supervised("benchmarks.any_law.child", job.to_line(), Path(folder) / "compiling", 1, _COMPILING)
        for case in todo:
            print(f"{case.name} …", file=sys.stderr, flush=True)
            row = {**one_case(case, timeout, Path(folder)), "timeout": timeout, "code": code}
            append("any_law", row)
            done[case.name] = row
    return summary(list(done.values()))


def one_case(case: Case, timeout: float, folder: Path) -> dict[str, Any]:
    """Run all methods on all levels of a case; return what is recorded."""
    shape = list(case.setting(samples=1).truth.shape[1:])
    found = {method: levels(case, method, timeout, folder) for method in METHODS}
    return {
        "name": case.name,
        "group": case.group,
        "shape": shape,
        "unknowns": math.prod(shape),
        "samples": case.samples,
        "tolerance": case.tolerance,
        "batch_bytes": 8 * case.samples * math.prod(shape),
        "levels": {
            level: {"noise": noise, **by_method, "comparison": compared(by_method)}
            for level, noise in case.noise.items()
            for by_method in [{method: found[method][level] for method in METHODS}]
        },
    }


def levels(case: Case, method: str, timeout: float, folder: Path) -> dict[str, dict[str, Any]]:
    """Run one method; where its process dies at one level another process goes on with the next."""
    found: dict[str, dict[str, Any]] = {}
    left = list(case.noise)
    while left:
        place = folder / f"{case.name}-{method}"
        job = Job(str(place), method, case.name, tuple(left), timeout, MEMORY)
        end = supervised("benchmarks.any_law.child", job.to_line(), place, 1, len(left) * timeout + _AROUND)
        while left and (file := place / f"{left[0]}.json").exists():
            found[left.pop(0)] = {"state": DONE, **json.loads(file.read_text(encoding="utf-8"))}
        if left:
            ready = (place / PREPARED).exists()
            lost = outcome(end) | (json.loads((place / PREPARED).read_text(encoding="utf-8")) if ready else {})
            for level in left[: 1 if ready else None]:  # what could not be prepared cannot be for another input
                found[level] = lost
                left = left[1:]
        shutil.rmtree(place, ignore_errors=True)
    return found


def outcome(end: ProcessEnd) -> dict[str, Any]:
    """Name the end of a process that left no figures: too slow, refused, absent, or died."""
    why = end.why or ""
    state = "FAILED"
    if end.late or "SIGALRM" in why:
        state = "DNF"
    elif "UnsupportedLaw" in why:
        state = "REFUSED"
    elif "MissingDependency" in why:
        state = "ABSENT"
    elif any(word in why for word in ("MemoryError", "bad_alloc", "DefaultCPUAllocator", "SIGKILL")):
        state = "OUT_OF_MEMORY"
    return {"state": state, "doing": end.progress.doing, "samples_done": end.progress.steps_done, "why": why[:_WORDS]}


def rows() -> dict[str, dict[str, Any]]:
    """Read the newest recorded row of every case."""
    file = RECORDS / "any_law.jsonl"
    lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def digest() -> str:
    """Identify the code that figures depend on by its bytes."""
    found = hashlib.sha256()
    for place in _CODE:
        for file in sorted((_ROOT / place).rglob("*.py")):
            found.update(file.relative_to(_ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]
