"""Batches of vectors (b, n), sample by sample, and the small problems of a subspace: min ½‖y‖² on quadrics.

Used by solve.nullspace. The bits of a sample do not depend on the others. Imports kernels only.
"""

from __future__ import annotations

import numpy as np

from snapfm.kernels.numba.compiling import compiled

_ITERATIONS = 60  # of Newton's method on a small problem; most take 4 to 8
_SHORTEST = 1e-6  # step, as a share of Newton's
_DECREASE = 1e-4  # share of the predicted decrease that a step has to deliver
_SOLVED = 1e-10  # residual of a small problem, relative to its size
_ROUNDING = 1e-14  # by which an inequality may be violated, relative to its size
_TINY = 1e-300


@compiled(nogil=True, error_model="numpy", fastmath={"reassoc"})
def dots(one, other, out):  # read: one, other (b, n); written: out (b,)
    """Compute the products of two batches, sample by sample."""
    for sample in range(len(one)):
        total = 0.0
        for j in range(one.shape[1]):
            total += one[sample, j] * other[sample, j]
        out[sample] = total


@compiled(nogil=True, error_model="numpy")
def add_scaled(weight, source, out):  # read: weight (b,), source (b, n); written: out (b, n)
    """out += weight · source; a weight of zero adds nothing, not even NaN."""
    for sample in range(len(source)):
        if weight[sample] != 0.0:
            for j in range(source.shape[1]):
                out[sample, j] += weight[sample] * source[sample, j]


@compiled(nogil=True, error_model="numpy")
def add_images(row, column, value, source, out):
    """out += H · source, for lower triangles H with entries value (b or 1, nnz). Read: source (b, n); written: out (b, n)."""
    for sample in range(len(source)):
        own, x, image = value[min(sample, len(value) - 1)], source[sample], out[sample]
        for h in range(len(row)):
            i, j = row[h], column[h]
            image[i] += own[h] * x[j]
            if i != j:
                image[j] += own[h] * x[i]


@compiled(nogil=True, error_model="numpy")
def least_curvature(row, column, weight, value, size, out):
    """Bound the eigenvalues of I + Σ weight·H from below, by its diagonal minus what each row has beside it.

    Read: weight (b, k), value (k, b or 1, nnz), size (number of unknowns); written: out (b,).
    """
    least = np.empty(size)
    for sample in range(len(weight)):
        least[:] = 1.0
        for h in range(len(row)):
            total = 0.0
            for k in range(weight.shape[1]):
                total += weight[sample, k] * value[k, min(sample, value.shape[1] - 1), h]
            if row[h] == column[h]:
                least[row[h]] += total
            else:
                least[row[h]] -= abs(total)
                least[column[h]] -= abs(total)
        worst = np.inf
        for j in range(size):
            if not least[j] >= worst:
                worst = least[j]
        out[sample] = worst


@compiled(nogil=True, error_model="numpy")
def nearest_on_quadrics(constant, slope, curvature, equality, y, multiplier, solved):
    """Minimize ½‖y‖² subject to c + aᵀy + ½yᵀMy = 0 (or ≤ 0), from the y and multipliers given.

    Read: constant (b, k), slope (b, k, d), curvature (b, k, d, d); written: y (b, d), multiplier (b, k), solved (b,).
    """
    for sample in range(len(y)):
        size = np.empty(len(equality))
        for i in range(len(size)):
            size[i] = np.sqrt((slope[sample, i] ** 2).sum())
            size[i] = size[i] if size[i] > _TINY else 1.0
        c, a = constant[sample] / size, slope[sample] / size.reshape(-1, 1)
        bend = curvature[sample] / size.reshape(-1, 1, 1)
        scaled = multiplier[sample] * size
        solved[sample] = _nearest(c, a, bend, equality, y[sample], scaled)
        multiplier[sample] = scaled / size


@compiled(nogil=True, error_model="numpy")
def _nearest(c, a, bend, equality, y, multiplier):  # written: y, multiplier
    """Change the active set until no multiplier has the wrong sign and no row is violated."""
    rows = len(c)
    far = 1e-3 * _TINY
    for i in range(rows):
        far = max(far, abs(c[i]))
    active = np.empty(rows, np.bool_)
    for i in range(rows):
        active[i] = equality[i] or multiplier[i] > 0.0 or _value(c, a, bend, y, i) > 0.0
    for _ in range(2 * rows + 4):
        if not _newton(c, a, bend, active, far, y, multiplier):
            return False
        drop, changed = -1, False
        for i in range(rows):
            if active[i] and not equality[i] and multiplier[i] < 0.0:
                drop = i if drop < 0 or multiplier[i] < multiplier[drop] else drop
        if drop >= 0:
            active[drop], multiplier[drop], changed = False, 0.0, True
        for i in range(rows):
            if not active[i] and i != drop and _value(c, a, bend, y, i) > _ROUNDING * far:
                active[i], changed = True, True
        if not changed:
            return True
    return False


@compiled(nogil=True, error_model="numpy")
def _value(c, a, bend, y, i):
    total = c[i]
    for p in range(len(y)):
        total += y[p] * (a[i, p] + 0.5 * _image(bend, y, i, p))
    return total


