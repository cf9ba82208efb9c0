"""Products of a batch of fields with one shared sparse matrix, sample by sample.

Every sample is worked on alone and in one fixed order, so its bits do not depend on the batch it rides in. Fields are
(b, n), rows (b, m). One thread each: callers share samples out among threads.
"""

from __future__ import annotations

from snapfm.kernels.compiling import compiled


@compiled(nogil=True)
def multiply(indptr, indices, values, field, out):  # read: the rest; written: out (b, rows)
    """out = A field, for A in CSR."""
    for b in range(field.shape[0]):
        for r in range(len(indptr) - 1):
            total = 0.0
            for p in range(indptr[r], indptr[r + 1]):
                total += values[p] * field[b, indices[p]]
            out[b, r] = total


@compiled(nogil=True, error_model="numpy")
def lanes_product(
    indptr, indices, values, x, out
):  # read: values (nnz, lanes), x (columns, lanes); written: out (rows, lanes)
    """out = A x, every lane with a matrix of its own on one pattern."""
    for r in range(len(indptr) - 1):
        out[r, :] = 0.0
        for p in range(indptr[r], indptr[r + 1]):
            for lane in range(x.shape[1]):
                out[r, lane] += values[p, lane] * x[indices[p], lane]


@compiled(nogil=True, error_model="numpy")
def lanes_transposed(indptr, indices, values, x, out):  # read: values (nnz, lanes), x (rows, lanes); written: out
    """out (columns, lanes) = Aᵀ x likewise."""
    out[:, :] = 0.0
    for r in range(len(indptr) - 1):
        for p in range(indptr[r], indptr[r + 1]):
            for lane in range(x.shape[1]):
                out[indices[p], lane] += values[p, lane] * x[r, lane]
