"""`snapfm export FILE`: a finished file in a layout that others read."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from snapfm.cli.options import check_suffix
from snapfm.errors import UnknownName
from snapfm.text import bytes_text

_FORMATS = ("well",)


def export(
    file: Annotated[
        str, typer.Argument(metavar="FILE.zarr", help="A file written by snapfm data, sample or project; path or URL.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE.hdf5", help="File to write; created only once complete.")],
    form: Annotated[
        str, typer.Option("--format", metavar="well", help="The layout of The Well: HDF5, float32.")
    ] = "well",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON summary for scripts.")] = False,
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
    else:
        names = ", ".join(found.fields)
        typer.echo(
            f"{out}: {found.count} trajectories ({names}), {len(found.scalars)} scalars ({bytes_text(found.bytes)})."
        )
        if found.left_out:
            typer.echo(f"Left out, because The Well has no place for their axes: {', '.join(found.left_out)}.")
