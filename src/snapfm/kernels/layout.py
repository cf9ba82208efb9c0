"""The memory of Newton's kernels: names of the sections of a system's structure and of a tile's workspace.

Structure (Frame) is shared by all tiles and calls; the workspace of one tile is a flat array of packs. See kernels.sections.
"""

from __future__ import annotations

from typing import NamedTuple

from snapfm.arrays import Index, Mask, Values
from snapfm.kernels.callback import NO_CALLBACK
from snapfm.kernels.compiling import compiled
from snapfm.kernels.sections import section as part

# Sections of Frame.table: cell of each unknown; J by rows; J by columns (row and entry); G by rows; lower triangle of the
# Hessian; lower triangle of the matrix and, per entry, what it sums up; which rows are equalities.
PLACE, ROW_PTR, COLUMN, COLUMN_PTR, COLUMN_ROW, COLUMN_ENTRY, GRAM_PTR, GRAM_COLUMN = range(8)
HESSIAN_ROW, HESSIAN_COLUMN, ENTRY_ROW, ENTRY_COLUMN, TERM_PTR, TERM_LEFT, TERM_RIGHT, EQUALITY = range(8, 16)
# Sections of Frame.weight.
GRAM, ENTRY_CONSTANT = range(2)

# Sections of a tile's memory, in packs. Of the program: cells, rows, slopes, derivatives of operations, Hessian, Jacobian
# (and the Jacobian times W⁻¹).
CELLS, ROWS, SLOTS, LEFT, RIGHT, PARTIAL, ADJOINT, HESSIAN, JACOBIAN, SCALED = range(10)
# Per unknown: x, û, limits, gradient of the Lagrangian, diagonal of W and its inverse, steps, distance to an active bound.
X, TARGET, LOWER, UPPER, GRADIENT, DIAGONAL, INVERSE, STEP, PLAIN_STEP, TO_BOUND, PREVIOUS = range(10, 21)
# Per row: λ and its steps, share of eliminated unknowns, residual, active set, λ of inactive rows, ‖J_r‖².
MULTIPLIER, DIRECTION, PLAIN_DIRECTION, SHIFT, RESIDUAL, ACTIVE, IDLE, ROW_NORM, PREVIOUS_MULTIPLIER = range(21, 30)
# Of the KKT matrix.
MATRIX, RHS, FACTOR, PIVOTS, SCALE, TALLY, WORK = range(30, 37)
# Of interior points: slacks of inequalities and what a barrier adds to their rows, duals of bounds and what they add to W.
SLACK, PREVIOUS_SLACK, BARRIER, LOWER_DUAL, UPPER_DUAL, BOUND_WEIGHT = range(37, 43)
PREVIOUS_RESIDUAL, BEST_STEP, BEST_DIRECTION = range(43, 46)
REGULARIZATION = 46  # one pack, δ: rows are h − δλ = 0
# Two packs: the power of two that a lane's unknowns, rows and multipliers are measured in, and one over it.
UNIT = 47
# Per row: its size, that of its slopes or of its residual where iterations begin, and one over it. Merit functions add up
# rows measured by their size, so that no row counts more for being written in smaller units.
ROW_SIZE, ROW_WEIGHT = 48, 49
# Per kink: the weight of its two slopes, of a lane whose answer is certified with a generalized gradient (project.kinks).
WEIGHT = 50
SECTIONS = 51

# Tasks of a callback, with the address of a tile's memory: evaluate rows; Jacobian and Hessian; factorize; solve in RHS.
TO_EVALUATE, TO_DIFFERENTIATE, TO_FACTORIZE, TO_SOLVE = range(4)

# Curvature along the laws at a point: not known, somewhere negative, nowhere negative.
UNKNOWN, FAILS, HOLDS = -1, 0, 1


class Frame(NamedTuple):
    """The structure of a system that iterations need. `augmented`: the matrix is [[W, Jᵀ], [J, −G]], else JW⁻¹Jᵀ + G.

    With a `callback` (see kernels.callback) the caller factorizes and solves.
    """

    table: Index
    table_at: Index
    weight: Values
    weight_at: Index
    augmented: int
    mixed: int  # whether any row is an inequality
    bounded: int  # whether any unknown has limits
    callback: int = NO_CALLBACK


class Tile(NamedTuple):
    """The memory of one tile, and where its sections begin."""

    memory: Values
    at: Index


@compiled(nogil=True)
def section(tile, number):  # a view, not a copy
    """Return a section of a tile's memory."""
    return part(tile.memory, tile.at, number)


@compiled(nogil=True)
def table(frame, number):  # a view, not a copy
    """Return a section of a frame's indices."""
    return part(frame.table, frame.table_at, number)


@compiled(nogil=True)
def weights(frame, number):  # a view, not a copy
    """Return a section of a frame's numbers."""
    return part(frame.weight, frame.weight_at, number)


class Settings(NamedTuple):
    """When to stop, and how carefully to step."""

    tolerance: float  # of the violation
    stationarity: float  # relative to the unit where that is small
    polish: float  # share of the tolerance above which a further step is taken
    ordinary: float  # see point.size_rows
    trials: int  # of lengths and corrections before a step counts as failed; 0: full steps, not checked


class Lanes(NamedTuple):
    """Working numbers of the iterations, one per lane and name. Allocated once, used by all tiles."""

    damping: Values
    penalty: Values
    theta: Values  # ℓ1 violation
    objective: Values
    violation: Values
    stationarity: Values
    decrease: Values  # of the merit, predicted
    convex: Values  # curvature added
    alpha: Values  # length of the step
    new_theta: Values
    new_objective: Values
    new_worst: Values
    merit: Values
    slopes: Values
    sizes: Values
    tolerance: Values  # in the lane's unit
    shift: Values  # added to the diagonal of W in the current factors
    allowed: Values  # stationarity that is small enough, in the lane's unit
    negative: Index  # negative entries of W
    second: Index  # what is known of the curvature along the laws: UNKNOWN, FAILS or HOLDS
    pushes: Index  # times that a lane was pushed off a saddle
    converged: Mask  # first-order conditions hold
    pushed: Mask  # the current step is a push off a saddle
    polished: Mask
    accepted: Mask
    corrected: Mask
    wanted: Mask
