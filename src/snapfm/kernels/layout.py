"""The memory of Newton's kernels: names of the sections of a system's structure and of a tile's workspace.

Structure (Frame) is shared by all tiles and calls; the workspace of one tile is a flat array of packs. See
kernels.numba.sections. Between loops only the sections before KEPT hold anything; the others are scratch that all tiles share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from snapfm.arrays import Index, Mask, Table, Values
from snapfm.kernels.callback import NO_CALLBACK
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import load, store
from snapfm.kernels.numba.sections import section as part
from snapfm.kernels.numba.sections import starts, unowned
from snapfm.kernels.operations import LANES

# Sections of Frame.table: cell of each unknown; J by rows; J by columns (row and entry); G by rows; lower triangle of the
# Hessian; lower triangle of the matrix and, per entry, what it sums up; which rows are equalities.
PLACE, ROW_PTR, COLUMN, COLUMN_PTR, COLUMN_ROW, COLUMN_ENTRY, GRAM_PTR, GRAM_COLUMN = range(8)
HESSIAN_ROW, HESSIAN_COLUMN, ENTRY_ROW, ENTRY_COLUMN, TERM_PTR, TERM_LEFT, TERM_RIGHT, EQUALITY = range(8, 16)
# Sections of Frame.weight.
GRAM, ENTRY_CONSTANT = range(2)

# Sections of a tile's memory, in packs. First what a lane keeps from one loop to the next: cells of the program, Jacobian (with
# its constants), x, û and limits; per row λ, the share of eliminated unknowns, residual, and its size and one over it: that of
# its slopes or of its residual where iterations begin. Merit functions add up rows measured by their size, so that no row counts
# more for being written in smaller units.
CELLS, JACOBIAN, X, TARGET, LOWER, UPPER, MULTIPLIER, SHIFT, RESIDUAL, ROW_SIZE, ROW_WEIGHT = range(11)
# What a barrier adds to the rows and to W; one pack, δ: rows are h − δλ = 0; two packs: the power of two that a lane's
# unknowns, rows and multipliers are measured in, and one over it.
BARRIER, BOUND_WEIGHT, REGULARIZATION, UNIT = range(11, 15)
# Per kink: the weight of its two slopes, of a lane whose answer is certified with a generalized gradient (solve.kinks.search).
# Per operation: the slope of the Lagrangian by its value.
WEIGHT, ADJOINT = 15, 16
KEPT = 17
# The rest is scratch, shared by the tiles of a call. Of the program: rows, slopes, derivatives of operations, Hessian (and the
# Jacobian times D⁻¹).
ROWS, SLOTS, LEFT, RIGHT, PARTIAL, HESSIAN, SCALED = range(KEPT, 24)
# Per unknown: gradient of the Lagrangian, diagonal of W, inverse of D, steps, distance to an active bound.
GRADIENT, DIAGONAL, INVERSE, STEP, PLAIN_STEP, BEST_STEP, TO_BOUND, PREVIOUS = range(24, 32)
# Per row: steps of λ, active set, λ of inactive rows, ‖J_r‖².
DIRECTION, PLAIN_DIRECTION, BEST_DIRECTION, ACTIVE, IDLE, ROW_NORM = range(32, 38)
PREVIOUS_MULTIPLIER, PREVIOUS_RESIDUAL = range(38, 40)
# Of the KKT matrix.
MATRIX, RHS, FACTOR, PIVOTS, SCALE, TALLY, WORK = range(40, 47)
# Of interior points: slacks of inequalities, duals of bounds.
SLACK, PREVIOUS_SLACK, LOWER_DUAL, UPPER_DUAL = range(47, 51)
# Of conjugate gradients, where the Hessian couples unknowns: per unknown what is left of the KKT system, the direction and its
# image, per row the direction; then packs of scalars, and the lanes that take part.
REMAINDER, CONJUGATE, IMAGE, CONJUGATE_MULTIPLIER, GRADIENTS, WANTED = range(51, 57)
SECTIONS = 57

# How many packs each section has: the name of a number of a System (`tile_starts`).
SIZES: dict[int, str] = {
    CELLS: "cells",
    **dict.fromkeys((JACOBIAN, SCALED), "entries"),
    **dict.fromkeys((X, TARGET, GRADIENT, DIAGONAL, INVERSE, STEP, PLAIN_STEP, BEST_STEP, PREVIOUS), "unknowns"),
    **dict.fromkeys((LOWER, UPPER, TO_BOUND, LOWER_DUAL, UPPER_DUAL, BOUND_WEIGHT), "limits"),
    **dict.fromkeys((MULTIPLIER, SHIFT, RESIDUAL, ROW_SIZE, ROW_WEIGHT, BARRIER, ROWS, ACTIVE, IDLE, ROW_NORM), "rows"),
    **dict.fromkeys((DIRECTION, PLAIN_DIRECTION, BEST_DIRECTION, PREVIOUS_MULTIPLIER, PREVIOUS_RESIDUAL), "rows"),
    **dict.fromkeys((SLACK, PREVIOUS_SLACK), "slacks"),
    REGULARIZATION: "one",
    UNIT: "two",
    WEIGHT: "kinks",
    ADJOINT: "operations",
    PARTIAL: "partials",
    SLOTS: "slots_and_one",
    **dict.fromkeys((LEFT, RIGHT), "slots"),
    HESSIAN: "hessian",
    MATRIX: "matrix",
    RHS: "right_side",
    FACTOR: "factor",
    **dict.fromkeys((PIVOTS, SCALE, WORK), "pivots"),
    TALLY: "tally",
    **dict.fromkeys((REMAINDER, CONJUGATE, IMAGE), "conjugate_unknowns"),
    CONJUGATE_MULTIPLIER: "conjugate_rows",
    GRADIENTS: "scalars",
    WANTED: "conjugate_one",
}

# Tasks of a callback, with the address of a tile's memory: evaluate rows; Jacobian and Hessian; factorize; solve in RHS.
TO_EVALUATE, TO_DIFFERENTIATE, TO_FACTORIZE, TO_SOLVE = range(4)

# Curvature along the laws at a point: not known, somewhere negative, nowhere negative.
UNKNOWN, FAILS, HOLDS = -1, 0, 1


class Frame(NamedTuple):
    """The structure of a system that iterations need. `augmented`: the matrix is [[W, Jᵀ], [J, −G]], else JD⁻¹Jᵀ + G.

    D is W where that is diagonal. Where it is `coupled`, D preconditions conjugate gradients (kernels.coupled).
    With a `callback` (see kernels.callback) the caller factorizes and solves.
    """

    table: Table
    table_at: Index
    weight: Values
    weight_at: Index
    augmented: int
    mixed: int  # whether any row is an inequality
    bounded: int  # whether any unknown has limits
    coupled: int = 0  # whether D is not W, and conjugate gradients make up for it
    shared: int = 0  # whether D = I, so that rows of constant slope are factorized once for all samples
    callback: int = NO_CALLBACK


def tile_starts(sizes: Mapping[str, int]) -> Index:
    """Return where each section of a tile's memory begins, and where the last ends."""
    return starts([LANES * sizes[SIZES[number]] for number in range(SECTIONS)])


