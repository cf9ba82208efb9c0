"""`snapfm problems`: list the benchmark problems with their sizes."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

_WIDE = 120  # columns of a terminal that has room for a sentence per problem


def problems(as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False) -> None:
    """List all benchmark problems: unknowns, rows, affine and nonlinear rows, redundant rows."""
    import torch
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from snapfm.problems import names, problem
    from snapfm.structure import RowKind, analyze

    console = Console()
    found: list[dict[str, Any]] = []
    with console.status("analysing …") as status:
        for name in names():
            status.update(f"analysing {name} …")
            one = problem(name)
            structure = analyze(one.laws, one.grid.shape, one.params(1, torch.Generator().manual_seed(0)))
            affine = int((structure.kinds <= RowKind.PARAMETRIC).sum())
            found.append(
                {
                    "name": name,
                    "shape": list(one.grid.shape),
                    "unknowns": structure.unknowns,
                    "rows": structure.rows,
                    "equality_rows": int(structure.equality_rows.sum()),
                    "affine_rows": affine,
                    "nonlinear_rows": structure.rows - affine,
                    "non_zeros": structure.nnz,
                    "redundant_rows": len(structure.presolve.redundant),
                    "summary": one.summary,
                }
            )
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    wide = console.width >= _WIDE
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in (
        "problem",
        "field",
        "unknowns",
        "rows",
        "affine",
        "nonlinear",
        "redundant",
        *(["laws"] if wide else []),
    ):
        words = head in ("problem", "field", "laws")
        table.add_column(head, justify="left" if words else "right", no_wrap=head != "laws")
    for row in found:
        inequalities = row["rows"] - row["equality_rows"]
        rows = f"{row['equality_rows']}" + (f" + {inequalities} ≤" if inequalities else "")
        cells = [row["name"], "×".join(map(str, row["shape"])), row["unknowns"], rows, row["affine_rows"]]
        cells += [row["nonlinear_rows"], row["redundant_rows"], *([row["summary"]] if wide else [])]
        table.add_row(*map(str, cells))
    console.print(table)
