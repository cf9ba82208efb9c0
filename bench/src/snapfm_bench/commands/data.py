"""`snapfm data`: simulated fields of a problem in a Zarr file; the same command resumes a stopped run."""

from __future__ import annotations

import json
from typing import Annotated, cast

import typer

from snapfm.cli.options import THIS_PROCESS, EngineOptions, Json, Log, Out, Settings, read_settings, with_engine
from snapfm.cli.watch import described, described_file, unfinished, watched
from snapfm.errors import DataError
from snapfm.text import plural
from snapfm_bench.commands.options import ProblemName


@with_engine
def data(
    problem: ProblemName,
    count: Annotated[str, typer.Option(metavar="N", help="Number of fields; `paper`: as many as in the paper.")],
    out: Out,
    seed: Annotated[int, typer.Option(help="Seed; field i depends only on the seed and i.")] = 0,
    dtype: Annotated[str, typer.Option(help="float64 keeps every bit, float32 halves the file.")] = "float64",
    settings: Settings = None,
    engine: EngineOptions = THIS_PROCESS,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Simulate fields of a problem into a Zarr file; resumes a run that was stopped.

    The file holds the fields and the values drawn for them. It has the same
    bits however often the run was stopped. Read it with xarray.open_zarr.
    """
    from snapfm.files.requests import DtypeName
    from snapfm_bench.files import DataRecipe, paper_count, write
    from snapfm_bench.files.simulated import Simulated

    number = paper_count(problem) if count == "paper" else _whole(count)
    recipe = DataRecipe(problem, number, seed, cast(DtypeName, dtype), read_settings("data", settings))
    run = watched(
        engine, log, number, Simulated.block, "fields", lambda show, chosen: write(recipe, out, show, engine=chosen)
    )
    written, seconds = run.found, run.seconds
    shape, resumed, size = described(written)
    if as_json:
        typer.echo(json.dumps({**recipe.asked(), **described_file(written), "seconds": round(seconds, 3)}, indent=2))
    elif written.missing:
        typer.echo(unfinished(written, run))
    elif written.found == number:
        typer.echo(f"{out} already holds {plural(number, 'field')} of this run ({size}).")
    else:
        typer.echo(f"{out}: {plural(number, 'field')} of {shape}, {dtype}{resumed} ({size}, {seconds:.1f} s).")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError as cause:
        raise DataError(
            f"snapfm data --count expects a whole number or 'paper'; got {text!r}. Try --count 1000."
        ) from cause
