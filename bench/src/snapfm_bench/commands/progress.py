"""What runs of cells show while they work: a bar on terminals, and a line for each finished cell of a suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from snapfm.cli.options import EngineOptions
from snapfm.cli.watch import Watch
from snapfm.text import plural

if TYPE_CHECKING:
    from snapfm_bench.record import Follow, Now

T = TypeVar("T")


def suite_cells(
    options: EngineOptions, cases: Sequence[str], part: Callable[..., T], whole: Callable[[], T],
    name: Callable[[tuple[str, ...]], str], ended: Callable[[Any], str],
) -> T:  # fmt: skip
    """Let the engine of the options run a suite, and show it: this process by its cells, others by cases.

    `part` runs a share of the suite and travels to other processes; `whole` returns all cells when nothing is left to do.
    """
    from snapfm.files.engines import Here
    from snapfm_bench.suites.parts import Parts

    watch = Watch()
    engine = options.build(watch.failed)
    if isinstance(engine, Here):
        with _followed(name, ended) as follow:
            return part(progress=follow, share=engine.share)
    with watch.shown(len(cases), 1, "cases") as show:
        engine.run(Parts(cases, part), show)
    return whole()


@contextmanager
def _followed(name: Callable[[tuple[str, ...]], str], ended: Callable[[Any], str]) -> Iterator[Follow]:
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
