"""A job in a process of its own: fixed threads, a budget, and an end for it and all its children.

Nothing a method does there, hang, crash or print, reaches the runner. Knows no record: it gives how the process ended.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from snapfm.bench.job import ERRORS, Job, Progress, read_progress

# All the names under which libraries look for their number of threads.
_THREADS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
    "JULIA_NUM_THREADS",
)  # fmt: skip
_LOOK = 0.05  # seconds between two looks at a process; the cells' own clocks are in it, not here


@dataclass(frozen=True)
class End:
    """How a process ended."""

    seconds: float
    late: bool  # it was killed at its budget
    why: str | None  # of one that died: one sentence
    progress: Progress  # how far it was


def supervised(job: Job, budget: float, told: Callable[[Progress], None] | None = None) -> End:
    """Run a job to its end or to its budget; its folder is made anew and left to the caller."""
    shutil.rmtree(job.folder, ignore_errors=True)
    job.folder.mkdir(parents=True)
    threads = dict.fromkeys(_THREADS, str(job.suite.threads))
    began = time.monotonic()
    with (job.folder / ERRORS).open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "snapfm.bench.process"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, env={**os.environ, **threads},
            start_new_session=True,  # a group of its own, to be killed as one
        )  # fmt: skip
    late = False
    try:
        _send(process, job)
        while not _ended(process):
            late = time.monotonic() - began > budget
            if late:
                break
            time.sleep(_LOOK)
            if told is not None:
                told(read_progress(job.folder))
    finally:
        # Before it is waited for, so that its number still means its group: it may have left children behind.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
    seconds = time.monotonic() - began
    return End(seconds, late, None if late or code == 0 else _reason(job, code), read_progress(job.folder))


def _send(process: subprocess.Popen[bytes], job: Job) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it died before it could read; its exit code tells
        process.stdin.write(job.to_line().encode())
        process.stdin.flush()  # and left open: it lives as long as this end does


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Tell whether a process has ended, without letting go of its number."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _reason(job: Job, code: int) -> str:
    how = f"its process died of {signal.Signals(-code).name}" if code < 0 else f"its process ended with code {code}"
    if code == -signal.SIGKILL:
        how += ", as when memory runs out"
    lines = (job.folder / ERRORS).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"{how}: {lines[-1].strip()}" if lines else how
