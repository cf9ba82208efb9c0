"""Passes: how the Jacobian values of a set of rows are read out of few products with it.

Rows that share no unknown can be summed into one VJP (side "rows"); unknowns that share no row into one JVP (side
"columns"). The side is chosen per set, because a total spans a slice (rows: one pass) while a stencil is local
(columns). Consumes a Pattern, gives frozen passes; the coloring itself is a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from snapfm.kernels.coloring import color_columns
from snapfm.structure.pattern import Pattern
from snapfm.structure.sets import Index

Side = Literal["rows", "columns"]

# Rows this many times wider than the median go into passes of their own when that saves passes.
_WIDE = 4


@dataclass(frozen=True)
class Passes:
    """Serve the given rows of a law with `count` products on one side; `colors` belongs to that side's vertices."""

    rows: Index
    pattern: Pattern  # of these rows alone
    entries: Index  # where their entries stand among all entries of the law
    side: Side
    colors: Index
    count: int


def plan_passes(pattern: Pattern, rows: Index, forward: bool = True) -> tuple[Passes, ...]:
    """Choose sides and colors for the given rows; `forward=False` rules out JVPs (an operator has none)."""
    if len(rows) == 0:
        return ()
    whole = _colored(pattern, rows, forward)
    counts = pattern.counts[rows]
    wide = counts > _WIDE * max(1.0, float(np.median(counts)))
    if not wide.any() or whole.count <= 2:
        return (whole,)
    parts = (_colored(pattern, rows[~wide], forward), _colored(pattern, rows[wide], forward))
    return parts if sum(part.count for part in parts) < whole.count else (whole,)


def _colored(pattern: Pattern, rows: Index, forward: bool) -> Passes:
    """Color the side with the lower bound first, and the other only if it could still win."""
    part, entries = pattern.take(rows), pattern.entries(rows)
    transposed = _transpose(part)
    row_bound = int(transposed.counts.max(initial=0))  # rows that meet in one unknown need as many colors
    column_bound = int(part.counts.max(initial=0)) if forward else np.iinfo(np.int64).max

    def by_rows() -> Passes:
        return Passes(rows, part, entries, "rows", *color_columns(transposed.indptr, transposed.indices, part.rows))

    def by_columns() -> Passes:
        return Passes(rows, part, entries, "columns", *color_columns(part.indptr, part.indices, part.columns))

    if row_bound <= column_bound:
        first = by_rows()
        return first if first.count <= column_bound else min(first, by_columns(), key=lambda passes: passes.count)
    first = by_columns()
    return first if first.count < row_bound else min(by_rows(), first, key=lambda passes: passes.count)


def _transpose(pattern: Pattern) -> Pattern:
    matrix = csr_array(
        (np.ones(pattern.nnz, bool), pattern.indices, pattern.indptr), shape=(pattern.rows, pattern.columns)
    ).tocsc()
    return Pattern(pattern.columns, pattern.rows, matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64))
