"""Starts inside the inequalities: where û breaks them, roots and quotients have no value, or one of the wrong sign.

A barrier keeps a slack beside every row, so it may begin at any point, and then has to pass through poles that the inequalities
are there to exclude (a density of zero). Here û is moved first: rows that one unknown decides are obeyed as bounds are, then
curved rows are repaired by steps along their slopes. Used by solve.attempts.barrier; must not import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from snapfm.arrays import Index, Mask, Values
from snapfm.kernels import layout as core
from snapfm.kernels.operations import LANES
from snapfm.reduce.reduce import System
from snapfm.solve.tiles import Tiles

if TYPE_CHECKING:
    from snapfm.solve.system import Part

_ROOM = 0.1  # distance inside to begin with, relative to the usual distance of the rows that hold
_ENOUGH = 0.5  # of that distance is left alone
_SWEEPS = 10  # of repairs; what is still broken then is left to the barrier
_TINY = 1e-30  # stands in for a slope of zero in a quotient


def guarded(part: Part) -> bool:
    """Whether some inequalities keep single unknowns where others have a value: a density below a momentum squared."""
    return bool(single_rows(part.system).any() and curved_rows(part.system).any())


def single_rows(system: System) -> Mask:
    """Mark the inequalities that one unknown decides, with a constant slope: bounds, written as a law."""
    program = system.program
    varies = np.zeros(program.pattern.nnz, bool)
    varies[program.code.varying] = True
    row = program.pattern.row_of()
    steady = np.bincount(row[varies], minlength=program.pattern.rows) == 0
    found: Mask = _decided(system) & steady & (np.diff(program.pattern.indptr) == 1)
    return found


def curved_rows(system: System) -> Mask:
    """Mark the inequalities whose slopes depend on the field."""
    program = system.program
    row = program.pattern.row_of()[program.code.varying]
    found: Mask = _decided(system) & (np.bincount(row, minlength=program.pattern.rows) > 0)
    return found


def _decided(system: System) -> Mask:
    """Mark the inequalities without eliminated unknowns: with some, the first step moves these as far as it takes."""
    found: Mask = ~system.equality & (np.diff(system.gram.indptr) == 0)
    return found


def move_inside(system: System, tiles: Tiles, evaluate: Callable[[], object]) -> None:
    """Move x inside the inequalities, lane by lane. `evaluate` brings residual and Jacobian to x. Written: x."""
    single, curved = single_rows(system), curved_rows(system)
    if not curved.any():  # affine inequalities exclude no pole of their own, and barriers enter them at once
        return
    evaluate()
    for which in (single, single | curved):  # curved rows may have a pole where single ones are broken
        room = _room(tiles.by_lane(core.RESIDUAL), which)
        for _ in range(_SWEEPS):
            if not _repair(system, tiles, which, room):
                break
            evaluate()


def _room(residual: Values, which: Mask) -> Values:
    """Return per lane how far inside to begin: a share of the distance at which most rows hold."""
    inner = np.where(which & (residual < 0.0), -residual, np.nan)
    some = np.isfinite(inner).any(axis=1)
    room = np.ones(len(residual))
    room[some] = np.nanmedian(inner[some], axis=1)
    return _ROOM * room


def _repair(system: System, tiles: Tiles, which: Mask, room: Values) -> bool:
    """Step along the slopes of broken rows as far as `room` inside; return whether any was broken. Written: x."""
    pattern, residual = system.program.pattern, tiles.by_lane(core.RESIDUAL)
    jacobian = np.where(_usable(system), tiles.by_lane(core.JACOBIAN), 0.0)
    row, column = pattern.row_of(), pattern.indices
    x = tiles.section(core.X).reshape(len(tiles.space), -1, LANES)
    any_broken = False
    for lane in range(tiles.lanes):
        h = residual[lane]
        broken: Index = np.flatnonzero(which & (h > -_ENOUGH * room[lane]))  # not where it is NaN
        if not len(broken):
            continue
        any_broken = True
        norm = np.bincount(row, jacobian[lane] ** 2, minlength=pattern.rows)
        length = np.zeros(pattern.rows)
        length[broken] = (h[broken] + room[lane]) / np.maximum(norm[broken], _TINY)
        step = np.bincount(column, length[row] * jacobian[lane], minlength=pattern.columns)
        # An unknown that several rows would move follows their mean.
        sharing = np.bincount(column, (length[row] * jacobian[lane]) != 0.0, minlength=pattern.columns)
        x[lane // LANES, :, lane % LANES] -= step / np.maximum(sharing, 1)
    return any_broken


def _usable(system: System) -> Mask:
    """Mark the entries of the Jacobian to step along: those of constant slope where a row has any, which end it in one step."""
    program = system.program
    constant = np.ones(program.pattern.nnz, bool)
    constant[program.code.varying] = False
    row = program.pattern.row_of()
    some = np.bincount(row[constant], minlength=program.pattern.rows) > 0
    found: Mask = constant | ~some[row]
    return found
