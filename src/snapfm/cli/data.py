"""`snapfm data PROBLEM`: simulate fields into a Zarr file; the same command resumes a run that was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def data(
    problem: Annotated[
        str, typer.Argument(metavar="PROBLEM", help="Problem whose fields to simulate; `snapfm problems` lists them.")
    ],
    count: Annotated[str, typer.Option(metavar="N", help="Number of fields, or `paper` for as many as the paper has.")],
    out: Annotated[Path, typer.Option(metavar="FILE.zarr", help="File to write; it appears when it is whole.")],
    seed: Annotated[int, typer.Option(help="Seed; field i depends on it and on i alone.")] = 0,
    dtype: Annotated[str, typer.Option(help="float64 keeps every bit, float32 halves the file.")] = "float64",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the problem, such as nx=128; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON summary for scripts.")] = False,
) -> None:
    """Simulate fields of a problem into a Zarr file; resumes a run that was stopped.

    The file holds the fields and all that was drawn for them, the same bits
    however often the run was stopped. Read it with xarray.open_zarr.
    """
    from time import perf_counter
    from typing import cast

    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from snapfm.cli.settings import read_settings
    from snapfm.data import Recipe, paper_count, write
    from snapfm.data.recipe import DtypeName

    number = paper_count(problem) if count == "paper" else _whole(count)
    recipe = Recipe(problem, number, seed, cast(DtypeName, dtype), read_settings("data", settings or []))
    torch.set_num_threads(1)  # the simulators work in tiles that fit the cache: threads would only wait for each other
    began = perf_counter()
    screen = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("fields", total=number)
        written = write(recipe, out, lambda done: bar.update(task, completed=done))
    seconds = perf_counter() - began
    if as_json:
        summary = {
            **recipe.asked(), "path": str(out), "shape": list(written.shape), "found": written.found,
            "bytes": written.bytes, "seconds": round(seconds, 3),
        }  # fmt: skip
        typer.echo(json.dumps(summary, indent=2))
        return
    size = f"{written.bytes / 1e6:.1f} MB"
    if written.found == number:
        typer.echo(f"{out} holds these {number} fields already ({size}).")
        return
    resumed = f", of which {written.found} were there from before" if written.found else ""
    shape = "×".join(map(str, written.shape))
    typer.echo(f"{out}: {number} fields of {shape}, {dtype}{resumed} ({size}, {seconds:.1f} s).")


def _whole(text: str) -> int:
    from snapfm.errors import DataError

    try:
        return int(text)
    except ValueError as cause:
        raise DataError(
            f"snapfm data --count expects a whole number or 'paper'; got {text!r}. Try --count 1000."
        ) from cause
