"""The typer application: registers the commands and turns a caller's mistake into one clear line."""

from __future__ import annotations

import sys

import typer
from rich.console import Console

from snapfm.cli.demo import demo
from snapfm.cli.inspect import inspect
from snapfm.cli.problems import problems
from snapfm.cli.train import train
from snapfm.errors import SnapfmError

_USER_ERROR = 2  # the exit code of a wrong call, as in click; 1 is left for work that was done and failed

app = typer.Typer(
    name="snapfm",
    help="Flow models that obey physical laws: exact, certified, batched projection.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(problems)
app.command()(inspect)
app.command()(demo)
app.command()(train)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except SnapfmError as mistake:
        Console(stderr=True).print(f"[bold red]{type(mistake).__name__}:[/] {mistake}", highlight=False)
        sys.exit(_USER_ERROR)
