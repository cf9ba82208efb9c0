"""The Newton step where the Hessian couples unknowns: projected conjugate gradients, preconditioned by the Schur complement.

The augmented matrix [[W, Jᵀ], [J, −G]] of a law on a grid has a long factor; JD⁻¹Jᵀ + G with a positive diagonal D near W has
a short one. The step that D gives satisfies the linearized rows. Conjugate gradients on the directions along them, with
[[D, Jᵀ], [J, −G]] as the preconditioner, deadline it into the step of W (math.md, "Coupled Hessians"). A direction of negative
curvature ends them; the step so far is then that of a convex model. Every lane has its own coefficients. Imports kernels only.
"""

from __future__ import annotations

from snapfm.kernels.direction import RUNNING, augmented_direction, schur_direction, solved, spread_of, without_rounding
from snapfm.kernels.layout import FAILS, HOLDS, UNKNOWN
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import absolute, add, div, fma, fnma, full, load, mul, pick, store
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import scattered

# Error of a step, relative to its size: a smaller one saves no Newton iteration, each of which costs many of these.
_STEP_ERROR = 1e-3
_STEP_ITERATIONS = 60  # spectra that need more are those of convexified models, far from an answer
# A generic direction followed until this little of it is left has met all negative curvature there is.
_CURVATURE_ERROR = 1e-6
_CURVATURE_ITERATIONS = 200
_FLAT = 1e-8  # curvature below this share of the preconditioner's counts as negative
# Packs of the section GRADIENTS: r·g, that of the iteration before, curvature, size, length of the step, factor of the direction.
_RZ, _LAST_RZ, _CURVED, _SIZE, _ALPHA, _BETA = range(6)
SCALARS = 6  # packs of that section


