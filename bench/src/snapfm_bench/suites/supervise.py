"""A job in a child process: fixed threads, a wall budget, and a kill of it and all its children.

The parent calls `supervised`; the child calls `receive` and reports with `write_progress`. The job is one line of JSON on the
child's standard input, which stays open as long as the parent lives: when it closes, the child ends with its group. If the
child hangs, crashes or prints, the parent is not affected. Knows no records: it returns how the process ended.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

# All the names under which libraries look for their number of threads.
_THREADS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
    "JULIA_NUM_THREADS",
)  # fmt: skip
_LOOK = 0.05  # seconds between two looks at a process; the cells' own clocks run inside it
_PROGRESS, _ERRORS = "progress.json", "stderr.txt"
_STDIN = 0
_FIRST_TO_GO = "1000"  # the highest oom_score_adj: short of memory, the system ends the child and not the parent


@dataclass(frozen=True)
class Progress:
    """The progress of a job, for the screen and for the record of a job that is stopped."""

    doing: str = "starting"
    steps_done: int | None = None
    steps: int | None = None
    cold: dict[str, float] | None = None  # seconds of finished preparations

    @property
    def share(self) -> float:
        """The share of the steps that are done."""
        return 0.0 if not self.steps or self.steps_done is None else self.steps_done / self.steps


@dataclass(frozen=True)
class ProcessEnd:
    """How a process ended."""

    seconds: float
    late: bool  # it was killed at its budget
    why: str | None  # of a process that died: one sentence
    progress: Progress


def supervised(
    module: str, job: str, folder: Path, threads: int, budget: float, follow: Callable[[Progress], None] | None = None
) -> ProcessEnd:
    """Run a module on a job to its end or to its budget; `folder` is emptied first and left to the caller."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    with (folder / _ERRORS).open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors,
            env={**os.environ, **dict.fromkeys(_THREADS, str(threads))},
            start_new_session=True,  # its own process group, killed as one
        )  # fmt: skip
    assert process.stdin is not None
    late = False
    try:
        with suppress(BrokenPipeError):  # it died before it could read; its exit code tells
            process.stdin.write(f"{job}\n".encode())
            process.stdin.flush()  # and left open: the child lives as long as this end does
        # WNOWAIT: the process number stays reserved, so that it still means this group below.
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            late = time.monotonic() - began > budget
            if late:
                break
            time.sleep(_LOOK)
            if follow is not None:
                follow(read_progress(folder))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it may have left children behind
        code = process.wait()
        with suppress(BrokenPipeError):
            process.stdin.close()
    seconds = time.monotonic() - began
    return ProcessEnd(seconds, late, None if late or code == 0 else _reason(folder, code), read_progress(folder))


def receive() -> str:
    """Read the job in a child process; from here on the process ends when its parent does."""
    job = sys.stdin.readline()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(OSError):  # not everywhere
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")
    return job


def write_progress(folder: Path, progress: Progress) -> None:
    """Write the progress of a job atomically."""
    partial = folder / f".{_PROGRESS}"
    partial.write_text(json.dumps(asdict(progress)), encoding="utf-8")
    os.replace(partial, folder / _PROGRESS)


def read_progress(folder: Path) -> Progress:
    """Read the progress of a job."""
    try:
        return Progress(**json.loads((folder / _PROGRESS).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Progress()


def _end_with_parent() -> None:
    # Not sys.stdin: its buffer's lock, held by this thread, would keep the interpreter from ending.
    while os.read(_STDIN, 1):  # nothing more is sent; an empty read means that the other end is gone
        continue
    os.killpg(os.getpgrp(), signal.SIGKILL)  # the parent started this process in its own group


def _reason(folder: Path, code: int) -> str:
    how = f"its process died of {signal.Signals(-code).name}" if code < 0 else f"its process ended with code {code}"
    if code == -signal.SIGKILL:
        how += ", as when memory runs out"
    lines = (folder / _ERRORS).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"{how}: {lines[-1].strip()}" if lines else how
