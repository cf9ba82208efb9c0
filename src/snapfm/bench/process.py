"""The process of one cell, or of the inputs of a case: `python -m snapfm.bench.process`, its job one line of JSON on stdin.

It leaves a record in its job's folder, whatever its method raises. Its standard input stays open as long as the runner lives:
when that ends, so do this process and its children.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from snapfm.bench.curve import curve
from snapfm.bench.inputs import fingerprint, make, pack
from snapfm.bench.job import INPUTS, RECORD, Job
from snapfm.bench.projection import projection
from snapfm.bench.record import Cell, Kind, State
from snapfm.bench.stand import made_ready
from snapfm.bench.walk import TooSlow, walk
from snapfm.errors import MissingDependency, UnsupportedLaw
from snapfm.flow.storage import write_file

_KINDS = {Kind.PROJECTION: projection, Kind.CURVE: curve, Kind.WALK: walk}
_GRACE = 60.0  # seconds above the budget after which a process without its runner ends even inside a call that hangs
_STDIN = 0
_FIRST_TO_GO = "1000"  # the highest oom_score_adj: short of memory, the system ends this process and not the runner


def main() -> None:
    """Do the job."""
    job = Job.from_line(sys.stdin.readline())
    threading.Thread(target=_end_with_runner, daemon=True).start()
    _offer_to_go_first()
    torch.set_num_threads(job.suite.threads)
    if job.method is None or job.kind is None:
        _write_inputs(job)
        return
    faulthandler.dump_traceback_later(job.suite.budget_of(job.suite.case(job.case), job.kind) + _GRACE, exit=True)
    write_file(job.folder / RECORD, _cell(job).to_line().encode())
    os._exit(0)  # the cell is done: a method's own processes and threads, which may not want to end, are not waited for


def _cell(job: Job) -> Cell:
    assert job.method is not None
    assert job.kind is not None
    cell = Cell(job.case, job.method, job.kind, State.DONE, threads=torch.get_num_threads())
    try:
        stand = made_ready(job)
        found: dict[str, Any] = _KINDS[job.kind](stand)
    except MissingDependency as cause:
        return replace(cell, state=State.ABSENT, why=_sentence(cause))
    except UnsupportedLaw as cause:
        return replace(cell, state=State.REFUSED, why=_sentence(cause))
    except TooSlow as cause:
        return replace(cell, state=State.DNF, why=str(cause))
    except Exception as cause:  # a method that fails is a result of the table, not its end
        return replace(cell, state=State.FAILED, why=f"{type(cause).__name__}: {_sentence(cause)}")
    return replace(cell, cold=stand.cold, peak_bytes=stand.more_bytes(), **found)


def _write_inputs(job: Job) -> None:
    case = job.suite.case(job.case)
    write_file(job.folder / INPUTS, pack(make(job.suite, case), fingerprint(job.suite, case) or ""))


def _sentence(cause: Exception) -> str:
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else "it says nothing"


def _end_with_runner() -> None:
    # Not sys.stdin: its buffer's lock, held by this thread, would keep the interpreter from ending.
    while os.read(_STDIN, 1):  # nothing more is sent; an empty read means that the other end is gone
        continue
    os.killpg(os.getpgrp(), signal.SIGKILL)  # the runner started this process as the head of a group of its own


def _offer_to_go_first() -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")
    except OSError:
        return  # not everywhere; only a courtesy to the runner


if __name__ == "__main__":
    main()
