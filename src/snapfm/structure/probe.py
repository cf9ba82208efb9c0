"""Probe a linear function for its matrix: few evaluations on sums of unit vectors that share no row.

Consumes a function of one flat tensor and a pattern that has room for every entry; gives the sparse matrix and the value
at zero. A last, random evaluation checks both, because a pattern comes from rules, and rules may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from snapfm.arrays import Index, Values
from snapfm.kernels.coloring import color_columns
from snapfm.structure.pattern import Pattern

Function = Callable[[Tensor], Tensor]

# Agreement asked of the random evaluation, relative to the sum of the terms' sizes: rounding of a long transform.
_AGREE = 1e-12
# Numbers in flight at once: evaluations are made in blocks below this size.
_BLOCK = 8_000_000
# Entries below this share of their row's largest are what transforms leave of zeros: terms × eps, with room.
_NOISE = 64 * np.finfo(np.float64).eps


class NotLinear(Exception):
    """A random evaluation differs from the matrix; never leaves `structure`."""


def probe(function: Function, pattern: Pattern) -> tuple[csr_array, Values]:
    """Give the matrix and the offset of an affine function from (columns,) to (rows,), float64."""
    offset = function(torch.zeros(pattern.columns, dtype=torch.float64)).numpy()
    colors, count = _colors(pattern)
    values = np.zeros(pattern.nnz)
    row, column = pattern.row_of(), pattern.indices
    by_color = np.argsort(colors[column], kind="stable")
    ends = np.searchsorted(colors[column][by_color], np.arange(count + 1))
    step = max(1, _BLOCK // max(1, pattern.rows + pattern.columns))
    for first in range(0, count, step):
        last = min(count, first + step)
        seeds = torch.zeros(last - first, pattern.columns, dtype=torch.float64)
        chosen = np.flatnonzero((colors >= first) & (colors < last))
        seeds[torch.from_numpy(colors[chosen] - first), torch.from_numpy(chosen)] = 1.0
        products = np.stack([function(seed).numpy() for seed in seeds]) - offset
        entry = by_color[ends[first] : ends[last]]
        values[entry] = products[colors[column[entry]] - first, row[entry]]
    matrix = pattern.csr(_alike(pattern, values)).copy()  # the pattern is not to lose its zeros
    _check(function, matrix, offset)
    matrix.eliminate_zeros()
    return matrix, offset


def _colors(pattern: Pattern) -> tuple[Index, int]:
    """Color the columns; blocks that are full, such as transforms have, are numbered without a search."""
    graph = csr_array(
        (np.ones(pattern.nnz, bool), (pattern.row_of(), pattern.rows + pattern.indices)),
        shape=(pattern.rows + pattern.columns,) * 2,
    )
    label = connected_components(graph, directed=False)[1]
    row_label, column_label = label[: pattern.rows], label[pattern.rows :]
    width = np.bincount(column_label, minlength=label.max(initial=0) + 1)
    counts = pattern.counts
    if not ((counts == 0) | (counts == width[row_label])).all():
        return color_columns(pattern.indptr, pattern.indices, pattern.columns)
    order = np.argsort(column_label, kind="stable")
    start = np.concatenate([[0], np.cumsum(width)])
    colors = np.empty(pattern.columns, np.int64)
    colors[order] = np.arange(pattern.columns) - start[column_label[order]]
    return colors, int(width.max(initial=0))


def _alike(pattern: Pattern, values: Values) -> Values:
    """Clear the noise that transforms leave of zeros, and give entries equal up to it the same bits.

    A transform along an axis is the same matrix on every line, but torch's vectors and their remainders round it
    differently; parts of a problem are recognised as alike by their bits.
    """
    row = pattern.row_of()
    largest = np.zeros(pattern.rows)
    np.maximum.at(largest, row, np.abs(values))
    scale = np.where(largest > 0.0, largest, 1.0)[row]
    out = np.where(np.abs(values) <= _NOISE * scale, 0.0, values)
    kind, share = _runs(np.log(scale)), _runs(out / scale)
    both = kind * (share.max(initial=0) + 1) + share
    _, first, member = np.unique(both, return_index=True, return_inverse=True)
    same: Values = out[first][member]
    return same


def _runs(values: Values) -> Index:
    """Number the runs of values that follow each other, in order of size, within the noise."""
    order = np.argsort(values, kind="stable")
    apart = np.diff(values[order], prepend=-np.inf) > _NOISE
    number = np.empty(len(values), np.int64)
    number[order] = np.cumsum(apart)
    return number


def _check(function: Function, matrix: csr_array, offset: Values) -> None:
    probe = torch.randn(matrix.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    truth = function(probe).numpy()
    terms = abs(matrix) @ np.abs(probe.numpy()) + np.abs(offset)
    off = np.abs(matrix @ probe.numpy() + offset - truth)
    if not (off <= _AGREE * max(1.0, float(terms.max(initial=0.0)))).all():
        raise NotLinear("it does not act as its matrix does")
