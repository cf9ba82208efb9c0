"""The memory of Newton's kernels: names of the sections of a system's structure and of a tile's workspace.

Structure (Frame) is shared by all tiles and calls; the workspace of one tile is a flat array of packs (Tile). A section is an
attribute of both: frame.column, tile.x. Callers that are not compiled have its number, layout.X. Between loops only kept sections
hold anything; the others are scratch that all tiles share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from snapfm.arrays import Index, Mask, Table, Values
from snapfm.kernels.callback import NO_CALLBACK
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import load, store
from snapfm.kernels.numba.sections import allocator, section, sectioned, starts, unowned
from snapfm.kernels.operations import LANES

# A frame: the cell of each unknown; J by rows; J by columns (row and entry); G by rows; lower triangle of the Hessian; lower
# triangle of the matrix and, per entry, what it sums up; which rows are equalities.
FRAME_TABLE = (
    "place row_ptr column column_ptr column_row column_entry gram_ptr gram_column hessian_row hessian_column "
    "entry_row entry_column term_ptr term_left term_right equality"
)
FRAME_WEIGHT = "gram entry_constant"

# A tile: the sections of each size, which is the name of a number of a System (`tile_starts`). First those that a lane keeps.
_KEPT = {
    "cells": "cells",  # of the program
    "entries": "jacobian",  # with its constants
    "unknowns": "x target",
    "limits": "lower upper bound_weight",  # and what a barrier adds to W
    # λ; the share of eliminated unknowns; residual; its size and one over it, that of its slopes or of its residual where
    # iterations begin; what a barrier adds. Merit functions add up rows measured by their size, so that no row counts more
    # for being written in smaller units.
    "rows": "multiplier shift residual row_size row_weight barrier",
    "one": "regularization",  # δ: rows are h − δλ = 0
    "two": "unit",  # the power of two that a lane's unknowns, rows and multipliers are measured in, and one over it
    "kinks": "weight",  # of two slopes, where an answer is certified with a generalized gradient (solve.kinks.search)
    "operations": "adjoint",  # the slope of the Lagrangian by their values
}
_SCRATCH = {
    # Of the program: slopes, those of operands, derivatives of operations, Hessian, Jacobian times D⁻¹.
    "slots_and_one": "slots",
    "slots": "left right",
    "partials": "partial",
    "hessian": "hessian",
    "entries": "scaled",
    # Gradient of the Lagrangian, diagonal of W, inverse of D, steps; distance to an active bound and duals of bounds.
    "unknowns": "gradient diagonal inverse step plain_step best_step previous",
    "limits": "to_bound lower_dual upper_dual",
    # Of the program; active set, λ of inactive rows, ‖J_r‖²; steps of λ.
    "rows": "rows active idle row_norm direction plain_direction best_direction previous_multiplier previous_residual",
    "slacks": "slack previous_slack",  # of inequalities, in interior points
    # The KKT matrix.
    "matrix": "matrix",
    "right_side": "rhs",
    "factor": "factor",
    "pivots": "pivots scale work",
    "tally": "tally",
    # Conjugate gradients, where the Hessian couples unknowns: what is left of the KKT system, the direction and its image; then
    # scalars, and the lanes that take part.
    "conjugate_unknowns": "remainder conjugate image",
    "conjugate_rows": "conjugate_multiplier",
    "scalars": "gradients",
    "conjugate_one": "wanted",
}
_SIZES = {name: size for table in (_KEPT, _SCRATCH) for size, names in table.items() for name in names.split()}
KEPT = len(" ".join(_KEPT.values()).split())  # number of sections that are kept


# The number of each section under its name in capitals: X, TARGET, …
globals().update({name.upper(): number for number, name in enumerate(_SIZES)})
if TYPE_CHECKING:

    def __getattr__(name: str) -> int: ...


# Tasks of a callback, with the address of a tile's memory: evaluate rows; Jacobian and Hessian; factorize; solve in RHS.
TO_EVALUATE, TO_DIFFERENTIATE, TO_FACTORIZE, TO_SOLVE = range(4)

# Curvature along the laws at a point: not known, somewhere negative, nowhere negative.
UNKNOWN, FAILS, HOLDS = -1, 0, 1


@sectioned(("table", "table_at", FRAME_TABLE), ("weight", "weight_at", FRAME_WEIGHT))
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

    def __getattr__(self, name: str) -> Any:
        return section(self, name)


def tile_starts(sizes: Mapping[str, int]) -> Index:
    """Return where each section of a tile's memory begins, and where the last ends."""
    return starts([LANES * sizes[size] for size in _SIZES.values()])


@sectioned(("memory", "at", " ".join(_KEPT.values())), ("scratch", "at", " ".join(_SCRATCH.values())))
class Tile(NamedTuple):
    """The memory of one tile: kept sections, then scratch; and where each section begins.

    Scratch has room for all sections, so that `at` holds in both.
    """

    memory: Values
    scratch: Values
    at: Index

    def __getattr__(self, name: str) -> Any:
        return section(self, name)


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


@compiled(nogil=True, error_model="numpy", forceinline=True)
def copy(source, target):  # written: target
    """Copy a section, not pack by pack: one lane may just have been written alone, and a pack waits for that."""
    for i in range(len(source)):
        target[i] = source[i]


@compiled(nogil=True, error_model="numpy", forceinline=True)
def copy_lane(source, target, lane):  # written: target, one lane
    """Copy one lane."""
    for k in range(len(source) // LANES):
        target[k * LANES + lane] = source[k * LANES + lane]


@compiled(nogil=True, error_model="numpy", forceinline=True)
def fill_lane(target, lane, value):  # written: target, one lane
    """Fill one lane."""
    for k in range(len(target) // LANES):
        target[k * LANES + lane] = value


@compiled(nogil=True, error_model="numpy", forceinline=True)
def add_lane(one, other, target, lane):  # written: target, one lane
    """Set one lane to the sum of two sections."""
    for k in range(len(target) // LANES):
        target[k * LANES + lane] = one[k * LANES + lane] + other[k * LANES + lane]


class Settings(NamedTuple):
    """When to stop, and how carefully to step."""

    tolerance: float  # of the violation
    stationarity: float  # relative to the unit where that is small
    polish: float  # share of the tolerance above which a further step is taken
    ordinary: float  # see point.size_rows
    trials: int  # of lengths and corrections before a step counts as failed; 0: full steps, not checked
    filtered: int = 0  # whether a filter judges steps, in place of the merit function
    patience: int = 0  # short or rejected steps in a row after which a lane ends as at its limit; 0: any number


FILTER = 64  # points that a lane's filter remembers; later ones replace the oldest


class LaneNumbers(NamedTuple):
    """Working numbers of the iterations, one per lane and name. Allocated once, used by all tiles."""

    damping: Values
    penalty: Values
    theta: Values  # ℓ1 violation
    objective: Values
    violation: Values
    stationarity: Values
    decrease: Values  # of the merit, predicted
    rounding: Values  # of θ
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
    filter_theta: Values  # violation and objective of points that steps must not return to, FILTER per lane
    filter_objective: Values
    entries: Index  # of the filter, so far
    first_theta: Values  # violation where iterations began
    searched: Mask  # negative curvature was searched for, and neither found nor excluded
    crawled: Index  # short or rejected steps in a row


new_lanes = allocator(LaneNumbers, LANES, filter_theta=FILTER * LANES, filter_objective=FILTER * LANES)
