"""`snapfm quality SUITE`: samplers × tasks on the shipped models, scored against simulated truth; records and a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from snapfm.cli.engines import Part
from snapfm.cli.exact import NAME, exact
from snapfm.cli.options import check_folder
from snapfm.cli.progress import followed
from snapfm.errors import SettingError, require

if TYPE_CHECKING:
    from snapfm.evidence.quality import Cell, Suite
    from snapfm.evidence.quality.suite import Cells


def quality(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="SUITE", help="smoke, steps, paper, best, the path of a TOML file like theirs, or exact."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the records and the pages.")],
    only: Annotated[str | None, typer.Option(metavar="TASK", help="Run this task, or this exact case, alone.")] = None,
    count: Annotated[int | None, typer.Option(metavar="N", help="Samples of an exact case; 512 by default.")] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="N,N", help="Flow steps of exact cases; 20,100,200 by default.")
    ] = None,
    stored: Annotated[
        list[str] | None,
        typer.Option(
            "--stored",
            metavar="TASK=FILE:ARRAY:AXES",
            help="Score fields of a file, too, such as heat=heat2.npz:exa_gpu:t,x.",
        ),
    ] = None,
    part: Part = None,
    page_only: Annotated[
        bool, typer.Option("--page-only", help="Write the pages again from the records; run nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as JSON for scripts.")] = False,
) -> None:
    """Score samplers on tasks: errors of mean, spread and laws, time and network calls.

    Every finished cell is kept: the same command resumes after a stop. A
    sampler that takes longer than its budget ends as DNF, one that fails as
    FAILED, a task whose model is not shipped as ABSENT.

    `exact` needs no model: velocities are exact, the distribution given the
    laws is known, and the scores of as many exact draws stand beside those
    of every sampler.
    """
    from snapfm.runs import share_of

    if suite == NAME:
        exact(out, count, steps, only, share_of(part), page_only, as_json)
        return
    if count is not None or steps is not None:
        raise SettingError(
            f"snapfm quality --count and --steps expect the suite 'exact'; got '{suite}', which has its own. Leave them out."
        )
    from dataclasses import asdict

    from snapfm.evidence.quality import Cell, State, load_suite, run
    from snapfm.evidence.quality.run import write_pages
    from snapfm.evidence.quality.stored import parse
    from snapfm.evidence.record import read_folder

    require("matplotlib", "the pages of snapfm quality", "report")  # checked now rather than after an hour of sampling
    chosen, share = load_suite(suite), share_of(part)
    check_folder("quality", out)
    if page_only:
        cells: Cells = read_folder(out, chosen, Cell)
        write_pages(out, chosen)
    else:
        with followed(" × ".join, _ended) as tell:
            cells = run(chosen, out, only, tell, share, [parse(one) for one in stored or ()])
    if as_json:
        typer.echo(json.dumps([asdict(cell) for cell in cells.values()], indent=2, ensure_ascii=False))
    else:
        _print(chosen, cells)
        typer.echo(f"The page: {out / 'index.html'}")
    if any(cell.status is State.FAILED for cell in cells.values()):
        raise typer.Exit(code=1)


def _ended(cell: Cell) -> str:
    spent = cell.seconds.get("total")
    return str(cell.status) + (f", {spent:.1f} s" if spent is not None else "")


def _print(suite: Suite, cells: Cells) -> None:
    from snapfm.evidence.page.document import PUBLISHED, Entry, terminal
    from snapfm.evidence.quality.pages import summary, verdicts

    found = summary(suite, cells)
    ours = [row for row in found.rows if not row[0].words.endswith(PUBLISHED)]
    # Samplers downwards: five tasks fit a narrow terminal, seven samplers do not.
    rows: list[tuple[str | Entry, ...]] = [
        (head, *(row[place] for row in ours)) for place, head in enumerate(found.heads[1:], start=1)
    ]
    console = Console()
    console.print(terminal("MMSE / SMSE, in units of 1e-2", ["sampler", *(task.title for task in suite.tasks)], rows))
    for sentence in verdicts(suite, cells):
        console.print(sentence, highlight=False, markup=False)
