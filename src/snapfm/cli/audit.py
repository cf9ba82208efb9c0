"""`snapfm audit PROBLEM`: evaluate every law on simulated ground truth and say which the data obey."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Annotated

import typer


def audit(
    target: Annotated[
        str, typer.Argument(metavar="PROBLEM", help="A problem, an equation (heat, burgers, …), or `all`.")
    ],
    count: Annotated[int, typer.Option(help="Simulated fields per set of laws.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the fields.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Say which laws true fields obey, how nearly, and which they contradict.

    obeyed: what is left of the law's terms is rounding.

    approximately: what is left shrinks on finer grids: the scheme's error.

    contradicted: it does not shrink: the law is not one of the equation.
    """
    from dataclasses import asdict

    import torch
    from rich.console import Console
    from rich.table import Table

    from snapfm.evidence.audit import Verdict
    from snapfm.evidence.audit import audit as run
    from snapfm.evidence.text import settings_text

    torch.set_num_threads(1)  # one field at a time is too small to share: threads would only wait for each other
    messages = Console(stderr=True)
    with messages.status("auditing …") as status:
        found = run(target, count, seed, lambda what: status.update(f"auditing {what} …"))
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    colors = {Verdict.OBEYED: "green", Verdict.APPROXIMATE: "yellow", Verdict.CONTRADICTED: "red"}
    console = Console()
    for name, laws in groupby(found, lambda one: one.problem):
        table = Table(title=name, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
        for head, width in (("law", 9), ("setting", 22)):  # of their longest, so that all tables are aligned
            table.add_column(head, min_width=width, no_wrap=True)
        for head in ("error\nmean", "error\nlargest", "left\nover"):
            table.add_column(head, justify="right", min_width=7, no_wrap=True)
        table.add_column("order", justify="right", no_wrap=True)
        table.add_column("verdict", min_width=13, no_wrap=True)
        for one in laws:
            figures = (f"{value:.1e}" if value else "0" for value in (one.error, one.largest, one.leftover))
            order = "" if one.order is None else f"{max(one.order, 0.0):.1f}"
            word = f"[{colors[one.verdict]}]{one.verdict}[/]"
            table.add_row(one.law, settings_text(one.settings).lower(), *figures, order, word)
        console.print(table, "")
    console.print(
        f"error: ‖R‖₂ in the law's own units, over {count} simulated fields.\n"
        "left over: share of the law's terms that do not cancel.\n"
        "order: at which that shrinks on finer grids; at 0 the law contradicts the data.",
        highlight=False,
    )
