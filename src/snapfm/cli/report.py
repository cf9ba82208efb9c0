"""`snapfm report DIR…`: one page of figures, tables and pictures from the records of benchmark runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Folders that snapfm bench wrote; several make one page.")
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for index.html and report.md.")],
) -> None:
    """Write a self-contained page from the records of benchmark runs; nothing is run.

    Cells without a figure are shown with their reason, published figures
    beside what was measured.
    """
    from rich.console import Console

    from snapfm.cli.place import check_folder
    from snapfm.errors import require
    from snapfm.evidence.projection.report import PAGE, write
    from snapfm.evidence.projection.report.overview import coverage

    require("matplotlib", "the pages of snapfm report", "report")
    check_folder("report", out)
    book = write(folders, out)
    screen = Console()
    screen.print(coverage(book), markup=False, highlight=False, soft_wrap=True)
    screen.print(f"The page: {out / PAGE}", markup=False, highlight=False, soft_wrap=True)
