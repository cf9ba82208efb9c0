"""Say that kernels are being compiled, once that has taken two seconds in a process.

On a terminal a line shows which, elsewhere there is one entry in the log. Imports snapfm.progress only.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from snapfm import progress

_spent = 0.0  # seconds that this process has compiled; under numba's lock, as all that follows
_logged = False
_line: progress.Line | None = None


@contextmanager
def announced(kernel: str, outermost: bool) -> Iterator[None]:
    """Say what is compiled inside. Kernels compiled for another one are named too."""
    global _spent, _line
    if not outermost:
        if _line is not None:
            _line.report(kernel)
        yield
        return
    began, timer = perf_counter(), None
    if sys.stderr is not None and sys.stderr.isatty():
        _line = progress.Line("compiling kernels, once", _spent)
        _line.report(kernel)
    elif not _logged:
        timer = threading.Timer(max(0.0, progress.AFTER - _spent), _log)
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        _spent += perf_counter() - began
        if timer is not None:
            timer.cancel()
        if _line is not None:
            _line.end()
            _line = None


def _log() -> None:
    global _logged
    _logged = True
    logging.getLogger("snapfm").warning(
        "compiling kernels for this machine, which may take a minute; they are kept for the next process"
    )
