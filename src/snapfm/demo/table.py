"""The two tables of the terminal: how far from each law before and after, and where the time went.

Reads the record only.
"""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from snapfm.demo.numerals import percent, scientific, seconds
from snapfm.demo.record import Record, Seconds


def violations(record: Record) -> Table:
    """Tabulate the largest violation of each law over all samples, before and after, and after in float64."""
    table = Table(title=f"Largest violation over {record.count} samples", title_justify="left", title_style="bold")
    table.add_column("law")
    table.add_column("equations", justify="right")
    table.add_column("before\nno laws", justify="right", style="dark_orange")
    table.add_column("after\nfloat32", justify="right", style="cyan")
    table.add_column("after\nfloat64", justify="right", style="cyan")
    for law in record.laws:
        judged = (law.free, law.lawful, law.lawful64)
        table.add_row(escape(law.name), str(law.rows), *(scientific(violation.largest) for violation in judged))
    return table


def time_split(record: Record) -> Table:
    """Tabulate where the time of each run went."""
    table = Table(title="Time split", title_justify="left", title_style="bold")
    table.add_column("run")
    for column in ("velocity", "projection", "share of projection"):
        table.add_column(column, justify="right")
    runs: dict[str, Seconds] = {"without laws": record.free_seconds, "with laws": record.lawful_seconds}
    for name, spent in runs.items():
        table.add_row(name, seconds(spent.velocity), seconds(spent.projection), percent(spent.projection_share))
    return table
