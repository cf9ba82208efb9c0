"""What runs of cells show while they work: a bar on terminals, and a line for each finished cell of a suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from snapfm.text import plural

if TYPE_CHECKING:
    from snapfm.evidence.record import Follow, Now


@contextmanager
def followed(name: Callable[[tuple[str, ...]], str], ended: Callable[[Any], str]) -> Iterator[Follow]:
    """Show a run of cells; yield the function to call with its progress.

    `name` describes a cell by its key, `ended` how a finished cell ended.
    """
    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        bar = bars.add_task("", total=1.0, left="")

        def tell(now: Now[Any]) -> None:
            left = f"{plural(now.left, 'cell')} left"
            bars.update(bar, description=f"{name(now.key)}: {now.doing}", completed=now.share, left=left)
            if now.finished is not None:
                words = f"{name(now.key)}: {ended(now.finished)}; {left}"
                screen.print(words, highlight=False, markup=False, soft_wrap=True)

        yield tell
