"""What it costs to prepare a projector: seconds and peak memory for laws of many kinds, at 10⁴, 10⁵ and 10⁶ unknowns.

Each case is a process of its own with a limit of time; one that does not finish is recorded as DNF, one that is refused with
what the refusal says. After a small projector of the same law, so that compiled functions are loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

SIZES = (10_000, 100_000, 1_000_000)
SECONDS = {10_000: 60, 100_000: 120, 1_000_000: 300}  # until a case is given up
ASKED = {100_000: 5.0, 1_000_000: 60.0}  # what preparing should stay below
_SMALL = 200


def run(sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """Measure all laws at some sizes."""
    from benchmarks.preparing_laws import CASES

    found = [one(name, size) for size in sizes for name in CASES]
    within = {
        str(size): f"{sum(row.get('seconds', asked) < asked for row in found if row['size'] == size)} of {len(CASES)}"
        for size, asked in ASKED.items()
        if size in sizes
    }
    return {"within": within, "asked_seconds": {str(size): asked for size, asked in ASKED.items()}, "cases": found}


def one(name: str, size: int) -> dict[str, Any]:
    """Measure one case in a process of its own."""
    asked = {"law": name, "size": size}
    program = f"import json; from benchmarks.preparing import measure; print(json.dumps(measure({name!r}, {size})))"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS[size], check=False
        )
    except subprocess.TimeoutExpired:
        return {**asked, "ended": "DNF", "limit_seconds": SECONDS[size]}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return {**asked, "ended": "killed" if done.returncode < 0 else "error", "message": lines[-1] if lines else ""}
    return {**asked, **json.loads(done.stdout.splitlines()[-1])}


def measure(name: str, size: int) -> dict[str, Any]:
    """Prepare one case, in this process."""
    import resource
    from time import perf_counter, process_time

    import torch

    import snapfm
    from benchmarks.preparing_laws import CASES
    from snapfm.compile import MatrixFreeLaws

    torch.set_num_threads(1)
    laws, shape, params = CASES[name](_SMALL)
    snapfm.Projector(laws, shape, params)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    laws, shape, params = CASES[name](size)
    began, worked = perf_counter(), process_time()
    try:
        project = snapfm.Projector(laws, shape, params)
    except snapfm.errors.LawError as refusal:
        return {"ended": "refused", "message": str(refusal), "refused_after_seconds": perf_counter() - began}
    took, processor = perf_counter() - began, process_time() - worked
    free = isinstance(project.structure, MatrixFreeLaws)
    return {
        "ended": "prepared",
        "unknowns": project.structure.unknowns,
        "rows": project.structure.rows,
        "non_zeros": project.structure.nnz,
        "by_torch": free or bool(project.structure.opaque),
        "matrix_free": free,
        "seconds": took,
        "processor_seconds": processor,
        "before_gb": before / 1e6,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }
