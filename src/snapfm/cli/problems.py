"""`snapfm problems`: list the benchmark problems with their sizes."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

_WIDE = 120  # columns of a terminal that has room for a sentence per problem


def problems(as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False) -> None:
    """List all benchmark problems: unknowns, rows, affine and nonlinear rows, redundant rows."""
    from rich.console import Console
    from rich.table import Table

    from snapfm.cli.sizes import sizes, structure_of
    from snapfm.problems import names, problem

    console = Console()
    found: list[dict[str, Any]] = []
    with console.status("analysing …") as status:
        for name in names():
            status.update(f"analysing {name} …")
            one = problem(name)
            found.append(sizes(one, structure_of(one)))
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    # Narrow terminals do without the number of unknowns, which the field's shape tells, and without the sentence.
    heads = ["problem", "field", "unknowns", "rows", "affine", "nonlinear", "redundant", "laws"]
    shown = [head for head in heads if console.width >= _WIDE or head not in ("unknowns", "laws")]
    table = Table(box=None, padding=(0, 1, 0, 0))
    for head in shown:
        words = head in ("problem", "field", "laws")
        table.add_column(head, justify="left" if words else "right", no_wrap=head != "laws")
    for row in found:
        inequalities = row["rows"] - row["equality_rows"]
        cells = {
            "problem": row["name"],
            "field": "×".join(map(str, row["shape"])),
            "unknowns": row["unknowns"],
            "rows": f"{row['equality_rows']}" + (f" + {inequalities} ≤" if inequalities else ""),
            "affine": row["affine_rows"],
            "nonlinear": row["nonlinear_rows"],
            "redundant": row["redundant_rows"],
            "laws": row["summary"],
        }
        table.add_row(*(str(cells[head]) for head in shown))
    console.print(table)
