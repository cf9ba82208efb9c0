"""`snapfm sample`: constrained fields in a Zarr file; the same command resumes a stopped run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import typer
from rich.console import Console

from snapfm.cli.engines import THIS_PROCESS, EngineOptions, with_engine
from snapfm.cli.options import Settings, read_names, read_settings, read_shape
from snapfm.cli.watch import Log, Watch
from snapfm.errors import ProjectionFailed, SettingError, bench, require_all
from snapfm.text import bytes_text, extents, plural

if TYPE_CHECKING:
    from snapfm.files import Generated, Written
    from snapfm.files.engines import Share

Out: TypeAlias = Annotated[
    str, typer.Option(metavar="FILE.zarr|URL", help="File to write, created only once complete; or a URL: s3://…")
]
FAILED = 1  # exit code of work that was done and failed
_PARTS = {"velocity": "network", "projection": "projection", "other": "other"}  # of the time, as the summary names them


@with_engine
def sample(
    count: Annotated[int, typer.Option(metavar="N", help="Number of samples.")],
    out: Out,
    problem: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROBLEM]", help="Name of a problem; leave it out with --velocity.", show_default=False
        ),
    ] = None,
    velocity: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="Your own model, velocity(u, tau), instead of a problem."),
    ] = None,
    laws: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="Laws of your model: a list, or a function that returns one."),
    ] = None,
    shape: Annotated[str | None, typer.Option(metavar="N,N", help="Shape of one field of your model.")] = None,
    params: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="Params of the laws: a dict, or a function (seed, start, count)."),
    ] = None,
    dims: Annotated[str | None, typer.Option(metavar="X,T", help="Names of the axes of a field.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FOLDER", help="A shipped model, or the folder of a checkpoint.", show_default="EQUATION-plain"
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Flow steps from noise to field, each with a projection.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed; sample i depends only on the seed and i.")] = 0,
    batch: Annotated[
        int, typer.Option(help="Samples per block: drawn, then written, then freed. A stop loses at most one block.")
    ] = 32,
    tolerance: Annotated[
        float, typer.Option(help="Largest violation of a law, in its own units, that counts as obeyed.")
    ] = 1e-8,
    settings: Settings = None,
    dtype: Annotated[
        str, typer.Option(help="float64: fields obey to the tolerance; float32: rounded, half the size.")
    ] = "float64",
    keep_failed: Annotated[
        bool, typer.Option("--keep-failed", help="Also write samples that do not converge, marked by their status.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads of the network; changing it may change the last bits.", show_default="all cores"),
    ] = None,
    engine: EngineOptions = THIS_PROCESS,
    log: Log = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON summary for scripts.")] = False,
) -> None:
    """Draw fields that obey laws into a Zarr file; resumes a run that was stopped.

    Samples are drawn block by block, in bounded memory. The file holds the
    fields, the params of their laws, and the certificate of each sample:
    status, violation, stationarity, iterations and distance. If you stop the
    command, run it again: it resumes and ends with the same bits. Read the
    file with xarray.open_zarr.

    Name your own model and laws as module:name; modules are also looked up in
    the current folder: --velocity mine:velocity --laws mine:laws --shape 64,64

    A sample that does not converge stops the run; blocks before it are kept.
    With --keep-failed the run continues. Either way the exit code is 1.
    """
    from snapfm.files import OwnRecipe, generate, named
    from snapfm.files.requests import DtypeName
    from snapfm.files.run import SampleRequest

    require_all("snapfm sample", {"zarr": "data"})
    kind = cast(DtypeName, dtype)
    recipe: SampleRequest
    if velocity is None:
        if problem is None or laws or shape or params or dims:
            raise SettingError(
                "snapfm sample expects a PROBLEM, or --velocity, --laws and --shape of your own model; got neither, or both. "
                "`snapfm problems` lists the problems."
            )
        chosen = read_settings("sample", settings)
        files = bench("snapfm sample PROBLEM").files
        recipe = files.SampleRecipe(problem, count, model, steps, seed, batch, tolerance, kind, chosen, threads)
    else:
        if problem is not None or model is not None or settings or laws is None or shape is None:
            lacking = [option for option, value in (("--laws", laws), ("--shape", shape)) if value is None]
            beside = {"the PROBLEM": problem, "--model": model, "--set": settings}
            came = [f"no {option}" for option in lacking] + [option for option, value in beside.items() if value]
            raise SettingError(
                f"snapfm sample --velocity expects --laws and --shape, and no PROBLEM, --model or --set; got {', '.join(came)}. "
                "Write it as in --velocity mine:velocity --laws mine:laws --shape 64,64."
            )
        recipe = OwnRecipe(
            named("--velocity", velocity), named("--laws", laws), read_shape(shape), count,
            None if params is None else named("--params", params), read_names(dims), steps, seed, batch, tolerance, kind,
            threads,
        )  # fmt: skip
    watch = Watch(log)
    chosen_engine = engine.build(watch.failed)
    began = perf_counter()
    block = min(batch, count)
    with failures_told(), watch.shown(chosen_engine.share.units(count, block), block, "samples") as show:
        found = generate(recipe, out, show, on_failure="keep" if keep_failed else "raise", engine=chosen_engine)
    seconds = perf_counter() - began
    if as_json:
        typer.echo(json.dumps(_summary(found, seconds), indent=2))
    elif found.written.missing:
        typer.echo(unfinished(found.written, chosen_engine.share, seconds))
    else:
        typer.echo(_sentence(found, seconds))
    if found.failed:
        raise typer.Exit(FAILED)


def _summary(found: Generated, seconds: float) -> dict[str, Any]:
    return {
        **found.asked,
        **described_file(found.written),
        "converged": found.converged,
        "statuses": found.statuses,
        "worst_violation": found.violation,
        "seconds": {name: round(value, 3) for name, value in {**_split(found, seconds), "total": seconds}.items()},
    }


def _split(found: Generated, seconds: float) -> dict[str, float]:
    """Return where the time went: network, projection, and all the rest, such as preparing and writing.

    Of several processes it is the sum of theirs.
    """
    whole = max(seconds, sum(found.written.figures.values()))
    return {**found.seconds, "other": whole - sum(found.seconds.values())}


def _sentence(found: Generated, seconds: float) -> str:
    """Describe what the file holds, how the samples ended, and where the time went."""
    path, count = found.written.path, found.written.count
    shape, resumed, size = described(found.written)
    worst = "not a number" if found.violation is None else f"{found.violation:.1e}"
    others = ", ".join(f"{number} {name}" for name, number in found.statuses.items() if name != "CONVERGED")
    verdict = f"{found.converged} of {count} converged{f' ({others})' * bool(others)}, worst violation {worst}"
    if found.written.found == count:
        return f"{path} already holds {plural(count, 'sample')} of this run: {verdict} ({size})."
    split = _split(found, seconds)
    shares = ", ".join(f"{_PARTS[name]} {part / sum(split.values()):.0%}" for name, part in split.items())
    return f"{path}: {plural(count, 'sample')} of {shape}{resumed}; {verdict} ({size}, {seconds:.1f} s: {shares})."


@contextmanager
def failures_told() -> Iterator[None]:
    """Say which samples did not converge, or which block was given up, and end with the exit code of work that failed."""
    from snapfm.files.engines import BlockFailed

    try:
        yield
    except (ProjectionFailed, BlockFailed) as failure:
        Console(stderr=True).print(f"{type(failure).__name__}: {failure}", style="red", markup=False, highlight=False)
        raise typer.Exit(FAILED) from failure


def unfinished(written: Written, share: Share, seconds: float) -> str:
    """Describe a run of which other processes owe a part."""
    there = written.count - written.missing
    return (
        f"{written.path}: part {share} is done ({seconds:.1f} s); {there} of {written.count} "
        f"{'is' if there == 1 else 'are'} written. The process that finishes last completes the file."
    )


def described_file(written: Written) -> dict[str, Any]:
    """Return what scripts want to know of a file."""
    return {
        "path": str(written.path), "shape": list(written.shape), "found": written.found, "missing": written.missing,
        "bytes": written.bytes,
    }  # fmt: skip


def described(written: Written) -> tuple[str, str, str]:
    """Return the shape, how much was there before, and the size, in words."""
    resumed = f", {written.found} of them from an earlier run" if written.found else ""
    return extents(written.shape), resumed, bytes_text(written.bytes)
