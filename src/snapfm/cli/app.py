"""The typer application: registers the commands and turns user errors, file errors and Ctrl-C into one clear line."""

from __future__ import annotations

import errno
import logging
import sys
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from snapfm import __version__
from snapfm.cli.doctor import doctor, kernels
from snapfm.cli.fields import export, project, sample
from snapfm.cli.options import file_error
from snapfm.errors import SnapfmError

_USER_ERROR = 2  # the exit code of a wrong call, as in click; 1 is left for work that was done and failed
_STOPPED = 130  # the exit code of Ctrl-C, as in shells: 128 and the number of the signal
_RESUMES = ("bench", "data", "project", "quality", "sample", "train")  # these continue where they were stopped


class Commands(TyperGroup):
    """All commands, with one handler for those that are stopped or cannot read or write."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Zarr writes in tasks of its own; those cut off here would complain while the process ends.
            logging.getLogger("asyncio").disabled = True
            name = ctx.invoked_subcommand
            then = "resumes where it stopped" if name in _RESUMES else "starts over"
            _print(f"snapfm {name} was stopped by Ctrl-C before it was done. The same command {then}.")
            raise typer.Exit(_STOPPED) from None
        except OSError as trouble:
            if trouble.errno == errno.EPIPE:  # the reader of a pipe closed it, which is no error
                raise
            raise file_error(ctx.invoked_subcommand, trouble, ctx.invoked_subcommand in _RESUMES) from trouble


app = typer.Typer(
    name="snapfm",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (sample, project, export, doctor, kernels):
    app.command()(command)


def _join_packages() -> None:
    """Add the commands of installed packages such as snapfm_bench; one that cannot be imported leaves the others usable."""
    for package in entry_points(group="snapfm.commands"):
        try:
            register = package.load()
        except ImportError as trouble:
            _print(
                f"snapfm expects the package {package.module.partition('.')[0]}, whose commands join it, to be importable; got: "
                f"{escape(str(trouble))}. Install it again or remove it; all other commands work."
            )
        else:
            register(app)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"snapfm {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Flow models that obey physical laws: certified, batched projection."""


def main() -> None:
    """Run the command line."""
    try:
        app()
    except SnapfmError as mistake:
        # Messages contain brackets, such as snapfm[data], which are not markup.
        _print(f"[bold red]{type(mistake).__name__}:[/] {escape(str(mistake))}")
        sys.exit(_USER_ERROR)


def _print(text: str) -> None:
    # soft_wrap: the terminal breaks lines, so that a path can still be copied in one piece.
    Console(stderr=True).print(text, highlight=False, soft_wrap=True)


_join_packages()
