"""Transforms: laws that read a field through orthogonal directions are written over its coefficients along these.

Energies of Fourier or cosine modes are dense in the unknowns of a field, and separable in its coefficients. If all that
operations and rows read of the unknowns lies along orthogonal directions D, the coefficients y = Du become the unknowns, and
u = û + Dᵀ(y − ŷ): distances are the same (math.md, "Reduction"). Found from the tape, whatever operators made its forms; those
that are over lifted coefficients already are sparse, and so is what remains of D. Structure only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array, diags_array, hstack, vstack

from snapfm.arrays import Index, Values
from snapfm.compile.lower.lifts import DENSE, Lift, distinct
from snapfm.compile.lower.tape import Block, Tape, moved_columns

_FEW = 64  # directions that may lie askew to the others: totals, moments
_LOW = 512  # forms that are spanned whatever they are: their singular values are found
_MOST = 16_000_000  # entries of D, and of rows that are dense for a while
_SAME = 1e-9  # share of a form that rounding may leave outside of the span
_ORTHOGONAL = 1e-10  # of the product of two different directions
_ROUNDING = 1e-14  # share of a coefficient that is what sums leave of zero
_EQUAL = 1e-14  # amounts that differ by less, relative to their size, are equal
_SPARSE = 0.1  # share of entries below which products of sparse matrices are faster


@dataclass(frozen=True)
class Transform:
    """Orthonormal directions (r, n): the rows of `matrix`, over the fields whose `lifts` are taken first."""

    lifts: tuple[Lift, ...]
    matrix: csr_array

    @cached_property
    def _turned(self) -> csr_array:
        return csr_array(self.matrix.T)

    def forward(self, u: Values) -> Values:
        """Return the coefficients Du (b, r) of fields (b, n)."""
        return np.ascontiguousarray((self.matrix @ _over(self.lifts, u).T).T)

    def back(self, y: Values) -> Values:
        """Return Dᵀy (b, n)."""
        u = np.ascontiguousarray((self._turned @ np.ascontiguousarray(y.T)).T)
        for lift in self.lifts:
            u[:, lift.unknowns] = lift.back(u[:, lift.unknowns])
        return u


def _over(lifts: tuple[Lift, ...], u: Values) -> Values:
    """Return fields, or slopes by their unknowns, over lifted coefficients."""
    over = u.copy()
    for lift in lifts:
        over[:, lift.unknowns] = lift.forward(u[:, lift.unknowns])
    return over


def transformed(tape: Tape, rows: csr_array, lifts: tuple[Lift, ...] = ()) -> tuple[Tape, csr_array, Transform | None]:
    """Write a tape and its rows over coefficients; as they are, with None, where that does not pay or does not apply.

    Behind the unknowns of the field the tape has the coefficients of `lifts`, of which only a transform makes sense.
    """
    if not tape.blocks:  # affine laws have a closed form
        return tape, rows, None
    matrices = [operand for block in tape.blocks for operand in block.operands] + [rows]
    own = [csr_array(matrix[:, tape.unknown_cells]) for matrix in matrices]
    read, entries = sum(int((np.diff(one.indptr) > 0).sum()) for one in own), sum(one.nnz for one in own)
    if not lifts and (not read or entries < DENSE * read or entries > _MOST):
        return tape, rows, None
    forms = _over_lifted(csr_array(vstack(own, format="csr")), lifts)
    found = None if forms is None else _split(forms, lifts)
    if found is None or (not lifts and found[1].nnz * 4 > entries):
        return tape, rows, None
    transform, amounts = found
    lines = np.cumsum([0, *(matrix.shape[0] for matrix in matrices)])
    count, place = transform.matrix.shape[0], np.arange(tape.cells)
    place[tape.first_operation :] += count - tape.unknowns

    def over(number: int) -> csr_array:
        matrix, part = matrices[number], csr_array(amounts[lines[number] : lines[number + 1]])
        before, behind = matrix[:, : tape.first_unknown], matrix[:, tape.first_operation :]
        return csr_array(hstack([before, part, behind], format="csr"))

    blocks: list[Block] = []
    number = 0
    for block in tape.blocks:
        operands = [over(number + k) for k in range(len(block.operands))]
        number += len(operands)
        blocks.append(Block(block.op, int(place[block.first]), *operands))
    return Tape(count, tape.params, blocks, tape.graphs), over(number), transform


def _over_lifted(forms: csr_array, lifts: tuple[Lift, ...]) -> csr_array | None:
    """Write forms over a field and coefficients of it over the latter alone; None if too many read the field itself."""
    if not lifts:
        return forms
    n = forms.shape[1] - sum(len(lift.unknowns) for lift in lifts)
    place = np.concatenate([np.arange(n), *(lift.unknowns for lift in lifts)])
    row = np.repeat(np.arange(forms.shape[0]), np.diff(forms.indptr))
    direct = (forms.indices < n) & np.isin(place, place[n:])[forms.indices]
    reading, line = np.unique(row[direct], return_inverse=True)
    if len(reading) * n > _MOST:
        return None
    dense = np.zeros((len(reading), n))
    dense[line, forms.indices[direct]] = forms.data[direct]
    over = _cleared(csr_array(_over(lifts, dense)), np.linalg.norm(dense, axis=1))
    kept = csr_array((np.where(direct, 0.0, forms.data), forms.indices, forms.indptr), shape=forms.shape)
    spread = csr_array(
        (np.ones(len(reading)), (reading, np.arange(len(reading)))), shape=(forms.shape[0], len(reading))
    )
    return csr_array(moved_columns(kept, place, n) + spread @ over)


def _split(forms: csr_array, lifts: tuple[Lift, ...]) -> tuple[Transform, csr_array] | None:
    """Find directions among the unknowns that are lifted, or all; the others stay as they are."""
    n = forms.shape[1]
    mixed = np.unique(np.concatenate([lift.unknowns for lift in lifts])) if lifts else np.arange(n)
    part = csr_array(forms[:, mixed])
    found = _directions(part, 1) or (None if lifts else _directions(part, DENSE) or _span(part))
    if found is None:
        return None
    matrix, amounts = found
    others = np.setdiff1d(np.arange(n), mixed)
    unit = csr_array((np.ones(len(others)), (np.arange(len(others)), others)), shape=(len(others), n))
    whole = csr_array(vstack([moved_columns(matrix, mixed, n), unit], format="csr"))
    return Transform(lifts, whole), csr_array(hstack([amounts, forms[:, others]], format="csr"))


def _directions(forms: csr_array, least: int) -> tuple[csr_array, csr_array] | None:
    """Find orthonormal directions that span all forms (k, n), and every form as amounts along them.

    Directions are those of forms with at least so many entries, or they are added for the few forms that lie askew.
    """
    size = np.sqrt(np.asarray(forms.multiply(forms).sum(axis=1)).ravel())
    dense = np.flatnonzero(np.diff(forms.indptr) >= least)
    label, sign, first = distinct(csr_array(forms[dense]), size[dense])
    if not len(first) or len(first) > forms.shape[1] + _FEW:
        return None
    sign *= sign[first][label]  # of the first of each group: one
    matrix = csr_array(diags_array(1.0 / size[dense[first]]) @ forms[dense[first]])
    askew = _askew(matrix)
    if askew is None:
        return None
    straight = np.ones(len(first), bool)
    straight[askew] = False
    number = np.cumsum(straight) - 1
    matrix = csr_array(matrix[straight])
    easy = straight[label]
    others = np.setdiff1d(np.flatnonzero(size > 0.0), dense[easy])
    extra, rest = _extended(matrix, csr_array(forms[others]), size[others])
    if extra is None:
        return None
    whole = csr_array(vstack([matrix, extra], format="csr"))
    amounts = csr_array(
        (sign[easy] * size[dense[easy]], (dense[easy], number[label[easy]])), shape=(forms.shape[0], whole.shape[0])
    )
    place = csr_array((np.ones(len(others)), (others, np.arange(len(others)))), shape=(forms.shape[0], len(others)))
    found = csr_array(amounts + place @ rest)
    found.sort_indices()
    found.data[:] = equalized(found.data)
    return whole, found


def _span(forms: csr_array) -> tuple[csr_array, csr_array] | None:
    """Find an orthonormal basis of few forms, however they lie to each other: what is curved is low in rank then."""
    reading = np.flatnonzero(np.diff(forms.indptr))
    if len(reading) > _LOW:
        return None
    dense = forms[reading].toarray()
    size = np.linalg.norm(dense, axis=1)
    _, share, basis = np.linalg.svd(dense / size[:, None], full_matrices=False)
    matrix = csr_array(basis[share > _SAME * share[0]])
    spread = csr_array(
        (np.ones(len(reading)), (reading, np.arange(len(reading)))), shape=(forms.shape[0], len(reading))
    )
    return matrix, csr_array(spread @ _cleared(_product(csr_array(dense), csr_array(matrix.T)), size))


def _askew(matrix: csr_array) -> Index | None:
    """List few unit rows without which all others are orthogonal; None if there are not few."""
    off = _product(matrix, csr_array(matrix.T))
    off.setdiag(0.0)
    off = csr_array(abs(off) > _ORTHOGONAL)
    found: list[int] = []
    counts = np.asarray(off.sum(axis=1)).ravel()
    while counts.max(initial=0) > 0:
        if len(found) == _FEW:
            return None
        found.append(int(counts.argmax()))
        counts[off.indices[off.indptr[found[-1]] : off.indptr[found[-1] + 1]]] -= 1
        counts[found] = 0
    return np.array(found, np.int64)


def _product(one: csr_array, other: csr_array) -> csr_array:
    """Multiply two matrices, as dense ones if they are."""
    sparse = one.nnz <= _SPARSE * one.shape[0] * one.shape[1]
    return csr_array(one @ other if sparse else one.toarray() @ other.toarray())


def _extended(matrix: csr_array, forms: csr_array, size: Values) -> tuple[csr_array | None, csr_array]:
    """Return directions to add until all forms are in the span, None if these are not few; and the forms' amounts."""
    width, none = matrix.shape[1], csr_array((0, matrix.shape[1]))
    amounts = _cleared(_product(forms, csr_array(matrix.T)), size)
    if matrix.shape[0] == width or not forms.shape[0]:
        return none, amounts
    if forms.shape[0] * width > _MOST:
        return None, none
    rest = forms.toarray() - (amounts @ matrix).toarray()
    more: list[Values] = []
    along: list[Values] = []
    for k in range(len(rest)):
        left = float(np.linalg.norm(rest[k]))
        if left <= _SAME * size[k]:
            continue
        if len(more) == _FEW:
            return None, none
        direction = rest[k] / left
        direction -= matrix.T @ (matrix @ direction)  # twice is enough
        for earlier in more:
            direction -= (earlier @ direction) * earlier
        direction /= np.linalg.norm(direction)
        more.append(direction)
        along.append(rest @ direction)
        rest -= np.outer(along[-1], direction)
    extra = np.array(more).reshape(len(more), width)
    added = _cleared(csr_array(np.array(along).reshape(len(more), len(rest)).T), size)
    return csr_array(extra), csr_array(hstack([amounts, added], format="csr"))


def _cleared(amounts: csr_array, size: Values) -> csr_array:
    """Drop what rounding leaves of zeros in rows of a given size."""
    small = np.abs(amounts.data) <= _ROUNDING * np.repeat(size, np.diff(amounts.indptr))
    kept = csr_array((np.where(small, 0.0, amounts.data), amounts.indices, amounts.indptr), shape=amounts.shape)
    kept.eliminate_zeros()
    return kept


def equalized(values: Values) -> Values:
    """Make values that differ by rounding alone bitwise equal: parts with the same structure are recognized by their bits."""
    size = np.abs(values)
    order = np.argsort(size, kind="stable")
    rising = size[order]
    first = np.flatnonzero(np.diff(rising, prepend=-1.0) > _EQUAL * rising)
    size[order] = np.repeat(rising[first], np.diff(np.append(first, len(rising))))
    return np.copysign(size, values)
