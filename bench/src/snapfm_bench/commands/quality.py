"""`snapfm quality SUITE`: samplers × tasks on the shipped models, scored against simulated truth; records and a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from snapfm.cli.options import THIS_PROCESS, EngineOptions, with_engine
from snapfm.errors import SettingError, require_all
from snapfm_bench.commands.exact import NAME, exact
from snapfm_bench.commands.options import check_folder
from snapfm_bench.commands.progress import suite_cells

if TYPE_CHECKING:
    from snapfm_bench.suites.quality import QualityCell, QualitySuite
    from snapfm_bench.suites.quality.suite import Cells


@with_engine
def quality(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="SUITE",
            help="smoke, steps, paper, plain, plain-steps, best, exact, or the path of your own TOML file.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the records and the pages.")],
    only: Annotated[str | None, typer.Option(metavar="TASK", help="Run only this task or exact case.")] = None,
    count: Annotated[int | None, typer.Option(metavar="N", help="Samples per exact case; 512 by default.")] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="N,N", help="Flow steps of exact cases; 20,100,200 by default.")
    ] = None,
    stored: Annotated[
        list[str] | None,
        typer.Option(
            "--stored",
            metavar="TASK=FILE:ARRAY:AXES",
            help="Score stored fields too, such as heat=heat2.npz:exa_gpu:t,x; repeatable.",
        ),
    ] = None,
    engine: EngineOptions = THIS_PROCESS,
    page_only: Annotated[
        bool, typer.Option("--page-only", help="Write the pages again from the records; run nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as JSON for scripts.")] = False,
) -> None:
    """Score samplers on tasks: errors of mean, spread and laws, time and network calls.

    Every finished cell is kept: the same command resumes a run that was
    stopped. A sampler that exceeds its budget ends as DNF, one that fails as
    FAILED, a task whose model is not shipped as ABSENT.

    `exact` needs no model: velocities are exact and the distribution given
    the laws is known, so every sampler is compared with as many exact draws.
    """
    if suite == NAME:
        exact(out, count, steps, only, engine, page_only, as_json)
        return
    if count is not None or steps is not None:
        raise SettingError(
            f"snapfm quality --count and --steps expect the suite 'exact'; got '{suite}', which has its own. Leave them out."
        )
    from dataclasses import asdict
    from functools import partial

    from snapfm_bench.record import read_folder
    from snapfm_bench.suites.quality import CellState, QualityCell, load_suite, run
    from snapfm_bench.suites.quality.run import write_pages
    from snapfm_bench.suites.quality.stored import parse

    # Checked now rather than after an hour of sampling.
    require_all("snapfm quality", {"safetensors": "", "matplotlib": ""}, of="snapfm-bench")
    chosen = load_suite(suite)
    check_folder("quality", out)
    if page_only:
        cells: Cells = read_folder(out, chosen, QualityCell)
        write_pages(out, chosen)
    else:
        missing = partial(run, chosen, out.absolute(), only, stored=[parse(one) for one in stored or ()])
        names = [task.name for task in chosen.tasks]
        cells = suite_cells(engine, names, missing, missing, " × ".join, _ended)
    if as_json:
        typer.echo(json.dumps([asdict(cell) for cell in cells.values()], indent=2, ensure_ascii=False))
    else:
        _print(chosen, cells)
        typer.echo(f"The page: {out / 'index.html'}")
    if any(cell.status is CellState.FAILED for cell in cells.values()):
        raise typer.Exit(code=1)


def _ended(cell: QualityCell) -> str:
    spent = cell.seconds.get("total")
    return str(cell.status) + (f", {spent:.1f} s" if spent is not None else "")


def _print(suite: QualitySuite, cells: Cells) -> None:
    from snapfm_bench.pages.document import PUBLISHED, Entry, terminal
    from snapfm_bench.suites.quality.pages import summary, verdicts

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
