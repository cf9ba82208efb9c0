"""What a first call costs: seconds from `import snapfm` to the first answer, in processes of their own.

Cold: the cache folder is empty. Warm: a new process that finds what the cold one kept. Python keeps its bytecode, as pip does for
a package that is installed, whatever the environment says. `seconds` is import (beyond torch), preparing and the call
together; `processor` is the processor time of the same, to be read where `load` says that other work shared the machine. Run
by the Python of an environment with a wheel, it measures that wheel; `shipped` says whether it has machine code for this
processor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WARM = 3  # processes, of which the fastest counts: other work only ever adds time
LIMIT = 1800  # seconds, for a busy machine
SAMPLES = 4
GOAL = {"cold": 5.0, "warm": 1.0}  # seconds to the first answer


def run() -> dict[str, Any]:
    import snapfm
    from benchmarks.record import commit  # not above: a fresh process imports this file before the clock runs

    rows, load = [], os.getloadavg()[0]
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            cold = _fresh(case, folder)
            warm = min((_fresh(case, folder) for _ in range(WARM)), key=lambda one: one["seconds"])
        rows.append({"case": case, "cold": cold, "warm": warm})
        print(f"{case:12} cold {cold['seconds']:6.2f} s   warm {warm['seconds']:5.2f} s", flush=True)
    sources = commit(Path(snapfm.__file__).parent)  # None for an installed wheel
    return {"sources": sources, "shipped": _shipped(), "load": load, "goal": GOAL, "rows": rows}


def _shipped() -> bool:
    try:
        from snapfm.kernels.numba.cache import shipped
    except ImportError:  # of a tree before there was such a thing
        return False
    return shipped() is not None


def _fresh(case: str, folder: str) -> dict[str, float]:
    """Measure a case in a new process, with this cache folder."""
    own = {"SNAPFM_CACHE": folder, "NUMBA_CACHE_DIR": folder, "PYTHONDONTWRITEBYTECODE": ""}
    environment = {**os.environ, **own}
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.first_call", case],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    if ran.returncode != 0:
        raise RuntimeError(f"benchmarks.first_call {case} failed:\n{ran.stderr}")
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def measure(case: str) -> dict[str, float]:
    """Measure a case in this process, which has imported nothing of snapfm yet."""
    from time import perf_counter, process_time

    import torch

    began, processor = perf_counter(), process_time()
    import snapfm

    for name in snapfm.__all__:  # names are imported when they are first used
        getattr(snapfm, name)
    imported = prepared = answered = perf_counter()
    if case != "import":
        laws, shape, params = CASES[case](snapfm, torch)
        fields = torch.randn(SAMPLES, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        imported = perf_counter()
        project = snapfm.Projector(laws, shape, params)
        prepared = perf_counter()
        assert bool(project(fields, params).converged.all())
        answered = perf_counter()
    return {
        "seconds": answered - began,
        "import": imported - began,
        "prepare": prepared - imported,
        "call": answered - prepared,
        "processor": process_time() - processor,
    }


def _nothing(snapfm: Any, torch: Any) -> Any:
    raise AssertionError("the case of the import projects nothing")


def _affine(snapfm: Any, torch: Any) -> Any:
    return _of_problem(snapfm, torch, "heat-ic-mass")


def _nonlinear(snapfm: Any, torch: Any) -> Any:
    return _of_problem(snapfm, torch, "burgers-ic-mass-flux")


def _of_problem(snapfm: Any, torch: Any, name: str) -> Any:
    problem = snapfm.problem(name)
    return problem.laws, problem.grid.shape, problem.params(SAMPLES, torch.Generator().manual_seed(0))


def _inequalities(snapfm: Any, torch: Any) -> Any:
    laws = [
        snapfm.Equality("energy", lambda u, p: (u**2).sum(0) - p["energy"]),
        snapfm.Inequality("decay", lambda u, p: (u[:, 1:] ** 2).sum(0) - (u[:, :-1] ** 2).sum(0)),
        snapfm.Bounds(lower=-2.0, upper=2.0),
    ]
    energy = torch.linspace(4.0, 2.0, 4, dtype=torch.float64).expand(SAMPLES, 4).contiguous()
    return laws, (6, 4), {"energy": energy}


CASES = {"import": _nothing, "affine": _affine, "nonlinear": _nonlinear, "inequalities": _inequalities}

if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
