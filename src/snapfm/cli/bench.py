"""`snapfm bench SUITE`: methods × cases, each in its own process within a budget, judged and kept as records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from snapfm.bench import Cell, Suite
    from snapfm.bench.run import Cells, Now


def bench(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="SUITE",
            help="smoke, paper, scaling-constraints, scaling-samples, scaling-grid, or the path of a TOML file like theirs.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for records, inputs and fields.")],
    only: Annotated[str | None, typer.Option(metavar="CASE", help="Run this case alone.")] = None,
    method: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run this method alone; repeat it for several.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Repeat cells that are FAILED or ABSENT.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as JSON for scripts.")] = False,
) -> None:
    """Time and judge projection methods: ours and its peers on the same inputs.

    Every cell runs in a process of its own and is kept when it is done: the
    same command goes on after a stop. A method that takes longer than its
    budget ends as DNF, one that fails as FAILED, one whose package is missing
    as ABSENT, one that cannot take the laws as REFUSED; none of these stops
    the others. The exit code is 1 only if our own method fails.
    `snapfm report DIR` makes pages of the records.
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from snapfm.bench import load_suite, run
    from snapfm.bench.run import ours_failed
    from snapfm.cli.place import check_folder

    chosen = load_suite(suite)
    check_folder("bench", out)
    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        cells = run(chosen, out, only, method or (), again, _teller(screen, bars))
    if as_json:
        typer.echo(json.dumps([asdict(cell) for cell in cells.values()], indent=2, ensure_ascii=False))
    else:
        _print(chosen, cells)
        typer.echo(f"The records: {out / 'records.jsonl'}. Pages of them: snapfm report {out} --out FOLDER")
    if ours_failed(cells):
        raise typer.Exit(code=1)


def _teller(screen: Console, bars: Progress) -> Callable[[Now], None]:
    """Show what runs now and what is left; one line for each finished cell stays on the screen."""
    bar: TaskID = bars.add_task("", total=1.0, left="")

    def tell(now: Now) -> None:
        left = f"{now.left} cells left" if now.left != 1 else "1 cell left"
        what = f"{now.case} × {now.method}, {now.kind}"
        bars.update(bar, description=f"{what}: {now.doing}", completed=now.share, total=1.0, left=left)
        if now.finished is not None:
            why = f" ({now.finished.why})" if now.finished.why else ""
            words = f"{what}: {now.finished.state}{why}, {now.finished.seconds:.1f} s; {left}"
            screen.print(words, highlight=False, markup=False, soft_wrap=True)

    return tell


def _print(suite: Suite, cells: Cells) -> None:
    """Print one table for each kind: the more of methods and cases downwards, the fewer across, so that columns stay wide."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from snapfm.bench import Kind

    heads = {
        Kind.PROJECTION: "Projection: ms a sample, median of hot calls over all inputs (samples converged)",
        Kind.WALK: "Walks: seconds of network + projection (samples converged)",
        Kind.CURVE: "Curves: iterations until all samples hold",
    }
    console = Console()
    for kind, head in heads.items():
        found = {key: cell for key, cell in cells.items() if key[2] == kind}
        cases = [case.name for case in suite.cases if any(key[0] == case.name for key in found)]
        names = list(dict.fromkeys(key[1] for key in found))
        if not cases:
            continue
        turned = len(cases) > len(names)
        down, across = (cases, names) if turned else (names, cases)
        table = Table(box=None)
        table.add_column("case" if turned else "method", no_wrap=True)
        for column in across:
            table.add_column(escape(column), justify="right", overflow="fold")
        for line in down:
            keys = [(line, column) if turned else (column, line) for column in across]
            table.add_row(escape(line), *(escape(_entry(found.get((*key, str(kind))))) for key in keys))
        console.print(head, style="bold", highlight=False, soft_wrap=True)  # a table's own title wraps at its width
        console.print(table)


def _entry(cell: Cell | None) -> str:
    from statistics import median

    from snapfm.bench import Kind, State

    if cell is None:
        return "–"
    if cell.state is not State.DONE:
        return str(cell.state)
    if cell.kind is Kind.CURVE:
        return str(cell.curve[-1].iterations)
    if cell.kind is Kind.WALK and cell.verdict is not None:
        return f"{cell.walk['velocity']:.2f} + {cell.walk['projection']:.2f} ({cell.verdict.converged}/{cell.samples})"
    hot = median(median(turn.seconds) for turn in cell.turns)
    holds, asked = (sum(getattr(turn.verdict, name) for turn in cell.turns) for name in ("converged", "samples"))
    return f"{1e3 * hot / cell.samples:.3g} ({holds}/{asked})"
