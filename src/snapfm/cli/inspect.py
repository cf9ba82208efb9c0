"""`snapfm inspect PROBLEM`: print the structure of a problem's laws and draw where its Jacobian can be non-zero."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def inspect(
    name: Annotated[str, typer.Argument(metavar="PROBLEM", help="A problem's name; `snapfm problems` lists them.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="File for the pattern. Default: build/inspect/PROBLEM.png"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the problem, such as nx=128; repeatable."),
    ] = None,
    picture: Annotated[bool, typer.Option(help="Draw the pattern (needs matplotlib).")] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts; the pattern is drawn only if --out is given.")
    ] = False,
) -> None:
    """Show rows, non-zeros, kinds of rows, passes, fixed unknowns and redundant rows of a problem's laws."""
    from rich.console import Console

    from snapfm.cli.settings import read_settings
    from snapfm.cli.sizes import sizes, sizes_by_law, structure_of
    from snapfm.evidence.page.pattern import drawn_pattern
    from snapfm.flow.storage import write_file
    from snapfm.problems import problem

    console = Console(stderr=as_json)
    with console.status(f"analysing {name} …"):
        chosen = problem(name, **read_settings("inspect", settings or []))
        structure = structure_of(chosen)
    if as_json:
        found = {**sizes(chosen, structure), "laws": sizes_by_law(structure)}
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        console.print(f"[bold]{chosen.name}[/]: {chosen.summary}", highlight=False)
        # soft_wrap: the table keeps its columns in narrow terminals and in files
        console.print(str(structure), highlight=False, markup=False, soft_wrap=True)
    if picture and (out is not None or not as_json):
        target = out if out is not None else Path("build/inspect") / f"{name}.png"
        write_file(target, drawn_pattern(structure, chosen.name))
        console.print(f"pattern drawn in {target}", highlight=False)
