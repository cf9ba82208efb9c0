"""`snapfm inspect PROBLEM`: print the structure of a problem's laws and draw where its Jacobian can be non-zero."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def inspect(
    name: Annotated[str, typer.Argument(metavar="PROBLEM", help="A problem's name; `snapfm problems` lists them.")],
    out: Annotated[
        Path | None, typer.Option(help="PNG file for the pattern. Default: build/inspect/PROBLEM.png")
    ] = None,
    picture: Annotated[bool, typer.Option(help="Draw the pattern (needs matplotlib).")] = True,
) -> None:
    """Show rows, non-zeros, kinds of rows, passes, fixed unknowns and redundant rows of a problem's laws."""
    import torch
    from rich.console import Console

    from snapfm.cli.pattern_picture import draw_pattern
    from snapfm.problems import problem
    from snapfm.structure import analyze

    console = Console()
    with console.status(f"analysing {name} …"):
        chosen = problem(name)
        params = chosen.params(1, torch.Generator().manual_seed(0))
        structure = analyze(chosen.laws, chosen.grid.shape, params)
    console.print(f"[bold]{chosen.name}[/]: {chosen.summary}", highlight=False)
    # soft_wrap: the table keeps its columns in narrow terminals and in files
    console.print(str(structure), highlight=False, markup=False, soft_wrap=True)
    if picture:
        target = out if out is not None else Path("build/inspect") / f"{name}.png"
        draw_pattern(structure, chosen.name, target)
        console.print(f"pattern drawn in {target}", highlight=False)
