"""Fill-reducing orders: in which sequence the unknowns of a symmetric system are best eliminated.

Several candidates are tried and the one with the fewest predicted multiply-adds wins. A try costs milliseconds, once per
pattern, and no single rule is best on bands, grids and matrices with a few dense rows. Reads the lower triangle of a
pattern by rows. Numpy in, numpy out; imports kernels.factor.symbolic and kernels.factor.dissection only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array, csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import spilu

from snapfm.arrays import Index
from snapfm.kernels.factor.dissection import dissected
from snapfm.kernels.factor.symbolic import permuted, tree

# A row this many times longer than the median couples nearly everything; ordered last, it no longer hides the band.
_DENSE = 4
_DENSE_FLOOR = 16
# Rows from which on a matrix is split by separators: below, minimum degree is as good.
_WORTH_SPLITTING = 1_000
# Rows from which on orders without a chance are not tried: minimum degree where the best order so far takes more than
# _TOO_MUCH multiply-adds. It takes seconds itself there, and a factorization of that size minutes.
_LARGE = 20_000
_TOO_MUCH = 1_000_000_000_000


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
    size = matrix.shape[0]
    dense = _dense_rows(matrix)
    # In a large matrix, a row that touches everything makes every order without it in mind as slow as it is bad.
    variants = (True,) if len(dense) and size > _LARGE else (False, True) if len(dense) else (False,)
    found: Order | None = None
    for name, rule in CANDIDATES.items():
        if (name == "dissection" and size < _WORTH_SPLITTING) or (
            name == "degree" and size > _LARGE and found is not None and found.flops > _TOO_MUCH
        ):
            continue
        for dense_last in variants:
            perm = _dense_last(matrix, dense, rule) if dense_last else rule(matrix)
            if signs is not None:
                perm = postponed(matrix, perm, signs)
            cost = tree(*permuted(indptr, indices, perm)[:2])
            if found is None or cost.flops < found.flops:
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


def dissection(matrix: csr_array) -> Index:
    """Nested dissection: split by small separators, which come last."""
    return dissected(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64))


CANDIDATES: dict[str, Callable[[csr_array], Index]] = {
    "dissection": dissection,
    "degree": degree,
    "bandwidth": bandwidth,
    "natural": natural,
}


def postponed(matrix: csr_array, perm: Index, signs: Index) -> Index:
    """Move each unknown of sign -1 behind the last of its neighbors of sign +1; the rest keep their sequence."""
    place = np.empty(len(perm))
    place[perm] = np.arange(len(perm))
    row = np.repeat(np.arange(len(perm)), np.diff(matrix.indptr))
    pair = (signs[row] < 0) & (signs[matrix.indices] > 0)
    latest = place.copy()
    np.maximum.at(latest, row[pair], place[matrix.indices[pair]] + 0.5)  # just behind it, before what comes next
    return np.lexsort((place, latest)).astype(np.int64)


def _dense_rows(matrix: csr_array) -> Index:
    length = np.diff(matrix.indptr)
    return np.flatnonzero(length > max(_DENSE_FLOOR, _DENSE * float(np.median(length)))) if len(length) else length


def _dense_last(matrix: csr_array, dense: Index, rule: Callable[[csr_array], Index]) -> Index:
    """Order the sparse rows by the rule and put the dense ones behind them."""
    sparse = np.setdiff1d(np.arange(matrix.shape[0]), dense, assume_unique=True)
    inner = csr_array(matrix[sparse][:, sparse])
    return np.concatenate([sparse[rule(inner)], dense])


def symmetric(indptr: Index, indices: Index) -> csr_array:
    """Return both triangles of a pattern, from its lower one."""
    size = len(indptr) - 1
    lower = csr_array((np.ones(len(indices)), indices, indptr), shape=(size, size))
    whole = csr_array(lower + lower.T)
    whole.sort_indices()
    return whole
