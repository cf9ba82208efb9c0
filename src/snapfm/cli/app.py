"""The typer application: registers the commands and turns mistakes, trouble with files and Ctrl-C into one clear line."""

from __future__ import annotations

import errno
import sys
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from snapfm.cli.audit import audit
from snapfm.cli.bench import bench
from snapfm.cli.data import data
from snapfm.cli.demo import demo
from snapfm.cli.inspect import inspect
from snapfm.cli.place import told
from snapfm.cli.problems import problems
from snapfm.cli.quality import quality
from snapfm.cli.report import report
from snapfm.cli.sample import sample
from snapfm.cli.train import train
from snapfm.errors import SnapfmError

_USER_ERROR = 2  # the exit code of a wrong call, as in click; 1 is left for work that was done and failed
_STOPPED = 130  # the exit code of Ctrl-C, as in shells: 128 and the number of the signal
_RESUMES = ("bench", "data", "quality", "sample", "train")  # these go on where they were stopped


class Commands(TyperGroup):
    """All commands, with one end for those that are stopped or cannot read or write."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            name = ctx.invoked_subcommand
            told_how = "goes on from what was finished" if name in _RESUMES else "starts anew"
            _say(f"snapfm {name} was stopped by Ctrl-C before it was done. The same command {told_how}.")
            raise typer.Exit(_STOPPED) from None
        except OSError as trouble:
            if trouble.errno == errno.EPIPE:  # the reader of a pipe has had enough, which is no trouble
                raise
            raise told(ctx.invoked_subcommand, trouble, ctx.invoked_subcommand in _RESUMES) from trouble


app = typer.Typer(
    name="snapfm",
    cls=Commands,
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
        _say(f"[bold red]{type(mistake).__name__}:[/] {escape(str(mistake))}")
        sys.exit(_USER_ERROR)


def _say(words: str) -> None:
    # soft_wrap: the terminal breaks lines, so that a path can still be copied in one piece.
    Console(stderr=True).print(words, highlight=False, soft_wrap=True)