@compiled(nogil=True, error_model="numpy")
def _image(bend, y, i, p):
    total = 0.0
    for q in range(len(y)):
        total += bend[i, p, q] * y[q]
    return total


@compiled(nogil=True, error_model="numpy")
def _newton(c, a, bend, active, far, y, multiplier):  # written: y, multiplier
    """Newton's method on the optimality conditions of the active rows.

    Multipliers are those that suit y best: on a sphere their Hessian then never becomes singular, however long a step is.
    A step is taken if it reduces what is left of the conditions, or the ℓ1 merit function; if none does, one with W = I is tried.
    """
    d, rows = len(y), np.flatnonzero(active)
    residual, trial = np.empty(d + len(rows)), np.empty(d + len(rows))
    before, penalty = y.copy(), 0.0
    left = _residual(c, a, bend, rows, y, multiplier, residual)
    for _ in range(_ITERATIONS):
        if left == 0.0:
            return True
        before[:] = y
        accepted = False
        for bent in range(1, -1, -1):
            step = _step(a, bend, rows, bent, before, multiplier, residual)
            violation = np.abs(residual[d:]).sum()
            for k in range(len(rows)):
                penalty = max(penalty, 2.0 * abs(step[d + k]))
            merit = 0.5 * (before**2).sum() + penalty * violation
            slope = (before * step[:d]).sum() - penalty * violation
            alpha = 1.0
            while alpha >= _SHORTEST and not accepted:
                y[:] = before + alpha * step[:d]
                new = _residual(c, a, bend, rows, y, multiplier, trial)
                new_merit = 0.5 * (y**2).sum() + penalty * np.abs(trial[d:]).sum()
                accepted = new <= left * (1.0 - _DECREASE * alpha)
                accepted = accepted or (slope < 0.0 and new_merit < merit + _DECREASE * alpha * slope)
                alpha *= 0.5
            if accepted:
                left, residual[:] = new, trial
                break
            y[:] = before
            left = _residual(c, a, bend, rows, y, multiplier, residual)
        if not accepted:
            break
    far = max(far, np.sqrt((y**2).sum()))
    return left <= (_SOLVED * far) ** 2


@compiled(nogil=True, error_model="numpy")
def _step(a, bend, rows, bent, y, multiplier, residual):
    """Solve the linearized conditions with W = I + Σ multiplier·M, or I if not `bent`: steps of y, then multipliers."""
    d, size = len(y), len(residual)
    matrix, step = np.zeros((size, size)), np.zeros(size)
    for p in range(d):
        matrix[p, p], step[p] = 1.0, -y[p]
        for k in range(len(rows)):
            i = rows[k]
            if bent == 1:
                for q in range(d):
                    matrix[p, q] += multiplier[i] * bend[i, p, q]
            matrix[p, d + k] = matrix[d + k, p] = a[i, p] + _image(bend, y, i, p)
    step[d:] = -residual[d:]
    if not _eliminate(matrix, step):
        step[:] = 0.0
    return step


@compiled(nogil=True, error_model="numpy")
def _residual(c, a, bend, rows, y, multiplier, out):  # written: multiplier, out
    """Find the best multipliers and what is left of the optimality conditions; return the sum of its squares."""
    d, count = len(y), len(rows)
    slope, gram, found = np.empty((count, d)), np.zeros((count, count)), np.zeros(count)
    for k in range(count):
        i = rows[k]
        total = c[i]
        for p in range(d):
            image = _image(bend, y, i, p)
            slope[k, p] = a[i, p] + image
            total += y[p] * (a[i, p] + 0.5 * image)
        out[d + k] = total
    for k in range(count):
        for p in range(d):
            found[k] -= slope[k, p] * y[p]
        for other in range(count):
            for p in range(d):
                gram[k, other] += slope[k, p] * slope[other, p]
    if not _eliminate(gram, found):
        return np.inf
    out[:d] = y
    for k in range(count):
        multiplier[rows[k]] = found[k]
        for p in range(d):
            out[p] += found[k] * slope[k, p]
    return (out**2).sum()


@compiled(nogil=True, error_model="numpy")
def _eliminate(matrix, x):  # written: matrix, x
    """Solve a small system by elimination with row exchanges; return whether it is regular."""
    size = len(x)
    for j in range(size):
        best = j
        for i in range(j + 1, size):
            if abs(matrix[i, j]) > abs(matrix[best, j]):
                best = i
        if not abs(matrix[best, j]) > _TINY:
            return False
        if best != j:
            for q in range(size):
                matrix[j, q], matrix[best, q] = matrix[best, q], matrix[j, q]
            x[j], x[best] = x[best], x[j]
        for i in range(j + 1, size):
            factor = matrix[i, j] / matrix[j, j]
            if factor != 0.0:
                for q in range(j, size):
                    matrix[i, q] -= factor * matrix[j, q]
                x[i] -= factor * x[j]
    for j in range(size - 1, -1, -1):
        for q in range(j + 1, size):
            x[j] -= matrix[j, q] * x[q]
        x[j] /= matrix[j, j]
    return True
