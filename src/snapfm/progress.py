"""The progress line: one line on stderr that says what is being done, if it takes longer than two seconds.

A timer thread shows the line, because a single step may take long. Nothing global changes; the thread ends with the line.
Imports nothing of snapfm.
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
_open: list[Line] = []  # lines of this process; the one begun last is shown


class Line:
    """What is being done, and the thread that shows it. `spent`: seconds of the same work before this line."""

    def __init__(self, label: str, spent: float = 0.0) -> None:
        self._label, self._doing, self._shown = label, "", False
        self._began = perf_counter() - spent
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"snapfm {label}", daemon=True)
        _open.append(self)
        self._thread.start()

    def report(self, doing: str) -> None:
        """Say what is being done now."""
        self._doing = doing

    def end(self, last: str = "") -> None:
        """Stop the thread. If there is a line, close it with a last word, or take it away."""
        self._over.set()
        self._thread.join()
        _open.remove(self)
        if self._shown:
            took = f"{last} {perf_counter() - self._began:.1f} s" if last else ""
            self._write(took, "\n" if last else "\r")

    def _run(self) -> None:
        wait = max(0.0, self._began + AFTER - perf_counter())
        while not self._over.wait(wait):
            wait = _AGAIN
            if _open and _open[-1] is self:
                self._shown = True
                self._write(f"{self._label}: {self._doing}, {perf_counter() - self._began:.0f} s", "")

    def _write(self, text: str, end: str) -> None:
        try:
            sys.stderr.write(f"\r{text[:_WIDTH]:{_WIDTH}}{end}")
            sys.stderr.flush()
        except (OSError, ValueError):  # closed meanwhile: no reason to fail
            self._over.set()


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
