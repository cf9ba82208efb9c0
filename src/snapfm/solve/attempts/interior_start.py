"""Starts inside the inequalities: where û breaks them, roots and quotients have no value, or one of the wrong sign.

A barrier keeps a slack beside every row, so it may begin at any point, and then has to pass through poles that the inequalities
are there to exclude (a density of zero). Here û is moved first: rows that one unknown decides are obeyed as bounds are, then
curved rows are repaired by steps along their slopes. Used by solve.attempts.barrier; must not import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Mask, Values
from snapfm.kernels import layout as core
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
    single, curved = inequality_kinds(part.system)
    return bool(single.any() and curved.any())


def inequality_kinds(system: System) -> tuple[Mask, Mask]:
    """Mark the inequalities that one unknown decides with a constant slope, bounds written as a law, and the curved ones.

    Only those without eliminated unknowns: with some, the first step moves these as far as it takes.
    """
    pattern = system.program.pattern
    decided = ~system.equality & (np.diff(system.gram.indptr) == 0)
    curved = np.bincount(pattern.row_of()[_varying(system)], minlength=pattern.rows) > 0
    return decided & ~curved & (np.diff(pattern.indptr) == 1), decided & curved


def _varying(system: System) -> Mask:
    """Mark the entries of the Jacobian that depend on the field."""
    varies = np.zeros(system.program.pattern.nnz, bool)
    varies[system.program.code.varying] = True
    return varies


def move_inside(system: System, tiles: Tiles, evaluate: Callable[[], object]) -> None:
    """Move x inside the inequalities, lane by lane. `evaluate` brings residual and Jacobian to x. Written: x."""
    single, curved = inequality_kinds(system)
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
    pattern, h, varies = system.program.pattern, tiles.by_lane(core.RESIDUAL), _varying(system)
    broken = which & (h > -_ENOUGH * room[:, None])  # not where it is NaN
    if not broken.any():
        return False
    row = pattern.row_of()
    # Along entries of constant slope where a row has any: these end it in one step.
    usable = ~varies | (np.bincount(row[~varies], minlength=pattern.rows) == 0)[row]
    jacobian = np.where(usable, tiles.by_lane(core.JACOBIAN), 0.0)
    by_row, by_column = (
        csr_array((np.ones(len(row)), (place, np.arange(len(row)))), shape=(size, len(row)))
        for place, size in ((row, pattern.rows), (pattern.indices, pattern.columns))
    )
    length = np.where(broken, h + room[:, None], 0.0) / np.maximum((by_row @ (jacobian**2).T).T, _TINY)
    pulls = (length[:, row] * jacobian).T
    # An unknown that several rows would move follows their mean.
    step = (by_column @ pulls) / np.maximum(by_column @ (pulls != 0.0).astype(float), 1.0)
    moved = broken.any(axis=1)
    x = tiles.by_lane(core.X)
    x[moved] -= step.T[moved]
    tiles.write(core.X, x)
    return True
