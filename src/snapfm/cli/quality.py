"""`snapfm quality SUITE`: samplers × tasks on the shipped models, scored against simulated truth; records and a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from snapfm.quality import Cell, Suite
    from snapfm.quality.run import Now


def quality(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="smoke, steps, paper, or the path of a TOML file like theirs.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for records.jsonl, quality.md and index.html.")],
    only: Annotated[str | None, typer.Option(metavar="TASK", help="Run this task alone.")] = None,
    page_only: Annotated[
        bool, typer.Option("--page-only", help="Write the pages again from the records; run nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as JSON for scripts.")] = False,
) -> None:
    """Score samplers on tasks: errors of mean, spread and laws, time and network calls.

    Every finished cell is kept: the same command goes on after a stop. A
    sampler that takes longer than its budget ends as DNF, one that fails as
    FAILED, a task whose model is not shipped as ABSENT.
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from snapfm.cli.place import check_folder
    from snapfm.errors import require
    from snapfm.quality import Status, load_suite, run
    from snapfm.quality.ledger import read_folder
    from snapfm.quality.run import write_pages

    require("matplotlib", "the pages of snapfm quality", "report")  # asked for now: not after an hour of sampling
    chosen = load_suite(suite)
    check_folder("quality", out)
    if page_only:
        cells = read_folder(out, chosen)
        write_pages(out, chosen)
    else:
        screen = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[left]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
            cells = run(chosen, out, only, _teller(screen, bars))
    if as_json:
        typer.echo(json.dumps([asdict(cell) for cell in cells.values()], indent=2, ensure_ascii=False))
    else:
        _print(chosen, cells)
        typer.echo(f"The page: {out / 'index.html'}")
    if any(cell.status is Status.FAILED for cell in cells.values()):
        raise typer.Exit(code=1)


def _teller(screen: Console, bars: Progress) -> Callable[[Now], None]:
    """Show what runs now and what is left; one line for each finished cell stays on the screen."""
    bar: TaskID = bars.add_task("", total=1.0, left="")

    def tell(now: Now) -> None:
        share = now.step / max(now.steps, 1)
        left = f"{now.left} cells left" if now.left != 1 else "1 cell left"
        bars.update(bar, description=f"{now.task} × {now.sampler}", completed=share, total=1.0, left=left)
        if now.finished is not None:
            spent = now.finished.seconds.get("total")
            words = f"{now.task} × {now.sampler}: {now.finished.status}" + (
                f", {spent:.1f} s" if spent is not None else ""
            )
            screen.print(f"{words}; {left}", highlight=False, markup=False, soft_wrap=True)

    return tell


def _print(suite: Suite, cells: dict[tuple[str, str], Cell]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from snapfm.quality.tables import PUBLISHED, summary, verdicts

    found = summary(suite, cells)
    ours = [row for row in found.rows if not row[0].words.endswith(PUBLISHED)]
    table = Table(title="MMSE / SMSE, in units of 1e-2", title_justify="left", title_style="bold", box=None)
    table.add_column("sampler", no_wrap=True)
    for task in suite.tasks:
        table.add_column(escape(task.title), justify="right")
    # Samplers downwards: five tasks fit a narrow terminal, seven samplers do not.
    for place, head in enumerate(found.heads[1:], start=1):
        entries = [row[place] for row in ours]
        table.add_row(
            escape(head), *(f"[bold cyan]{escape(one.words)}[/]" if one.first else escape(one.words) for one in entries)
        )
    console = Console()
    console.print(table)
    for sentence in verdicts(suite, cells):
        console.print(escape(sentence), highlight=False)
