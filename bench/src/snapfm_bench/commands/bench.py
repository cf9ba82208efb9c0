"""`snapfm bench SUITE`: methods × cases, each in its own process within a budget, judged and kept as records.

`snapfm report DIR…` makes one page of figures, tables and pictures from these records.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from snapfm.cli.options import THIS_PROCESS, EngineOptions, with_engine
from snapfm.errors import require
from snapfm_bench.commands.options import check_folder
from snapfm_bench.commands.progress import suite_cells

if TYPE_CHECKING:
    from snapfm_bench.suites.projection import ProjectionCell, ProjectionSuite
    from snapfm_bench.suites.projection.run import Cells


@with_engine
def bench(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="SUITE",
            help="smoke, paper, scaling-constraints, scaling-samples, scaling-grid, or the path of your own TOML file.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for records, inputs and fields.")],
    only: Annotated[str | None, typer.Option(metavar="CASE", help="Run only this case.")] = None,
    method: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Run only this method; repeatable.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Replace a key of the suite, such as tolerance=1e-6; repeatable."
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="Replace an option of the method, such as ipopt.mu_init=1e-3; repeatable.",
        ),
    ] = None,
    engine: EngineOptions = THIS_PROCESS,
    again: Annotated[bool, typer.Option("--again", help="Repeat cells that are FAILED, ABSENT or DNF.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as JSON for scripts.")] = False,
) -> None:
    """Time and judge projection methods: ours and its peers on the same inputs.

    Every cell runs in its own process and is kept once it is done: the same
    command resumes a run that was stopped. A method that exceeds its budget
    ends as DNF, one that fails as FAILED, one whose package is missing as
    ABSENT, one that cannot handle the laws as REFUSED; the others still run.
    The exit code is 1 only if our own method fails. `snapfm report DIR` makes
    pages from the records.
    """
    from dataclasses import asdict
    from functools import partial

    from snapfm_bench.suites.projection import load_suite, run
    from snapfm_bench.suites.projection.run import ours_failed
    from snapfm_bench.suites.suite import settings

    changes = settings("--set", change or ())
    if option:
        changes["options"] = settings("--option", option)
    chosen = load_suite(suite, changes)
    check_folder("bench", out)
    missing = partial(run, chosen, out.absolute(), only, method or ())
    names = [case.name for case in chosen.cases]
    cells = suite_cells(
        engine, names, partial(missing, again=again), missing, lambda key: f"{key[0]} × {key[1]}, {key[2]}", _ended
    )
    if as_json:
        typer.echo(json.dumps([asdict(cell) for cell in cells.values()], indent=2, ensure_ascii=False))
    else:
        _print(chosen, cells)
        typer.echo(f"Records: {out / 'records.jsonl'}. To make pages from them: snapfm report {out} --out FOLDER")
    if ours_failed(cells):
        raise typer.Exit(code=1)


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", help="Folders written by snapfm bench; several are joined on one page."),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for index.html and report.md.")],
) -> None:
    """Write a self-contained page from the records of benchmark runs; nothing is run.

    Cells without a figure are listed with the reason, and published figures
    are shown next to measured ones.
    """
    from snapfm_bench.suites.projection.report.pages import PAGE, coverage, write

    require("matplotlib", "the pages of snapfm report", "", of="snapfm-bench")
    check_folder("report", out)
    book = write(folders, out)
    screen = Console()
    screen.print(coverage(book), markup=False, highlight=False, soft_wrap=True)
    screen.print(f"The page: {out / PAGE}", markup=False, highlight=False, soft_wrap=True)


def _ended(cell: ProjectionCell) -> str:
    why = f" ({cell.why})" if cell.why else ""
    return f"{cell.state}{why}, {cell.seconds:.1f} s"


def _print(suite: ProjectionSuite, cells: Cells) -> None:
    """Print one table for each kind. Rows are methods or cases, whichever are more, so that columns stay wide."""
    from snapfm_bench.pages.document import terminal
    from snapfm_bench.suites.projection import Kind

    heads = {
        Kind.PROJECTION: "Projection: ms per sample, median of hot calls over all inputs (samples accepted)",
        Kind.WALK: "Walks: seconds of network + projection (samples accepted)",
        Kind.CURVE: "Curves: iterations until all samples hold",
    }
    console = Console()
    for kind, head in heads.items():
        found = {key: cell for key, cell in cells.items() if key[2] == kind}
        cases = [case.name for case in suite.cases if any(key[0] == case.name for key in found)]
        names = list(dict.fromkeys(key[1] for key in found))
        if not cases:
            continue
        shown = {(case, name): _entry(found.get((case, name, str(kind)))) for case in cases for name in names}
        if len(cases) > len(names):
            table = terminal(None, ["case", *names], [(case, *(shown[case, name] for name in names)) for case in cases])
        else:
            rows = [(name, *(shown[case, name] for case in cases)) for name in names]
            table = terminal(None, ["method", *cases], rows)
        console.print(head, style="bold", highlight=False, soft_wrap=True)  # a table's own title wraps at its width
        console.print(table)


def _entry(cell: ProjectionCell | None) -> str:
    from statistics import median

    from snapfm_bench.suites.projection import CellState, Kind
    from snapfm_bench.text import NOTHING

    if cell is None:
        return NOTHING
    if cell.state is not CellState.DONE:
        return str(cell.state)
    if cell.kind is Kind.CURVE:
        return str(cell.curve[-1].iterations)
    if cell.kind is Kind.WALK and cell.verdict is not None:
        return f"{cell.walk['velocity']:.2f} + {cell.walk['projection']:.2f} ({cell.verdict.accepted}/{cell.samples})"
    hot = median(median(turn.seconds) for turn in cell.turns)
    holds, asked = (sum(getattr(turn.verdict, name) for turn in cell.turns) for name in ("accepted", "samples"))
    return f"{1e3 * hot / cell.samples:.3g} ({holds}/{asked})"
