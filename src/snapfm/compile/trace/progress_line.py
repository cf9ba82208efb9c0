"""The progress line of preparing (snapfm.progress): shown on a terminal, or if the caller asks for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from snapfm.progress import Line

Report = Callable[[str], None]


def silent(doing: str) -> None:
    """Report nothing."""


@contextmanager
def preparing(progress: bool | None = None) -> Iterator[Report]:
    """Yield a function to call with what is being done; None shows the line only if stderr is a terminal."""
    if not (sys.stderr.isatty() if progress is None else progress):
        yield silent
        return
    line = Line("preparing")
    try:
        yield line.report
    finally:
        line.end("prepared in")
