"""The typer application: registers the commands and turns a caller's mistake into one clear line."""

from __future__ import annotations

import sys

import typer
from rich.console import Console
from rich.markup import escape

from snapfm.cli.audit import audit
from snapfm.cli.bench import bench
from snapfm.cli.data import data
from snapfm.cli.demo import demo
from snapfm.cli.inspect import inspect
from snapfm.cli.problems import problems
from snapfm.cli.quality import quality
from snapfm.cli.report import report
from snapfm.cli.sample import sample
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
app.command()(data)
app.command()(audit)
app.command()(demo)
app.command()(train)
app.command()(sample)
app.command()(quality)
app.command()(bench)
app.command()(report)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except SnapfmError as mistake:
        # Messages hold brackets, such as snapfm[data], which are no markup.
        Console(stderr=True).print(f"[bold red]{type(mistake).__name__}:[/] {escape(str(mistake))}", highlight=False)
        sys.exit(_USER_ERROR)