class Tile(NamedTuple):
    """The memory of one tile: the sections before KEPT, then scratch; and where each section begins.

    Scratch has room for all sections, so that `at` holds in both.
    """

    memory: Values
    scratch: Values
    at: Index


@compiled(nogil=True)
def section(tile, number):  # a view, not a copy
    """Return a section of a tile's memory."""
    return part(tile.memory if number < KEPT else tile.scratch, tile.at, number)


@compiled(nogil=True)
def load_tile(code, frame, kept, at, work):  # written: work
    """Return what a tile keeps, with the scratch memory, as a Tile, which they have to outlive.

    A callback gets one address: where there is one, the tile is copied into the scratch memory.
    """
    if code.callback == NO_CALLBACK and frame.callback == NO_CALLBACK:
        return unowned(Tile(kept, work, at))
    for k in range(len(kept) // LANES):
        store(work, k, load(kept, k))
    return unowned(Tile(work, work, at))


@compiled(nogil=True)
def store_tile(code, frame, tile, kept):  # written: kept
    """Copy what a tile keeps back, if it was copied."""
    if code.callback == NO_CALLBACK and frame.callback == NO_CALLBACK:
        return
    for k in range(len(kept) // LANES):
        store(kept, k, load(tile.memory, k))


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
    filtered: int = 0  # whether a filter judges steps, in place of the merit function
    patience: int = 0  # short or rejected steps in a row after which a lane ends as at its limit; 0: any number


class LaneNumbers(NamedTuple):
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
    filter_theta: Values  # violation and objective of points that steps must not return to, _FILTER per lane
    filter_objective: Values
    entries: Index  # of the filter, so far
    first_theta: Values  # violation where iterations began
    searched: Mask  # negative curvature was searched for, and neither found nor excluded
    crawled: Index  # short or rejected steps in a row
