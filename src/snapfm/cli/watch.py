"""What a run of blocks shows, whoever computes them: one line on a terminal and JSON lines for scripts, then what it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from snapfm.cli.options import EngineOptions
from snapfm.errors import ProjectionFailed, SnapfmError
from snapfm.text import bytes_text, extents

if TYPE_CHECKING:
    from snapfm.files import Written
    from snapfm.files.engines import Engine, Share

T = TypeVar("T")
FAILED = 1  # exit code of work that was done and failed
_EVERY = 1.0  # seconds between two lines of the log


class Watch:
    """The progress of one call: blocks and units done, units a second, failures, time left."""

    def __init__(self, log: Path | None = None) -> None:
        self._log, self._screen = log, Console(stderr=True)
        self._began = self._logged = perf_counter()
        self._failures = 0
        self._first: float | None = None  # units that were there before
        self._line: dict[str, Any] = {}

    def failed(self, words: str) -> None:
        """Count and show a block that was given up."""
        self._failures += 1
        self._screen.print(words, highlight=False, markup=False, soft_wrap=True)
        self._write({"time": round(time(), 3), "failure": words})

    @contextmanager
    def shown(self, total: int, block: int, unit: str) -> Iterator[Callable[[float], None]]:
        """Show a run of `total` units in blocks of so many; yield the function to call with the number done."""
        columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        with Progress(*columns, console=self._screen, transient=True, disable=not self._screen.is_terminal) as bars:
            bar = bars.add_task("", total=total)
            blocks = -(-total // block)

            def tell(done: float) -> None:
                self._note(done, total, int(done * blocks // total) if done < total else blocks, blocks)
                now = self._line
                failures = f", {self._failures} failed" * bool(self._failures)
                words = f"{now['blocks']}/{blocks} blocks, {int(done)}/{total} {unit}, {now['rate']:.3g}/s{failures}"
                bars.update(bar, completed=done, description=words)

            try:
                yield tell
            except SnapfmError as failure:
                self._write({"time": round(time(), 3), "failure": str(failure)})
                raise
            finally:
                if self._line:
                    self._write(self._line)

    def _note(self, done: float, total: int, blocks: int, all_blocks: int) -> None:
        """Keep what is known now, and log it if the last line is old enough."""
        first = self._first = done if self._first is None else self._first
        now = perf_counter()
        rate = (done - first) / max(now - self._began, 1e-9)
        self._line = {
            "time": round(time(), 3), "done": done, "total": total, "blocks": blocks, "all_blocks": all_blocks,
            "rate": round(rate, 6), "seconds_left": round((total - done) / rate, 3) if rate > 0 else None,
            "failures": self._failures,
        }  # fmt: skip
        if now - self._logged >= _EVERY or done == first:
            self._logged = now
            self._write(self._line)

    def _write(self, line: dict[str, Any]) -> None:
        if self._log is not None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("a", encoding="utf-8") as opened:
                opened.write(json.dumps(line) + "\n")


@dataclass(frozen=True)
class Ran(Generic[T]):
    """What a run returned, which share of the blocks it computed, and its seconds."""

    found: T
    share: Share
    seconds: float


def watched(
    options: EngineOptions, log: Path | None, count: int, block: int, unit: str, work: Callable[[Any, Engine], T]
) -> Ran[T]:
    """Do the work, called with a function for its progress and the engine of the options, and show it.

    Samples that did not converge, or a block that was given up, end the command with the exit code of work that failed.
    """
    from snapfm.files.engines import BlockFailed

    watch = Watch(log)
    engine = options.build(watch.failed)
    began = perf_counter()
    try:
        with watch.shown(engine.share.units(count, block), block, unit) as show:
            found = work(show, engine)
    except (ProjectionFailed, BlockFailed) as failure:
        Console(stderr=True).print(f"{type(failure).__name__}: {failure}", style="red", markup=False, highlight=False)
        raise typer.Exit(FAILED) from failure
    return Ran(found, engine.share, perf_counter() - began)


def unfinished(written: Written, run: Ran[Any]) -> str:
    """Describe a run of which other processes owe a part."""
    there = written.count - written.missing
    return (
        f"{written.path}: part {run.share} is done ({run.seconds:.1f} s); {there} of {written.count} "
        f"{'is' if there == 1 else 'are'} written. The process that finishes last completes the file."
    )


def described_file(written: Written) -> dict[str, Any]:
    """Return what scripts want to know of a file."""
    return {
        "path": str(written.path), "shape": list(written.shape), "found": written.found, "missing": written.missing,
        "bytes": written.bytes,
    }  # fmt: skip


def described(written: Written) -> tuple[str, str, str]:
    """Return the shape, how much was there before, and the size, in words."""
    resumed = f", {written.found} of them from an earlier run" if written.found else ""
    return extents(written.shape), resumed, bytes_text(written.bytes)
