"""The commands of the benchmark, which join the command line of snapfm: problems, data, training, suites, pages and the demo."""

from __future__ import annotations

import typer

from snapfm_bench.commands.bench import bench, report
from snapfm_bench.commands.data import data
from snapfm_bench.commands.demo import demo
from snapfm_bench.commands.problems import audit, inspect, problems
from snapfm_bench.commands.quality import quality
from snapfm_bench.commands.train import train


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    for command in (problems, inspect, data, audit, demo, train, quality, bench, report):
        app.command()(command)
