"""Tell a structure in a few lines: rows, non-zeros, kinds of rows, passes, fixed unknowns, redundant rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from snapfm.structure.curvature import RowKind
from snapfm.structure.plan import LawPlan
from snapfm.structure.presolve import Presolve, Redundancy
from snapfm.structure.sets import Index

_LISTED = 5  # redundant rows told one by one; the rest are counted


def describe(
    shape: tuple[int, ...],
    plans: Sequence[LawPlan],
    found: Presolve,
    where: Callable[[int], tuple[LawPlan, int]],
    fill: int | None,
) -> str:
    """Write the table of laws, what presolve found, and the entries of the factor of what is left."""
    unknowns = int(np.prod(shape))
    rows, nnz = sum(plan.rows for plan in plans), sum(plan.pattern.nnz for plan in plans)
    density = nnz / (rows * unknowns) if rows * unknowns else 0.0
    head = ("law", "kind", "rows", "non-zeros", "affine", "separable", "general", "passes", "curvature")
    body = [_line(plan) for plan in plans]
    body.append(("all", "", _count(rows), _count(nnz), *(_share(plans, kinds) for kinds in _KINDS), "", ""))
    widths = [max(len(line[i]) for line in (head, *body)) for i in range(len(head))]
    lines = [
        f"{'×'.join(str(extent) for extent in shape) or 'scalar'} field: {_count(unknowns)} unknowns, {_count(rows)} rows, "
        f"{_count(nnz)} non-zeros ({density:.2%} of the Jacobian)"
    ]
    for line in (head, *body):
        cells = [cell.ljust(w) if i in _TEXT else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))]
        lines.append("  " + "  ".join(cells).rstrip())
    lines.append(
        f"presolve: {_count(len(found.fixed))} unknowns fixed by single rows, {_count(len(found.redundant))} redundant rows, "
        f"{_count(len(found.kept))} rows left"
        + ("" if found.searched else " (too many rows to search for redundant ones)")
    )
    lines.append(f"factor of JJᵀ over the rows left: {'not looked at' if fill is None else _count(fill) + ' entries'}")
    lines += [_redundant(one, where) for one in found.redundant[:_LISTED]]
    if len(found.redundant) > _LISTED:
        lines.append(f"  … and {_count(len(found.redundant) - _LISTED)} more")
    return "\n".join(lines)


_KINDS = ((RowKind.AFFINE, RowKind.PARAMETRIC), (RowKind.SEPARABLE,), (RowKind.GENERAL,))
_TEXT = {0, 1, 7, 8}  # columns that hold words and are set flush left


def _line(plan: LawPlan) -> tuple[str, ...]:
    groups = [*plan.fixed_passes, *plan.varying_passes]
    passes = ", ".join(f"{group.count} by {group.side}" for group in groups if group.count) or "none"
    once = sum(group.count for group in plan.fixed_passes)
    if once and not plan.varying_passes:
        passes += " (once)"
    pattern = plan.curvature.pattern
    bend = "too dense" if pattern is None else f"{_count(pattern.nnz)} entries" if pattern.nnz else "none"
    if pattern is not None and pattern.nnz and plan.curvature.diagonal:
        bend += ", diagonal"
    kinds = (_count(plan.count(*kind)) for kind in _KINDS)
    return (plan.name, plan.kind, _count(plan.rows), _count(plan.pattern.nnz), *kinds, passes, bend)


def _share(plans: Sequence[LawPlan], kinds: tuple[RowKind, ...]) -> str:
    rows = sum(plan.rows for plan in plans)
    return f"{sum(plan.count(*kinds) for plan in plans) / rows:.0%}" if rows else "–"


def _redundant(one: Redundancy, where: Callable[[int], tuple[LawPlan, int]]) -> str:
    plan, row = where(one.row)
    sources: dict[str, list[int]] = {}
    for other in one.rows:
        law, place = where(int(other))
        sources.setdefault(law.name, []).append(place)
    told = " and ".join(f"'{name}' {_range(np.array(rows))}" for name, rows in sources.items()) or "nothing: it is zero"
    return f"Redundant: law '{plan.name}' row {row} repeats {told}; dropped, checked at every call."


def _range(rows: Index) -> str:
    if len(rows) == 1:
        return f"row {rows[0]}"
    contiguous = rows.max() - rows.min() + 1 == len(rows)
    return f"rows {rows.min()}..{rows.max()}" + ("" if contiguous else f" ({len(rows)} of them)")


def _count(number: int) -> str:
    return f"{number:,}".replace(",", " ")
