"""The child process of one cell, or of the inputs of a case: `python -m snapfm.evidence.projection.cell`.

It leaves a record in its job's folder, whatever its method raises.
"""

from __future__ import annotations

import faulthandler
import json
import os
from dataclasses import replace
from typing import Any

import torch

from snapfm.errors import MissingDependency, UnsupportedLaw
from snapfm.evidence.projection.calls import curve, projection
from snapfm.evidence.projection.inputs import fingerprint, make, pack
from snapfm.evidence.projection.record import Cell, Kind
from snapfm.evidence.projection.stand import INPUTS, RECORD, Job, prepared
from snapfm.evidence.projection.walk import TooSlow, walk
from snapfm.evidence.record import State, load, to_line
from snapfm.evidence.supervise import receive
from snapfm.flow.storage import write_file

_KINDS = {Kind.PROJECTION: projection, Kind.CURVE: curve, Kind.WALK: walk}
_GRACE = 60.0  # seconds above the budget after which a process without its runner ends even inside a call that hangs


def main() -> None:
    """Do the job."""
    job = load(Job, json.loads(receive()))
    case = job.suite.case(job.case)
    torch.set_num_threads(job.suite.threads)
    if job.method is None or job.kind is None:
        write_file(job.folder / INPUTS, pack(make(job.suite, case), fingerprint(job.suite, case) or ""))
        return
    faulthandler.dump_traceback_later(job.suite.budget_of(case, job.kind) + _GRACE, exit=True)
    blank = Cell(job.case, job.method, job.kind, State.DONE, threads=torch.get_num_threads())
    write_file(job.folder / RECORD, to_line(_filled(job, blank)).encode())
    os._exit(0)  # the cell is done: processes and threads of the method, which may not want to end, are not waited for


def _filled(job: Job, cell: Cell) -> Cell:
    assert job.kind is not None
    try:
        stand = prepared(job)
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


def _sentence(cause: Exception) -> str:
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else "it says nothing"


if __name__ == "__main__":
    main()
