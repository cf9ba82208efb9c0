"""The demonstration from beginning to end: sample with progress bars, print the tables, write picture, page and record.

The only file of demo that touches a disk or a terminal.
"""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from snapfm.demo.collect import collect
from snapfm.demo.evidence import Evidence
from snapfm.demo.page import page
from snapfm.demo.picture import hero, panels
from snapfm.demo.table import time_split, violations
from snapfm.errors import require


def run(out: Path, count: int, steps: int, seed: int, console: Console) -> Path:
    """Run the demonstration and return the path of its page.

    Raises ProjectionFailed, and writes nothing, if any sample does not obey its laws.
    """
    require("matplotlib", "the demo's pictures", "report")  # asked for now: not after a minute of sampling
    evidence = _collect(count, steps, seed, console)
    console.print(violations(evidence.record))
    console.print(time_split(evidence.record))
    return write(out, evidence)


def write(out: Path, evidence: Evidence) -> Path:
    """Write hero.png, evidence.json and index.html into a folder, each whole or not at all; return the page's path."""
    drawn = {
        "hero.png": hero(evidence),
        "evidence.json": evidence.record.to_json().encode(),
        "index.html": page(evidence.record, panels(evidence)).encode(),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, content in drawn.items():
        _write_whole(out / name, content)
    return out / "index.html"


def _collect(count: int, steps: int, seed: int, console: Console) -> Evidence:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bars:
        tasks = {
            "free": bars.add_task("sampling without laws", total=steps),
            "lawful": bars.add_task("sampling with laws   ", total=steps, start=False),
        }

        def progress(stage: str, done: int, total: int) -> None:
            bars.start_task(tasks[stage])  # its clock starts with its first step
            bars.update(tasks[stage], completed=done, total=total)

        return collect(count, steps, seed, progress)


def _write_whole(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")  # beside its target: a rename never crosses disks
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
