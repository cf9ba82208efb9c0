"""Rows over the cells of a tape, as sparse matrices: what they read, how they compare, single cells as rows.

Consumes and returns matrices; knows no tape.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, diags_array

from snapfm.arrays import Index, Mask, Values

_ROUNDING = 1e-12  # forms that differ by less than this share are proportional


def reads(form: csr_array, marked: Mask) -> Mask:
    """Which rows of a form hold a marked cell."""
    label = np.repeat(np.arange(form.shape[0]), np.diff(form.indptr))
    return np.bincount(label, marked[form.indices], minlength=form.shape[0]) > 0


def ratio(one: csr_array, other: csr_array) -> tuple[Values, Mask]:
    """Return row by row the factor k with one = k · other, and whether there is one."""
    cells = max(one.shape[1], other.shape[1])
    one, other = widened(one, cells), widened(other, cells)
    square = np.asarray(other.multiply(other).sum(axis=1)).ravel()
    scale = np.asarray(one.multiply(other).sum(axis=1)).ravel() / np.where(square > 0.0, square, 1.0)
    off = csr_array(one - csr_array(diags_array(scale) @ other))
    left = np.asarray(off.multiply(off).sum(axis=1)).ravel()
    return scale, (left <= _ROUNDING**2 * scale**2 * square) & (scale != 0.0)


def widened(form: csr_array, cells: int) -> csr_array:
    """See rows over a larger number of cells."""
    return csr_array((form.data, form.indices, form.indptr), shape=(form.shape[0], cells))


def units(cell: Index, cells: int) -> csr_array:
    """Return rows that are one cell each."""
    return csr_array((np.ones(len(cell)), cell, np.arange(len(cell) + 1)), shape=(len(cell), cells))
