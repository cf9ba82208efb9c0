"""`snapfm sample`, `project` and `export`: fields in files. Runs of the first two resume, and their fields have certificates."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table

from snapfm.cli.options import (
    LAWS,
    THIS_PROCESS,
    Batch,
    EngineOptions,
    Json,
    KeepFailed,
    Log,
    Out,
    Settings,
    Threads,
    Tolerance,
    check_suffix,
    read_names,
    read_settings,
    read_shape,
    with_engine,
)
from snapfm.cli.watch import FAILED, Ran, described, described_file, unfinished, watched
from snapfm.errors import SettingError, UnknownName, bench, require_all
from snapfm.text import bytes_text, plural

if TYPE_CHECKING:
    from snapfm.files import Generated, ProjectedFile
    from snapfm.files.requests import DtypeName
    from snapfm.solve.base import OnFailure

_WORK = {"velocity": "network"}  # names of work in sentences, where they are not those of figures
_FORMATS = ("well",)


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
    laws: Annotated[str | None, LAWS] = None,
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
    batch: Batch = 32,
    tolerance: Tolerance = 1e-8,
    settings: Settings = None,
    dtype: Annotated[
        str, typer.Option(help="float64: fields obey to the tolerance; float32: rounded, half the size.")
    ] = "float64",
    keep_failed: KeepFailed = False,
    threads: Threads = None,
    engine: EngineOptions = THIS_PROCESS,
    log: Log = None,
    as_json: Json = False,
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

    require_all("snapfm sample", {"zarr": "data"})
    recipe: Any
    if velocity is None:
        if problem is None or laws or shape or params or dims:
            raise SettingError(
                "snapfm sample expects a PROBLEM, or --velocity, --laws and --shape of your own model; got neither, or both. "
                "`snapfm problems` lists the problems."
            )
        chosen = read_settings("sample", settings)
        files = bench("snapfm sample PROBLEM").files
        recipe = files.SampleRecipe(problem, count, model, steps, seed, batch, tolerance, dtype, chosen, threads)
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
            None if params is None else named("--params", params), read_names(dims), steps, seed, batch, tolerance,
            cast("DtypeName", dtype), threads,
        )  # fmt: skip
    on_failure: OnFailure = "keep" if keep_failed else "raise"
    run = watched(
        engine, log, count, min(batch, count), "samples",
        lambda show, chosen: generate(recipe, out, show, on_failure=on_failure, engine=chosen),
    )  # fmt: skip
    _tell(run, "sample", as_json)


@with_engine
def project(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Fields, samples first: NPY, NPZ, Zarr (path or URL), HDF5 or safetensors."
        ),
    ],
    laws: Annotated[str, LAWS],
    out: Out,
    var: Annotated[
        str | None, typer.Option(help="Name of the array of fields.", show_default="u, or the only one")
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME=ARRAY",
            help="Arrays in the file that the laws read, by the same name or another.",
            show_default="all with a value for each field",
        ),
    ] = None,
    dims: Annotated[
        str | None, typer.Option(metavar="X,T", help="Names of the axes of a field.", show_default="those of the file")
    ] = None,
    tolerance: Tolerance = 1e-8,
    batch: Batch = 32,
    dtype: Annotated[str | None, typer.Option(help="float64 or float32.", show_default="that of the fields")] = None,
    keep_failed: KeepFailed = False,
    threads: Threads = None,
    engine: EngineOptions = THIS_PROCESS,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Project existing fields onto laws, into a Zarr file; resumes a run that was stopped.

    Fields are read and written block by block, in bounded memory. The file
    holds the projected fields, their params, the certificate of each field,
    and the violation of every law before and after.

    Laws are Python: --laws mine:laws is the list `laws` of a file mine.py in
    this folder, with laws such as Equality("mean", lambda u, p: u.mean()).

    A field that does not converge stops the run; blocks before it are kept.
    With --keep-failed the run continues. Either way the exit code is 1.
    """
    from snapfm.files import Projecting, named, project_file

    kind = cast("DtypeName | None", dtype)
    recipe = Projecting(
        file, named("--laws", laws), var, read_names(params), read_names(dims), tolerance, batch, kind, threads
    )
    on_failure: OnFailure = "keep" if keep_failed else "raise"
    source = recipe.source(on_failure)
    run = watched(
        engine, log, source.count, source.block, "fields",
        lambda show, chosen: project_file(recipe, out, show, on_failure=on_failure, engine=chosen),
    )  # fmt: skip
    _tell(run, "field", as_json)


