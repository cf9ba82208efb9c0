"""Describe compiled laws in a few lines: rows, non-zeros, kinds of rows, bounds, fixed unknowns, redundant rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array, eye_array, tril

from snapfm.arrays import Index
from snapfm.compile.oracle import OracleLaw
from snapfm.compile.presolve import SEARCH_LIMIT, Redundancy
from snapfm.compile.sparsity.pattern import ENTRY_LIMIT, TooLarge, gram
from snapfm.compile.sparsity.reads import RowKind
from snapfm.compile.stack import limits_text
from snapfm.display import Sheet
from snapfm.kernels.factor.ordering import best
from snapfm.text import counted, one_field, plural

if TYPE_CHECKING:
    from snapfm.compile.compiled import CompiledLaws

_LISTED = 5  # redundant rows named one by one; the rest are counted
_KINDS = ((RowKind.AFFINE, RowKind.PARAMETRIC), (RowKind.SEPARABLE,), (RowKind.GENERAL,))
_SIGNS = {"equality": "= 0", "inequality": "≤ 0"}
HEADS = ("law", "kind", "rows", "non-zeros", "affine", "separable", "general", "derivatives")


def describe(laws: CompiledLaws) -> Sheet:
    """Tabulate the laws, and say what presolve found and how large the factor of what is left is."""
    found, cells = laws.presolve, laws.rows * laws.unknowns
    body = [_line(laws, i) for i in range(len(laws.laws))]
    shares = (f"{_of_kinds(laws.kinds, kinds) / laws.rows:.0%}" if laws.rows else "–" for kinds in _KINDS)
    body.append(("all", "", counted(laws.rows), counted(laws.nnz), *shares, ""))
    title = (
        f"{one_field(laws.shape)}: {plural(laws.unknowns, 'unknown')}, {plural(laws.rows, 'row')}, "
        f"{plural(laws.nnz, 'non-zero')} ({laws.nnz / cells if cells else 0.0:.2%} of the Jacobian)"
    )
    lines = [limits_text(one) for one in laws.bounds]
    lines.append(
        f"presolve: {plural(len(found.fixed), 'unknown')} fixed by single rows, "
        f"{plural(len(found.redundant), 'redundant row')}, {plural(len(found.kept), 'row')} left"
        + ("" if found.searched else " (too many rows to search for redundant ones)")
    )
    size = fill(laws)
    lines.append(
        f"factor of JJᵀ over the rows left: {'not looked at' if size is None else plural(size, 'entry', 'entries')}"
    )
    lines += laws.remarks
    lines += [_redundant(laws, one) for one in found.redundant[:_LISTED]]
    if len(found.redundant) > _LISTED:
        lines.append(f"  … and {counted(len(found.redundant) - _LISTED)} more")
    lines += [
        f"float32: law '{name}' computes in float32; evaluated in float64 here, and its own rounding is reported"
        for name in laws.float32_laws
    ]
    for i, law in laws.opaque.items():
        if isinstance(law, OracleLaw):
            lines.append(f"oracle: law '{law.name}' is evaluated by functions of its own, sample by sample")
            continue
        lines.append(
            f"slow path: law '{laws.laws[i].name}' uses {law.reason}, which has no scalar form; projected with torch's "
            "derivatives"
        )
    return Sheet(title, HEADS, body, lines, frozenset({0, 1, len(HEADS) - 1}))


def fill(laws: CompiledLaws) -> int | None:
    """Count the entries of the factor of JJᵀ over the rows left and the unknowns not fixed; None when too many to look at."""
    found = laws.presolve
    if not 0 < len(found.kept) <= SEARCH_LIMIT:
        return 0 if len(found.kept) == 0 else None
    rows = laws.own.take(found.kept)
    free = ~np.isin(rows.indices, found.fixed)
    matrix = csr_array((free.astype(float), rows.indices, rows.indptr), shape=(rows.rows, rows.columns))
    matrix.eliminate_zeros()
    try:
        lower = csr_array(tril(gram(matrix, ENTRY_LIMIT) + eye_array(rows.rows)))
    except TooLarge:
        return None
    lower.sort_indices()
    return best(lower.indptr.astype(np.int64), lower.indices.astype(np.int64)).fill


def _line(laws: CompiledLaws, place: int) -> tuple[str, ...]:
    law, rows = laws.laws[place], laws.stack[place]
    kinds = laws.kinds[rows]
    nnz = int(laws.own.indptr[rows.stop] - laws.own.indptr[rows.start])
    curved = kinds.max(initial=RowKind.AFFINE)
    opaque = laws.opaque.get(place)
    if isinstance(opaque, OracleLaw):
        derivatives = "given" if opaque.curved else "given, no Hessian"
    elif opaque is not None:
        derivatives = ", ".join(f"torch, {passes.count} by {passes.side}" for passes in opaque.passes)
    else:
        derivatives = "constant" if curved == RowKind.AFFINE else "compiled"
    counts = (counted(_of_kinds(kinds, some)) for some in _KINDS)
    return (law.name, _SIGNS.get(law.kind, law.kind), counted(law.rows), counted(nnz), *counts, derivatives)


def _of_kinds(kinds: Index, some: tuple[RowKind, ...]) -> int:
    return int(np.isin(kinds, some).sum())


def _redundant(laws: CompiledLaws, one: Redundancy) -> str:
    law, row = laws.where(one.row)
    sources: dict[str, list[int]] = {}
    for other in one.rows:
        source, place = laws.where(int(other))
        sources.setdefault(source.name, []).append(place)
    repeated = (
        " and ".join(f"'{name}' {_range(np.array(rows))}" for name, rows in sources.items()) or "nothing: it is zero"
    )
    return f"Redundant: law '{law.name}' row {row} repeats {repeated}; dropped, checked at every call."


def _range(rows: Index) -> str:
    if len(rows) == 1:
        return f"row {rows[0]}"
    contiguous = rows.max() - rows.min() + 1 == len(rows)
    return f"rows {rows.min()}..{rows.max()}" + ("" if contiguous else f" ({len(rows)} of them)")
