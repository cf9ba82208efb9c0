"""`snapfm sample PROBLEM`: draw constrained fields into a Zarr file; the same command resumes a run that was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from snapfm.generate import Generated

_FAILED = 1  # exit code of work that was done and failed


def sample(
    problem: Annotated[
        str, typer.Argument(metavar="PROBLEM", help="Problem whose laws to obey; `snapfm problems` lists them.")
    ],
    count: Annotated[int, typer.Option(metavar="N", help="Number of samples.")],
    out: Annotated[Path, typer.Option(metavar="FILE.zarr", help="File to write; it appears when it is whole.")],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FOLDER", help="A shipped model, or the folder of a checkpoint.", show_default="by equation"
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Flow steps from noise to field, each with a projection.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed; sample i depends on it and on i alone.")] = 0,
    batch: Annotated[
        int, typer.Option(help="Samples drawn, held in memory and written at a time; a stop loses at most these.")
    ] = 32,
    tolerance: Annotated[
        float, typer.Option(help="Largest violation of a law, in its own units, that counts as obeyed.")
    ] = 1e-8,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the problem, such as phase=none; repeatable."),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="float64 fields obey to the tolerance; float32 halves the file and rounds them.")
    ] = "float64",
    keep_failed: Annotated[
        bool, typer.Option("--keep-failed", help="Write samples that do not converge too, marked by their status.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads of the network; another number may change last bits.", show_default="all cores"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON summary for scripts.")] = False,
) -> None:
    """Draw fields that obey a problem's laws into a Zarr file; resumes a run that was stopped.

    Physics-constrained flow matching, block by block in bounded memory. The
    file holds the fields, the params of their laws, and the certificate of
    each sample: status, violation, stationarity, iterations and distance. The
    same command goes on after a stop, to the same bits. Read it with
    xarray.open_zarr.

    Samples that do not converge stop the run; what was written before is
    kept. With --keep-failed it goes on. Either way the exit code is 1.
    """
    from time import perf_counter
    from typing import cast

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from snapfm.cli.settings import read_settings
    from snapfm.data.recipe import DtypeName
    from snapfm.errors import ProjectionFailed
    from snapfm.generate import Recipe, generate

    recipe = Recipe(
        problem, count, model, steps, seed, batch, tolerance, cast(DtypeName, dtype),
        read_settings("sample", settings or []), threads,
    )  # fmt: skip
    began = perf_counter()
    screen = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("samples"), TimeRemainingColumn())
    try:
        with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
            task = bar.add_task("samples", total=count)
            found = generate(
                recipe,
                out,
                lambda done: bar.update(task, completed=int(done)),
                on_failure="keep" if keep_failed else "raise",
            )
    except ProjectionFailed as failure:
        screen.print(f"ProjectionFailed: {failure}", style="red", markup=False, highlight=False)
        raise typer.Exit(_FAILED) from failure
    seconds = perf_counter() - began
    typer.echo(json.dumps(_summary(found, seconds), indent=2) if as_json else _sentence(found, seconds))
    if found.failed:
        raise typer.Exit(_FAILED)


def _summary(found: Generated, seconds: float) -> dict[str, Any]:
    written = found.written
    return {
        **found.asked,
        "path": str(written.path),
        "shape": list(written.shape),
        "found": written.found,
        "converged": found.converged,
        "statuses": found.statuses,
        "worst_violation": found.violation,
        "bytes": written.bytes,
        "seconds": {name: round(value, 3) for name, value in {**found.seconds, "total": seconds}.items()},
    }


def _sentence(found: Generated, seconds: float) -> str:
    """Say what the file holds, what became of the samples, and where the time went."""
    written = found.written
    worst = "not a number" if found.violation is None else f"{found.violation:.1e}"
    size = f"{written.bytes / 1e6:.1f} MB"
    others = ", ".join(f"{number} {name}" for name, number in found.statuses.items() if name != "CONVERGED")
    verdict = f"{found.converged} of {written.count} converged{f' ({others})' * bool(others)}, worst violation {worst}"
    if written.found == written.count:
        return f"{written.path} holds these {written.count} samples already: {verdict} ({size})."
    resumed = f", of which {written.found} were there from before" if written.found else ""
    shape = "×".join(map(str, written.shape))
    shares = ", ".join(
        f"{word} {found.seconds[name] / seconds:.0%}"
        for word, name in (("network", "velocity"), ("projection", "projection"))
    )
    return (
        f"{written.path}: {written.count} samples of {shape}{resumed}; {verdict} ({size}, {seconds:.1f} s: {shares})."
    )
