"""`snapfm project FILE --laws module:laws`: fields that exist already, projected onto laws; streamed, resumable, certified."""

from __future__ import annotations

import json
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table

from snapfm.cli.engines import THIS_PROCESS, EngineOptions, with_engine
from snapfm.cli.fields import FAILED, Out, described, described_file, failures_told, unfinished
from snapfm.cli.options import read_names
from snapfm.cli.watch import Log, Watch
from snapfm.text import plural

if TYPE_CHECKING:
    from snapfm.files import ProjectedFile


@with_engine
def project(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Fields, samples first: NPY, NPZ, Zarr (path or URL), HDF5 or safetensors."
        ),
    ],
    laws: Annotated[
        str,
        typer.Option(metavar="MODULE:NAME", help="Laws in your module: a list, or a function that returns one."),
    ],
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
    tolerance: Annotated[
        float, typer.Option(help="Largest violation of a law, in its own units, that counts as obeyed.")
    ] = 1e-8,
    batch: Annotated[int, typer.Option(help="Fields per block: read, projected, then written.")] = 32,
    dtype: Annotated[str | None, typer.Option(help="float64 or float32.", show_default="that of the fields")] = None,
    keep_failed: Annotated[
        bool, typer.Option("--keep-failed", help="Also write fields that do not converge, marked by their status.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads of torch; another number may change last bits.", show_default="all cores"),
    ] = None,
    engine: EngineOptions = THIS_PROCESS,
    log: Log = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON summary for scripts.")] = False,
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
    from snapfm.files.projected import ProjectedFields
    from snapfm.files.requests import DtypeName

    kind = cast(DtypeName | None, dtype)
    recipe = Projecting(
        file, named("--laws", laws), var, read_names(params), read_names(dims), tolerance, batch, kind, threads
    )
    watch = Watch(log)
    chosen = engine.build(watch.failed)
    source = ProjectedFields(recipe)
    began = perf_counter()
    units = chosen.share.units(source.count, source.block)
    with failures_told(), watch.shown(units, source.block, "fields") as show:
        found = project_file(recipe, out, show, on_failure="keep" if keep_failed else "raise", engine=chosen)
    seconds = perf_counter() - began
    if as_json:
        typer.echo(json.dumps(_summary(found, seconds), indent=2))
    elif found.written.missing:
        typer.echo(unfinished(found.written, chosen.share, seconds))
    else:
        _print(found, seconds)
    if found.totals.failed:
        raise typer.Exit(FAILED)


def _summary(found: ProjectedFile, seconds: float) -> dict[str, Any]:
    return {
        **found.asked,
        **described_file(found.written),
        "converged": found.totals.converged,
        "statuses": found.totals.statuses,
        "worst_violation": found.totals.violation,
        "violations": {
            law: {"before": before, "after": after}
            for law, before, after in zip(found.laws, found.totals.before, found.totals.after)
        },
        "seconds": {name: round(value, 3) for name, value in {**found.written.figures, "total": seconds}.items()},
    }


def _print(found: ProjectedFile, seconds: float) -> None:
    """Print what the file holds, and the largest violation of each law before and after."""
    shape, resumed, size = described(found.written)
    count, totals = found.written.count, found.totals
    others = ", ".join(f"{number} {name}" for name, number in totals.statuses.items() if name != "CONVERGED")
    verdict = f"{totals.converged} of {count} converged{f' ({others})' * bool(others)}"
    typer.echo(
        f"{found.written.path}: {plural(count, 'field')} of {shape}{resumed}; {verdict} ({size}, {seconds:.1f} s)."
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    for head in ("largest violation of", "before", "after"):
        table.add_column(head, justify="left" if head.startswith("largest") else "right", no_wrap=True)
    for law, before, after in zip(found.laws, totals.before, totals.after):
        table.add_row(law, f"{before:.1e}", f"{after:.1e}")
    Console().print(table)
    asked = found.asked
    if asked["dtype"] == "float32" and not totals.failed and max(totals.after, default=0.0) > asked["tolerance"]:
        typer.echo(
            f"Violations above the tolerance of {asked['tolerance']:g} come from rounding to float32; --dtype float64 avoids it."
        )