def _tell(run: Ran[Any], noun: str, as_json: bool) -> None:
    """Print what a file of certified fields holds; end with FAILED if some did not converge."""
    found: Generated | ProjectedFile = run.found
    laws = getattr(found, "laws", ())
    by_law = list(zip(laws, found.totals.before, found.totals.after))
    # The rest of the time went into preparing and writing. Of several processes it is the sum of theirs.
    whole = max(run.seconds, sum(found.written.figures.values()))
    split = {**found.seconds, "other": whole - sum(found.seconds.values())}
    if as_json:
        violations = {law: {"before": before, "after": after} for law, before, after in by_law}
        summary = {
            **found.asked,
            **described_file(found.written),
            "converged": found.converged,
            "statuses": found.statuses,
            "worst_violation": found.violation,
            **({"violations": violations} if laws else {}),
            "seconds": {name: round(value, 3) for name, value in {**split, "total": run.seconds}.items()},
        }
        typer.echo(json.dumps(summary, indent=2))
    elif found.written.missing:
        typer.echo(unfinished(found.written, run))
    else:
        typer.echo(_sentence(found, noun, run.seconds, split))
        if laws:
            _table(by_law)
        asked = found.asked
        if (
            asked["dtype"] == "float32"
            and not found.failed
            and max(found.totals.after, default=0.0) > asked["tolerance"]
        ):
            typer.echo(
                f"Violations above the tolerance of {asked['tolerance']:g} come from rounding to float32; --dtype float64 avoids "
                "it."
            )
    if found.failed:
        raise typer.Exit(FAILED)


def _sentence(found: Generated, noun: str, seconds: float, split: dict[str, float]) -> str:
    """Describe what the file holds, how the samples ended, and where the time went."""
    path, count = found.written.path, found.written.count
    shape, resumed, size = described(found.written)
    worst = "not a number" if found.violation is None else f"{found.violation:.1e}"
    others = ", ".join(f"{number} {name}" for name, number in found.statuses.items() if name != "CONVERGED")
    verdict = f"{found.converged} of {count} converged{f' ({others})' * bool(others)}, worst violation {worst}"
    if found.written.found == count:
        return f"{path} already holds {plural(count, noun)} of this run: {verdict} ({size})."
    shares = ", ".join(f"{_WORK.get(name, name)} {part / sum(split.values()):.0%}" for name, part in split.items())
    return f"{path}: {plural(count, noun)} of {shape}{resumed}; {verdict} ({size}, {seconds:.1f} s: {shares})."


def _table(by_law: list[tuple[str, float, float]]) -> None:
    """Print the largest violation of each law before and after."""
    table = Table("largest violation of", box=None, padding=(0, 2, 0, 0))
    for head in ("before", "after"):
        table.add_column(head, justify="right", no_wrap=True)
    for law, before, after in by_law:
        table.add_row(law, f"{before:.1e}", f"{after:.1e}")
    Console().print(table)


def export(
    file: Annotated[
        str, typer.Argument(metavar="FILE.zarr", help="A file written by snapfm data, sample or project; path or URL.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE.hdf5", help="File to write; created only once complete.")],
    form: Annotated[
        str, typer.Option("--format", metavar="well", help="The layout of The Well: HDF5, float32.")
    ] = "well",
    as_json: Json = False,
) -> None:
    """Write a finished file in the HDF5 layout of The Well, in bounded memory.

    Fields become (samples, time, space) in float32. The values drawn for each
    sample and its certificate become scalars.
    """
    from snapfm.files.well import export_well

    if form not in _FORMATS:
        raise UnknownName(f"snapfm export --format expects one of {list(_FORMATS)}; got {form!r}. Use one of these.")
    check_suffix("export", out, ".hdf5", ".h5")
    found = export_well(file, out)
    if as_json:
        typer.echo(json.dumps({**asdict(found), "path": str(found.path)}, indent=2))
        return
    names, scalars = ", ".join(found.fields), len(found.scalars)
    typer.echo(f"{out}: {found.count} trajectories ({names}), {scalars} scalars ({bytes_text(found.bytes)}).")
    if found.left_out:
        typer.echo(f"Left out, because The Well has no place for their axes: {', '.join(found.left_out)}.")
