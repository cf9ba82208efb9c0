"""Transforms: laws that read a field through orthogonal directions are written over its coefficients along these.

Energies of Fourier or cosine modes are dense in the unknowns of a field, and separable in its coefficients. If all that
operations and rows read of the unknowns lies along orthogonal directions D, the coefficients y = Du become the unknowns, and
u = û + Dᵀ(y − ŷ): distances are the same (math.md, "Reduction"). Found from the tape, whatever operators made its forms.
Structure only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, hstack, vstack

from snapfm.arrays import Index, Values
from snapfm.compile.lower.tape import Block, Tape

_DENSE = 8  # unknowns of a form, on average, from which coefficients pay
_FEW = 64  # directions that may lie askew to the others: totals, moments
_MOST = 40_000_000  # entries of D, which is dense
_SAME = 1e-9  # directions that differ by less are one
_ORTHOGONAL = 1e-10  # of the product of two different directions
_ROUNDING = 1e-14  # share of a coefficient that is what sums leave of zero
_EQUAL = 1e-14  # amounts that differ by less, relative to their size, are equal
_TILE = 8  # fields that are multiplied together: rounding must not depend on the size of a batch


@dataclass(frozen=True)
class Transform:
    """Orthonormal directions D (r, n)."""

    matrix: Values

    def forward(self, u: Values) -> Values:
        """Return the coefficients Du (b, r) of fields (b, n)."""
        return _tiled(u, self.matrix.T)

    def back(self, y: Values) -> Values:
        """Return Dᵀy (b, n)."""
        return _tiled(y, self.matrix)

    def curvature(self, hessian: csr_array) -> Values:
        """Return second derivatives (r, r) by coefficients as those by the unknowns of fields, all of them, row by row."""
        found: Values = (self.matrix.T @ (hessian @ self.matrix)).ravel()
        return found

    def of_fields(self, slopes: csr_array) -> Values:
        """Return slopes (m, r) by coefficients as slopes by the unknowns of fields, all of them, row by row."""
        found: Values = np.asarray(slopes @ self.matrix).ravel()
        return found


def _tiled(batch: Values, matrix: Values) -> Values:
    out = np.empty((len(batch), matrix.shape[1]))
    some = np.zeros((_TILE, batch.shape[1]))
    for start in range(0, len(batch), _TILE):
        part = batch[start : start + _TILE]
        some[: len(part)], some[len(part) :] = part, 0.0
        out[start : start + len(part)] = (some @ matrix)[: len(part)]
    return out


def transformed(tape: Tape, rows: csr_array) -> tuple[Tape, csr_array, Transform | None]:
    """Write a tape and its rows over coefficients; as they are, with None, where that does not pay or does not apply."""
    if not tape.blocks:  # affine laws have a closed form
        return tape, rows, None
    matrices = [operand for block in tape.blocks for operand in block.operands] + [rows]
    own = [csr_array(matrix[:, tape.unknown_cells]) for matrix in matrices]
    read, entries = sum(int((np.diff(one.indptr) > 0).sum()) for one in own), sum(one.nnz for one in own)
    if not read or entries < _DENSE * read or tape.unknowns**2 > _MOST:
        return tape, rows, None
    forms = csr_array(vstack(own, format="csr"))
    found = _directions(forms)
    if found is None:
        return tape, rows, None
    transform, amounts = found
    if amounts.nnz * 4 > forms.nnz:
        return tape, rows, None
    lines = np.cumsum([0, *(matrix.shape[0] for matrix in matrices)])
    count, place = len(transform.matrix), np.arange(tape.cells)
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


def _directions(forms: csr_array) -> tuple[Transform, csr_array] | None:
    """Find orthonormal directions that span all forms (k, n), and every form as amounts along them."""
    size = np.sqrt(np.asarray(forms.multiply(forms).sum(axis=1)).ravel())
    dense = np.flatnonzero(np.diff(forms.indptr) >= _DENSE)
    label, sign, first = _distinct(csr_array(forms[dense]), size[dense])
    if not len(first) or len(first) > forms.shape[1] + _FEW:
        return None
    sign *= sign[first][label]  # of the first of each group: one
    matrix = csr_array(forms[dense[first]]).toarray() / size[dense[first], None]
    askew = _askew(matrix)
    if askew is None:
        return None
    straight = np.ones(len(first), bool)
    straight[askew] = False
    number = np.cumsum(straight) - 1
    matrix = matrix[straight]
    easy = straight[label]
    others = np.setdiff1d(np.flatnonzero(size > 0.0), dense[easy])
    extra, rest = _extended(matrix, csr_array(forms[others]), size[others])
    if extra is None:
        return None
    whole = np.concatenate([matrix, extra])
    amounts = csr_array(
        (sign[easy] * size[dense[easy]], (dense[easy], number[label[easy]])), shape=(forms.shape[0], len(whole))
    )
    place = csr_array((np.ones(len(others)), (others, np.arange(len(others)))), shape=(forms.shape[0], len(others)))
    found = csr_array(amounts + place @ rest)
    found.sort_indices()
    found.data[:] = equalized(found.data)
    return Transform(np.ascontiguousarray(whole)), found


def _distinct(forms: csr_array, size: Values) -> tuple[Index, Values, Index]:
    """Group forms that are multiples of each other, by two random products: label and sign of each, the first of each group."""
    probes = forms @ np.random.default_rng(0).standard_normal((forms.shape[1], 2)) / size[:, None]
    sign = np.where(probes[:, 0] < 0.0, -1.0, 1.0)
    probes *= sign[:, None]
    order = np.argsort(probes[:, 0], kind="stable")
    label = np.empty(len(order), np.int64)
    label[order] = np.cumsum(np.diff(probes[order, 0], prepend=-np.inf) > _SAME) - 1
    order = np.lexsort((probes[:, 1], label))
    steps = (np.diff(label[order], prepend=-1) > 0) | (np.abs(np.diff(probes[order, 1], prepend=np.inf)) > _SAME)
    label[order] = np.cumsum(steps) - 1
    _, first = np.unique(label, return_index=True)
    return label, sign, first


def _askew(matrix: Values) -> Index | None:
    """List few unit rows without which all others are orthogonal; None if there are not few."""
    off = np.abs(matrix @ matrix.T) > _ORTHOGONAL
    np.fill_diagonal(off, False)
    found: list[int] = []
    counts = off.sum(axis=1)
    while counts.max(initial=0) > 0:
        if len(found) == _FEW:
            return None
        worst = int(counts.argmax())
        found.append(worst)
        counts -= off[worst]
        off[worst], off[:, worst] = False, False
        counts[worst] = 0
    return np.array(found, np.int64)


def _extended(matrix: Values, forms: csr_array, size: Values) -> tuple[Values | None, csr_array]:
    """Return directions to add until all forms are in the span, None if these are not few; and the forms' amounts."""
    amounts = np.asarray(forms @ matrix.T)
    if len(matrix) == matrix.shape[1]:
        return np.zeros((0, matrix.shape[1])), _cleared(amounts, size)
    more: list[Values] = []
    rest = forms.toarray() - amounts @ matrix if forms.shape[0] <= _MOST // matrix.shape[1] else None
    if rest is None:
        return None, csr_array((0, 0))
    along: list[Values] = []
    for k in range(len(rest)):
        left = float(np.linalg.norm(rest[k]))
        if left <= _SAME * size[k]:
            continue
        if len(more) == _FEW:
            return None, csr_array((0, 0))
        direction = rest[k] / left
        for earlier in (matrix, *more):  # twice is enough
            direction -= earlier.T @ (earlier @ direction) if earlier.ndim == 2 else (earlier @ direction) * earlier
        direction /= np.linalg.norm(direction)
        more.append(direction)
        along.append(rest @ direction)
        rest -= np.outer(along[-1], direction)
    extra = np.array(more).reshape(len(more), matrix.shape[1])
    both = np.concatenate([amounts, np.array(along).reshape(len(more), len(rest)).T], axis=1)
    return extra, _cleared(both, size)


def _cleared(amounts: Values, size: Values) -> csr_array:
    return csr_array(np.where(np.abs(amounts) > _ROUNDING * size[:, None], amounts, 0.0))


def equalized(values: Values) -> Values:
    """Make values that differ by rounding alone bitwise equal: parts with the same structure are recognized by their bits."""
    size = np.abs(values)
    order = np.argsort(size, kind="stable")
    rising = size[order]
    first = np.flatnonzero(np.diff(rising, prepend=-1.0) > _EQUAL * rising)
    size[order] = np.repeat(rising[first], np.diff(np.append(first, len(rising))))
    return np.copysign(size, values)
