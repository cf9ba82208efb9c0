"""The progress line of preparing: one line on stderr that says what is being done, if it takes longer than two seconds.

A timer thread shows the line, because a single step may take long. Nothing global changes; the thread ends with the block.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

AFTER = 2.0  # seconds without a line
_AGAIN = 1.0  # seconds between two looks at the clock
_WIDTH = 78  # of the line, so that a shorter one covers a longer one

Report = Callable[[str], None]


def silent(doing: str) -> None:
    """Report nothing."""


@contextmanager
def preparing(progress: bool | None = None) -> Iterator[Report]:
    """Yield a function to call with what is being done; None shows the line only if stderr is a terminal."""
    if not (sys.stderr.isatty() if progress is None else progress):
        yield silent
        return
    line = _Line()
    try:
        yield line.report
    finally:
        line.end()


class _Line:
    """What is being done, and the thread that shows it."""

    def __init__(self) -> None:
        self._began, self._doing, self._shown = perf_counter(), "", False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="snapfm preparing", daemon=True)
        self._thread.start()

    def report(self, doing: str) -> None:
        self._doing = doing

    def end(self) -> None:
        """Stop the thread and close the line, if there is one."""
        self._over.set()
        self._thread.join()
        if self._shown:
            self._write(f"prepared in {perf_counter() - self._began:.1f} s", "\n")

    def _run(self) -> None:
        wait = AFTER
        while not self._over.wait(wait):
            self._shown, wait = True, _AGAIN
            self._write(f"preparing: {self._doing}, {perf_counter() - self._began:.0f} s", "")

    def _write(self, text: str, end: str) -> None:
        try:
            sys.stderr.write(f"\r{text[:_WIDTH]:{_WIDTH}}{end}")
            sys.stderr.flush()
        except (OSError, ValueError):  # closed meanwhile: no reason to fail
            self._over.set()
