"""The command line: one file per command, each importing what it needs when it runs, so that --help is quick."""

from snapfm.cli.app import main

__all__ = ["main"]
