"""What several commands of the bench ask for: a problem by name, and a folder that is checked before the work starts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from snapfm.cli.options import told
from snapfm.errors import DataError

ProblemName: TypeAlias = Annotated[
    str, typer.Argument(metavar="PROBLEM", help="Name of a problem; `snapfm problems` lists them.")
]


def check_folder(command: str, out: Path) -> None:
    """Refuse a folder that cannot be made or written to, without creating it."""
    expected = f"snapfm {command} --out expects a folder to write to"
    try:
        nearest = out.absolute()
        while not nearest.exists():
            nearest = nearest.parent
        if not nearest.is_dir():
            which = "which is a file" if nearest == out.absolute() else f"where {nearest} is a file"
            raise DataError(f"{expected}; got {out}, {which}. Choose another folder.")
        with tempfile.TemporaryDirectory(prefix=".snapfm-", dir=nearest):
            pass
    except OSError as trouble:
        raise DataError(f"{expected}; got {out}, of which the system says {told(trouble)}") from trouble
