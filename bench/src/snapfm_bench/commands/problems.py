"""`snapfm problems`, `inspect` and `audit`: list the benchmark problems, show the structure of their laws, and test the laws.

`audit` evaluates every law on simulated ground truth and says which of them the data obey.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from snapfm.cli.options import Settings, check_suffix, read_settings
from snapfm_bench.commands.options import ProblemName

if TYPE_CHECKING:
    from snapfm.compile import CompiledLaws
    from snapfm_bench.problems import Problem

_WIDE = 120  # columns of a terminal that has room for the summary of each problem


def problems(as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False) -> None:
    """List all benchmark problems: unknowns, rows, affine and nonlinear rows, redundant rows."""
    from snapfm_bench.problems import names, problem

    console = Console()
    found: list[dict[str, Any]] = []
    with console.status("analysing …") as status:
        for name in names():
            status.update(f"analysing {name} …")
            one = problem(name)
            found.append(_sizes(one, structure_of(one)))
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    # Narrow terminals omit what follows from the rest: unknowns from the field's shape, affine rows from the nonlinear ones.
    heads = ["problem", "field", "unknowns", "rows", "affine", "nonlinear", "redundant", "laws"]
    shown = [head for head in heads if console.width >= _WIDE or head not in ("unknowns", "affine", "laws")]
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


def inspect(
    name: ProblemName,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="File for the picture. Default: build/inspect/PROBLEM.png"),
    ] = None,
    settings: Settings = None,
    picture: Annotated[bool, typer.Option(help="Draw the sparsity pattern (needs matplotlib).")] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts; the pattern is drawn only if --out is given.")
    ] = False,
) -> None:
    """Show the structure of a problem's laws: rows, non-zeros, kinds of rows, passes, fixed unknowns, redundant rows."""
    from snapfm.plot import pattern
    from snapfm.plot.canvas import png
    from snapfm_bench.flow.storage import write_file
    from snapfm_bench.problems import problem

    if out is not None:
        check_suffix("inspect", out, ".png")
    console = Console(stderr=as_json)
    with console.status(f"analysing {name} …"):
        chosen = problem(name, **read_settings("inspect", settings))
        structure = structure_of(chosen)
    if as_json:
        found = {**_sizes(chosen, structure), "laws": _sizes_by_law(structure)}
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        console.print(f"[bold]{chosen.name}[/]: {chosen.summary}", highlight=False)
        # soft_wrap: the table keeps its columns in narrow terminals and in files
        console.print(str(structure), highlight=False, markup=False, soft_wrap=True)
    if picture and (out is not None or not as_json):
        target = out if out is not None else Path("build/inspect") / f"{name}.png"
        write_file(target, png(pattern(structure, chosen.name)))
        console.print(f"pattern drawn in {target}", highlight=False)


def audit(
    target: Annotated[
        str, typer.Argument(metavar="PROBLEM", help="A problem, an equation (heat, burgers, …), or `all`.")
    ],
    count: Annotated[int, typer.Option(help="Simulated fields per set of laws.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the fields.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Say which laws simulated fields obey exactly, which approximately, and which they contradict.

    obeyed: the law holds up to rounding.

    approximately: the error of the law shrinks on finer grids.

    contradicted: it does not shrink, so the equation does not imply the law.
    """
    from dataclasses import asdict

    from snapfm.solve.single_thread import one_thread
    from snapfm_bench.audit import AuditVerdict
    from snapfm_bench.audit import audit as run
    from snapfm_bench.text import settings_text

    messages = Console(stderr=True)
    # One field is too small to divide: threads would only wait for each other.
    with messages.status("auditing …") as status, one_thread():
        found = run(target, count, seed, lambda what: status.update(f"auditing {what} …"))
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    colors = {AuditVerdict.OBEYED: "green", AuditVerdict.APPROXIMATE: "yellow", AuditVerdict.CONTRADICTED: "red"}
    console = Console()
    for name, laws in groupby(found, lambda one: one.problem):
        table = Table(title=name, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
        for head, width in (("law", 9), ("setting", 22)):  # widths of the longest, so that all tables are aligned
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
        "order: how fast that shrinks on finer grids; at 0 the law contradicts the data.",
        highlight=False,
    )


def structure_of(one: Problem) -> CompiledLaws:
    """Analyse a problem's laws under the conditions of its first sample."""
    import torch

    from snapfm.compile import compile_laws

    return compile_laws(one.laws, one.grid.shape, one.params(1, torch.Generator().manual_seed(0)))


def _sizes(one: Problem, structure: CompiledLaws) -> dict[str, Any]:
    """Count unknowns, rows of each kind, non-zeros and redundant rows."""
    from snapfm.compile import RowKind

    affine = int((structure.kinds <= RowKind.PARAMETRIC).sum())
    return {
        "name": one.name,
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


def _sizes_by_law(structure: CompiledLaws) -> list[dict[str, Any]]:
    """Count the same for each law."""
    from snapfm.compile import RowKind

    found = []
    for name, rows in structure.slices().items():
        kinds, starts = structure.kinds[rows], structure.pattern.indptr
        found.append(
            {
                "name": name,
                "kind": "equality" if structure.equality_rows[rows].all() else "inequality",
                "rows": rows.stop - rows.start,
                "non_zeros": int(starts[rows.stop] - starts[rows.start]),
                "affine_rows": int((kinds <= RowKind.PARAMETRIC).sum()),
                "separable_rows": int((kinds == RowKind.SEPARABLE).sum()),
                "general_rows": int((kinds == RowKind.GENERAL).sum()),
            }
        )
    return found
