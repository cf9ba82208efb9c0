"""The demonstration from beginning to end: sample with progress bars, print the tables, write picture, page and record."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from snapfm.errors import require
from snapfm.evidence.demo.page import page
from snapfm.evidence.demo.pictures import hero, pictures
from snapfm.evidence.demo.record import RUNS, Evidence, Record, Run, collect
from snapfm.evidence.text import percent, scientific, seconds, terminal
from snapfm.flow.storage import write_file


def run(out: Path, count: int, steps: int, seed: int, console: Console) -> Path:
    """Run the demonstration and return the path of its page.

    Raises ProjectionFailed, and writes nothing, if any sample does not obey its laws.
    """
    require("matplotlib", "the demo's pictures", "report")  # checked now, not after a minute of sampling
    evidence = _collect(count, steps, seed, console)
    console.print(violations(evidence.record))
    console.print(time_split(evidence.record))
    return write(out, evidence)


def write(out: Path, evidence: Evidence) -> Path:
    """Write hero.png, evidence.json and index.html into a folder, each whole or not at all; return the page's path."""
    drawn = {
        "hero.png": hero(evidence),
        "evidence.json": evidence.record.to_json().encode(),
        "index.html": page(evidence.record, pictures(evidence)).encode(),
    }
    for name, content in drawn.items():
        write_file(out / name, content)
    return out / "index.html"


def violations(record: Record) -> Table:
    """Tabulate the largest violation of each law over all samples, before and after, and after in float64."""
    heads = ("law", "equations", "before\nno laws", "after\nfloat32", "after\nfloat64")
    judged = {law: (law.free, law.lawful, law.lawful64) for law in record.laws}
    rows = [(law.name, str(law.rows), *(scientific(one.largest) for one in found)) for law, found in judged.items()]
    table = terminal(f"Largest violation over {record.count} samples", heads, rows, box=True)
    for column, style in zip(table.columns[2:], ("dark_orange", "cyan", "cyan")):
        column.style = style
    return table


def time_split(record: Record) -> Table:
    """Tabulate where the time of each run went."""
    heads = ("run", "velocity", "projection", "share of projection")
    spent = {"without laws": record.free_seconds, "with laws": record.lawful_seconds}
    rows = [
        (name, seconds(one.velocity), seconds(one.projection), percent(one.projection_share))
        for name, one in spent.items()
    ]
    return terminal("Time split", heads, rows, box=True)


def _collect(count: int, steps: int, seed: int, console: Console) -> Evidence:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bars:
        names = ("sampling without laws", "sampling with laws   ")
        tasks = {run: bars.add_task(name, total=steps, start=run == "free") for run, name in zip(RUNS, names)}

        def progress(run: Run, done: int, total: int) -> None:
            bars.start_task(tasks[run])  # its clock starts with its first step
            bars.update(tasks[run], completed=done, total=total)

        return collect(count, steps, seed, progress)
