"""Fill-reducing orders: in which sequence the unknowns of a symmetric system are best eliminated.

Several candidates are tried and the one with the fewest predicted multiply-adds wins. A try costs milliseconds, once per
pattern, and no single rule is best on bands, grids and matrices with a few dense rows. Reads the lower triangle of a
pattern by rows. Numpy in, numpy out; imports kernels.symbolic only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array, csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import spilu

from snapfm.arrays import Index
from snapfm.kernels.symbolic import permuted, tree

# A row this many times longer than the median couples nearly everything; ordered last, it no longer hides the band.
_DENSE = 4
_DENSE_FLOOR = 16


@dataclass(frozen=True)
class Order:
    """An order and what it costs: row k of the reordered matrix is row perm[k] of the given one."""

    name: str
    perm: Index
    fill: int  # entries of the factor, the diagonal included
    flops: int  # multiply-adds of the elimination


def best(indptr: Index, indices: Index, signs: Index | None = None) -> Order:
    """Pick the candidate with the fewest multiply-adds.

    `signs` (+1, -1 or 0 per unknown) are the pivots' expected signs: then an unknown of sign -1 is never eliminated
    before all its neighbors of sign +1, because its own diagonal may be as small as the regularization.
    """
    matrix = symmetric(indptr, indices)
    found: Order | None = None
    for name, rule in CANDIDATES.items():
        for dense_last in (False, True):
            perm = _dense_last(matrix, rule) if dense_last else rule(matrix)
            if perm is None:
                continue
            if signs is not None:
                perm = postponed(matrix, perm, signs)
            # Cauchy-Schwarz: f entries in n columns take at least f²/2n multiply-adds, so a longer factor has lost.
            limit = -1 if found is None else int(np.sqrt(2.0 * len(perm) * found.flops)) + 2 * len(perm)
            cost = tree(*permuted(indptr, indices, perm)[:2], limit)
            if cost is not None and (found is None or cost.flops < found.flops):
                found = Order(name + (", dense rows last" if dense_last else ""), perm, cost.fill, cost.flops)
    assert found is not None
    return found


def natural(matrix: csr_array) -> Index:
    """Keep the order as given."""
    return np.arange(matrix.shape[0])


def bandwidth(matrix: csr_array) -> Index:
    """Reverse Cuthill-McKee: entries near the diagonal."""
    perm: Index = reverse_cuthill_mckee(matrix, symmetric_mode=True).astype(np.int64)
    return perm


def degree(matrix: csr_array) -> Index:
    """Multiple minimum degree of SuperLU: next comes the unknown with the fewest neighbors left.

    An incomplete factorization that drops everything has the same order as the complete one, in a quarter of the time.
    """
    size = matrix.shape[0]
    if size < 3:
        return np.arange(size)
    dominant = csc_array((np.full(matrix.nnz, -1.0), matrix.indices, matrix.indptr), shape=matrix.shape)
    dominant.setdiag(np.diff(matrix.indptr) + 1.0)  # safe without pivoting, so that rows move with columns
    factor = spilu(
        dominant,
        drop_tol=1.0,
        fill_factor=1.0,
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    return np.argsort(factor.perm_c).astype(np.int64)


CANDIDATES: dict[str, Callable[[csr_array], Index]] = {"degree": degree, "bandwidth": bandwidth, "natural": natural}


def postponed(matrix: csr_array, perm: Index, signs: Index) -> Index:
    """Move each unknown of sign -1 behind the last of its neighbors of sign +1; the rest keep their sequence."""
    place = np.empty(len(perm))
    place[perm] = np.arange(len(perm))
    row = np.repeat(np.arange(len(perm)), np.diff(matrix.indptr))
    pair = (signs[row] < 0) & (signs[matrix.indices] > 0)
    latest = place.copy()
    np.maximum.at(latest, row[pair], place[matrix.indices[pair]] + 0.5)  # just behind it, before what comes next
    return np.lexsort((place, latest)).astype(np.int64)


def _dense_last(matrix: csr_array, rule: Callable[[csr_array], Index]) -> Index | None:
    """Order the sparse rows by the rule and put the dense ones behind them; None where no row is dense."""
    length = np.diff(matrix.indptr)
    dense = length > max(_DENSE_FLOOR, _DENSE * float(np.median(length)))
    if not dense.any():
        return None
    sparse = np.flatnonzero(~dense)
    inner = csr_array(matrix[sparse][:, sparse])
    return np.concatenate([sparse[rule(inner)], np.flatnonzero(dense)])


def symmetric(indptr: Index, indices: Index) -> csr_array:
    """Return both triangles of a pattern, from its lower one."""
    size = len(indptr) - 1
    lower = csr_array((np.ones(len(indices)), indices, indptr), shape=(size, size))
    whole = csr_array(lower + lower.T)
    whole.sort_indices()
    return whole
