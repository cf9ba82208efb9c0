"""`snapfm quality exact`: every sampler on cases whose answer is known; records and a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from snapfm.cli.options import EngineOptions
from snapfm.errors import SettingError
from snapfm_bench.commands.options import check_folder
from snapfm_bench.commands.progress import suite_cells

if TYPE_CHECKING:
    from snapfm_bench.suites.exact import ExactCell, ExactSuite
    from snapfm_bench.suites.exact.suite import Cells

NAME = "exact"
_LEAST = 2  # samples that have a spread


def exact(
    out: Path, count: int | None, steps: str | None, only: str | None, engine: EngineOptions, page_only: bool, as_json: bool
) -> None:  # fmt: skip
    """Run the exact cases, or write their page again."""
    from dataclasses import asdict
    from functools import partial

    from snapfm_bench.record import read_folder
    from snapfm_bench.suites.exact.run import PAGE, run, write_page
    from snapfm_bench.suites.exact.suite import ExactCell, cases

    suite = _suite(count, steps)
    check_folder("quality", out)
    if page_only:
        cells = read_folder(out, suite, ExactCell)
        write_page(out, suite)
    else:
        missing = partial(run, suite, out.absolute(), only)
        cells = suite_cells(engine, list(cases()), missing, missing, " × ".join, _ended)
    if as_json:
        typer.echo(json.dumps([asdict(cell) for cell in cells.values()], indent=2, ensure_ascii=False))
    else:
        _print(suite, cells)
        typer.echo(f"The page: {out / PAGE}")
    if any(cell.certified < cell.count for cell in cells.values()):
        raise typer.Exit(code=1)


def _suite(count: int | None, steps: str | None) -> ExactSuite:
    from snapfm_bench.suites.exact import ExactSuite

    default = ExactSuite()
    if count is not None and count < _LEAST:
        raise SettingError(
            f"snapfm quality --count expects at least {_LEAST} samples; got {count}. 512 is the default."
        )
    try:
        visited = default.steps if steps is None else tuple(int(one) for one in steps.split(","))
    except ValueError:
        visited = ()
    if not visited or min(visited) < 1 or len(set(visited)) < len(visited):
        raise SettingError(
            f"snapfm quality --steps expects different whole numbers >= 1; got {steps!r}. Write it as in --steps 20,100."
        )
    return ExactSuite(count=default.count if count is None else count, steps=visited)


def _ended(cell: ExactCell) -> str:
    return f"{cell.excess:.1f}× chance, {cell.certified} of {cell.count} certified, {cell.seconds:.1f} s"


def _print(suite: ExactSuite, cells: Cells) -> None:
    from snapfm_bench.pages.document import terminal
    from snapfm_bench.suites.exact.pages import summary

    for curved, laws in ((False, "affine laws"), (True, "nonlinear laws")):
        found = summary(suite, cells, curved)
        if len(found.heads) > 1:
            Console().print(terminal(f"Largest error in units of chance, {laws}", found.heads, found.rows))