@compiled(nogil=True, error_model="numpy")
def newton_direction(frame, plan, tile, damping, status, convex, stop):
    """Solve the KKT system with the current factors. Written: step, direction; convex, where negative curvature was met."""
    if frame.augmented == 1:
        augmented_direction(frame, plan, tile)
        return
    schur_direction(frame, plan, tile)
    if frame.coupled == 0:
        return
    scalars, step, inverse = tile.gradients, tile.step, tile.inverse
    _remainder(frame, tile, damping)
    size = full(0.0)
    for j in range(len(step) // LANES):
        size = fma(_weighed(load(step, j), load(inverse, j)), load(step, j), size)
    wanted = tile.wanted
    store(scalars, _SIZE, size)
    for lane in range(LANES):
        wanted[lane] = 1.0 if status[lane] == RUNNING else 0.0
    _conjugate(frame, plan, tile, damping, stop, True, _STEP_ERROR, _STEP_ITERATIONS)
    for lane in range(LANES):
        if wanted[lane] < 0.0:
            convex[lane] = 1.0


@compiled(nogil=True, error_model="numpy")
def check_curvature(frame, plan, tile, damping, wanted, second, stop):
    """Find for the lanes that are `wanted` whether the curvature along the laws is nowhere negative. Written: second, conjugate.

    Diagonal dominance proves it. Otherwise a generic direction is followed: conjugate gradients meet negative curvature with
    probability one before they converge. Where it is met, CONJUGATE holds a direction of negative curvature along the laws.
    """
    spread, weight, inverse, asked = tile.remainder, tile.diagonal, tile.inverse, tile.wanted
    spread_of(frame, tile, spread)
    any_open = False
    for lane in range(LANES):
        if wanted[lane]:
            second[lane] = HOLDS
            for j in range(len(weight) // LANES):
                i = j * LANES + lane
                if inverse[i] != 0.0 and weight[i] + damping[lane] <= spread[i]:
                    second[lane] = UNKNOWN
            any_open = any_open or second[lane] == UNKNOWN
        asked[lane] = 1.0 if wanted[lane] and second[lane] == UNKNOWN else 0.0
    if not any_open:
        return
    scalars = tile.gradients
    size = full(0.0)
    for j in range(len(weight) // LANES):
        store(spread, j, _free(full(scattered(j, 1)), load(inverse, j)))
        size = fma(mul(load(spread, j), load(inverse, j)), load(spread, j), size)
    store(scalars, _SIZE, size)
    _conjugate(frame, plan, tile, damping, stop, False, _CURVATURE_ERROR, _CURVATURE_ITERATIONS)
    for lane in range(LANES):
        if wanted[lane] and second[lane] == UNKNOWN and stop[0] == 0:
            second[lane] = FAILS if asked[lane] < 0.0 else (HOLDS if asked[lane] == 0.0 else UNKNOWN)


@compiled(nogil=True, error_model="numpy")
def _conjugate(frame, plan, tile, damping, stop, take, error, most):
    """Run conjugate gradients from REMAINDER in the lanes WANTED (1.0), until their energy is error² of the pack SIZE.

    With `take` the iterates are added to step and direction. WANTED becomes 0 where they converged and −1 where curvature was
    negative. Written: wanted, remainder, conjugate, conjugate_multiplier, image, plain_step, plain_direction, gradients, rhs.
    """
    remainder, conjugate, along, image = tile.remainder, tile.conjugate, tile.conjugate_multiplier, tile.image
    gradient, pulled = tile.plain_step, tile.plain_direction  # free until the search
    step, direction, scalars, wanted = tile.step, tile.direction, tile.gradients, tile.wanted
    unknowns, rows = len(remainder) // LANES, len(along) // LANES
    _precondition(frame, plan, tile, remainder, gradient, pulled)
    for i in range(len(conjugate)):
        if wanted[i % LANES] == 1.0:
            conjugate[i] = gradient[i]
    for i in range(len(along)):
        if wanted[i % LANES] == 1.0:
            along[i] = pulled[i]
    for _ in range(most):
        waiting = False
        for lane in range(LANES):
            small = scalars[_RZ * LANES + lane] <= error * error * scalars[_SIZE * LANES + lane]
            if wanted[lane] == 1.0 and small:
                wanted[lane] = 0.0
        for lane in range(LANES):
            waiting = waiting or wanted[lane] == 1.0
        if not waiting or stop[0] != 0:
            return
        _apply(frame, tile, damping, conjugate, along, image)
        for lane in range(LANES):
            scalars[_ALPHA * LANES + lane] = 0.0
            if wanted[lane] == 1.0:
                curvature = scalars[_CURVED * LANES + lane]
                if not curvature > _FLAT * scalars[_BETA * LANES + lane]:  # NaN included
                    wanted[lane] = -1.0
                else:
                    scalars[_ALPHA * LANES + lane] = scalars[_RZ * LANES + lane] / curvature
        alpha = load(scalars, _ALPHA)
        if take:
            for j in range(unknowns):
                store(step, j, fma(alpha, load(conjugate, j), load(step, j)))
            for r in range(rows):
                store(direction, r, fma(alpha, load(along, r), load(direction, r)))
        for j in range(unknowns):
            store(remainder, j, fnma(alpha, load(image, j), load(remainder, j)))
        store(scalars, _LAST_RZ, load(scalars, _RZ))
        _precondition(frame, plan, tile, remainder, gradient, pulled)
        for lane in range(LANES):
            going = wanted[lane] == 1.0
            before = scalars[_LAST_RZ * LANES + lane]
            # a lane that has ended keeps its direction
            scalars[_BETA * LANES + lane] = scalars[_RZ * LANES + lane] / before if going else 1.0
            scalars[_ALPHA * LANES + lane] = 1.0 if going else 0.0
        alpha, beta = load(scalars, _ALPHA), load(scalars, _BETA)
        for j in range(unknowns):
            store(conjugate, j, fma(beta, load(conjugate, j), mul(alpha, load(gradient, j))))
        for r in range(rows):
            store(along, r, fma(beta, load(along, r), mul(alpha, load(pulled, r))))


@compiled(nogil=True, error_model="numpy")
def _remainder(frame, tile, damping):  # written: remainder, image
    """remainder = −(slope + W·step + Jᵀ·direction) at the unknowns that are free."""
    remainder, slope, image, inverse = tile.remainder, tile.gradient, tile.image, tile.inverse
    _apply(frame, tile, damping, tile.step, tile.direction, image)
    for j in range(len(slope) // LANES):
        total = fnma(full(-1.0), load(slope, j), load(image, j))
        store(remainder, j, _free(fnma(full(1.0), total, full(0.0)), load(inverse, j)))


@compiled(nogil=True, error_model="numpy")
def _apply(frame, tile, damping, x, y, image):  # written: image; packs CURVED (x·image) and BETA (x·D·x) of gradients
    """image = (W + damping)x + Jᵀy, at the unknowns that are free."""
    inverse = tile.inverse
    image[:] = 0.0
    add_image(frame, tile, load(damping, 0), x, y, image)
    curvature, size = full(0.0), full(0.0)
    for j in range(len(inverse) // LANES):
        here = _free(load(image, j), load(inverse, j))
        store(image, j, here)
        curvature = fma(here, load(x, j), curvature)
        size = fma(_weighed(load(x, j), load(inverse, j)), load(x, j), size)
    scalars = tile.gradients
    store(scalars, _CURVED, curvature)
    store(scalars, _BETA, size)


@compiled(nogil=True, error_model="numpy")
def add_image(frame, tile, damping, x, y, image):  # read: damping, a pack; written: image
    """image += (W + damping)x + Jᵀy."""
    weight, hessian, jacobian = tile.diagonal, tile.hessian, tile.jacobian
    ptr, row, entry = frame.column_ptr, frame.column_row, frame.column_entry
    for j in range(len(ptr) - 1):
        total = add(load(image, j), mul(add(load(weight, j), damping), load(x, j)))
        for p in range(ptr[j], ptr[j + 1]):
            total = fma(load(jacobian, entry[p]), load(y, row[p]), total)
        store(image, j, total)
    hessian_row, hessian_column = frame.hessian_row, frame.hessian_column
    for h in range(len(hessian_row)):
        i, j = hessian_row[h], hessian_column[h]
        if i != j:
            value = load(hessian, h)
            store(image, i, fma(value, load(x, j), load(image, i)))
            store(image, j, fma(value, load(x, i), load(image, j)))


@compiled(nogil=True, error_model="numpy")
def _precondition(
    frame, plan, tile, remainder, gradient, pulled
):  # written: gradient, pulled, rhs; pack RZ of gradients
    """Solve [[D, Jᵀ], [J, −G]] (gradient, pulled) = (remainder, 0) over the active rows and the free unknowns."""
    rhs, scaled, active, jacobian, inverse = tile.rhs, tile.scaled, tile.active, tile.jacobian, tile.inverse
    row_ptr, column = frame.row_ptr, frame.column
    for r in range(len(row_ptr) - 1):
        total = full(0.0)
        for p in range(row_ptr[r], row_ptr[r + 1]):
            total = fma(load(scaled, p), load(remainder, column[p]), total)
        if frame.shared == 1:
            size = full(0.0)
            for p in range(row_ptr[r], row_ptr[r + 1]):
                size = fma(absolute(load(scaled, p)), absolute(load(remainder, column[p])), size)
            total = without_rounding(total, size)
        store(rhs, r, mul(load(active, r), total))
    solved(frame, plan, tile, rhs, pulled)
    ptr, row, entry = frame.column_ptr, frame.column_row, frame.column_entry
    product = full(0.0)
    for j in range(len(ptr) - 1):
        total = load(remainder, j)
        for p in range(ptr[j], ptr[j + 1]):
            total = fnma(load(jacobian, entry[p]), load(pulled, row[p]), total)
        total = mul(total, load(inverse, j))
        store(gradient, j, total)
        product = fma(total, load(remainder, j), product)
    store(tile.gradients, _RZ, product)


@compiled(nogil=True, error_model="numpy")
def _free(value, inverse):
    """Return a pack, zero where an unknown is held."""
    return pick(absolute(inverse), full(0.0), full(0.0), value)


@compiled(nogil=True, error_model="numpy")
def _weighed(value, inverse):
    """Return D·value, zero where an unknown is held."""
    return pick(absolute(inverse), full(0.0), full(0.0), div(value, inverse))
