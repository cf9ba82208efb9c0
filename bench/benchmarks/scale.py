"""Structure of a 2-D heat residual on n³ grids: seconds and memory of compiling it, and how they grow."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

SIZES = (46, 68, 100)  # cubes: about 1e5, 3e5 and 1e6 unknowns


def run() -> dict[str, Any]:
    found = []
    for size in SIZES:
        program = f"import json; from benchmarks.scale import measure; print(json.dumps(measure({size})))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    first, last = found[0], found[-1]
    slope = math.log(last["seconds"] / first["seconds"]) / math.log(last["unknowns"] / first["unknowns"])
    return {"sizes": found, "slope": slope}


def measure(size: int) -> dict[str, Any]:
    import resource
    from time import perf_counter

    import torch

    from snapfm.compile import compile_laws
    from snapfm.laws import Equality

    spacing = step = 1.0 / (size - 1)

    def heat(u: torch.Tensor, params: Any) -> torch.Tensor:
        inner = u[1:-1, 1:-1]
        bend = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * inner
        return (inner[..., 1:] - inner[..., :-1]) / step - 0.5 * (bend[..., 1:] + bend[..., :-1]) / spacing**2

    compile_laws([Equality("heat", heat)], (5, 5, 5))  # compiles and loads what the first call of a process has to
    began = perf_counter()
    laws = compile_laws([Equality("heat", heat)], (size, size, size))
    non_zeros = laws.nnz  # found with the pattern, at first use
    took = perf_counter() - began
    return {
        "unknowns": laws.unknowns,
        "rows": laws.rows,
        "non_zeros": non_zeros,
        "seconds": took,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }
