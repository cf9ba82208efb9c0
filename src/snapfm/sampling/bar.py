"""One line on stderr that shows how far a run is, for sample(progress=True)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from snapfm.sampling.task import Progress


@contextmanager
def told(progress: Progress | bool | None, steps: int) -> Iterator[Progress | None]:
    """Give whom to tell the steps done: a bar for True, nobody for False and None, else the function itself."""
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        yield None
        return
    from rich.console import Console  # not needed by those who want no bar
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("sampling"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"))
    # A console of its own: two runs in two threads, or a display of the caller's, do not share one.
    with Bars(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        line = bars.add_task("sampling", total=steps)
        yield lambda done, total: bars.update(line, completed=done, total=total)
