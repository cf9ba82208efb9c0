"""The process of one method on one case: `python -m benchmarks.any_law.child`, started and watched by `run`.

It has a limit of memory, and an alarm that ends it when its time is over, even inside a library. What it finds it leaves in its
folder: how long preparing took, then the figures of each level as it is done.
"""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path
from typing import Any

import torch

import benchmarks.any_law.cases  # noqa: F401  registers the cases
from benchmarks.any_law.case import CASES, Case
from benchmarks.any_law.job import PREPARED, Job
from benchmarks.any_law.methods import OURS, prepared
from snapfm_bench.machine import forget_peak, peak_bytes, resident_bytes
from snapfm_bench.suites.supervise import Progress, receive, write_progress

# Cases whose tiny sizes compile kernels of every kind, once; and those that load them, in every process, before anything is
# timed or weighed.
COMPILING = (
    "darcy_64", "joint_poisson_64", "monotone_128", "largest_sums_32", "rotations_16", "tank_40", "shallow_water_64",
    "euler_64", "total_variation_64",
)  # fmt: skip
LOADING = ("darcy_64",)
_GRACE = 10.0  # seconds above the timeout: a method that ends by itself, if late, still leaves its figures


def main() -> None:
    job = Job.of(receive())
    resource.setrlimit(resource.RLIMIT_AS, (job.memory, job.memory))
    if job.case is None:
        warm(OURS, COMPILING)
        return
    warm(job.method, LOADING)
    work(job, CASES[job.case])


def work(job: Job, case: Case) -> None:
    """Prepare the method, then time and judge it level by level."""
    folder = Path(job.folder)
    setting = case.setting()
    inputs = {level: case.input(setting, level) for level in job.levels}
    forget_peak()
    base, method, prepare_peak = resident_bytes() or 0, None, 0
    for level, u_hat in inputs.items():
        signal.setitimer(signal.ITIMER_REAL, job.timeout + _GRACE)  # SIGALRM ends the process: no handler is set
        if method is None:
            write_progress(folder, Progress("preparing"))
            method = prepared(job.method, case, setting, job.timeout)
            prepare_peak = peak_bytes() or 0
            leave(folder / PREPARED, method.cold)
        forget_peak()
        left = max(1.0, signal.getitimer(signal.ITIMER_REAL)[0] - _GRACE)

        def report(doing: str, done: int, level: str = level, count: int = len(u_hat)) -> None:
            write_progress(folder, Progress(f"{level}: {doing}", done, count))

        asked = method.ask(u_hat, setting.params, left, report)
        signal.setitimer(signal.ITIMER_REAL, 0)
        peak = max(prepare_peak, peak_bytes() or 0)
        write_progress(folder, Progress(f"{level}: judging"))
        figures: dict[str, Any] = {**method.cold, **asked.figures(setting, u_hat, case.tolerance)}
        leave(folder / f"{level}.json", {**figures, "peak_bytes": max(0, peak - base)})


def warm(method: str, names: tuple[str, ...]) -> None:
    """Make small projections of several kinds, so that libraries are loaded and kernels compiled."""
    for name in names:
        case = CASES[name]
        setting = case.setting(case.tiny)
        try:
            prepared(method, case, setting, 60.0).ask(case.input(setting, "far"), setting.params, 60.0, _silent)
        except Exception:  # what fails here fails in its own case too, and is recorded there
            continue


def leave(file: Path, figures: dict[str, Any]) -> None:
    """Write a file whole or not at all."""
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(figures, default=_plain), encoding="utf-8")
    partial.replace(file)


def _plain(value: object) -> object:
    return value.item() if isinstance(value, torch.Tensor) else str(value)


def _silent(doing: str, done: int) -> None:
    pass


if __name__ == "__main__":
    main()
