"""`snapfm demo`: the same model and noise, sampled without and with laws; a table, a picture and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from snapfm.errors import ProjectionFailed
from snapfm_bench.commands.options import check_folder


def demo(
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for index.html, hero.png and evidence.json.")
    ] = Path("build/demo"),
    count: Annotated[int, typer.Option(min=1, help="Number of samples.")] = 16,
    steps: Annotated[int, typer.Option(min=1, help="Number of flow steps.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the noise; both runs share it.")] = 0,
) -> None:
    """Sample heat and Burgers fields without and with laws, and write a page that shows the difference."""
    from snapfm_bench.demo.run import run

    check_folder("demo", out)
    console = Console()
    try:
        page = run(out, count, steps, seed, console)
    except ProjectionFailed as failure:
        Console(stderr=True).print(f"ProjectionFailed: {failure}", style="red", markup=False, highlight=False)
        raise typer.Exit(code=1) from failure
    console.print(f"\nThe page: {page}", markup=False, highlight=False, soft_wrap=True)
