"""Attempts: stop 6 of the walk. Newton's method first; lanes on which it fails are tried again in other ways.

`ATTEMPTS` lists them all, in order. With inequalities or bounds, a barrier helps most often; without them, a falling penalty is
cheaper and does as well. Must not import solve.system or solve.newton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from snapfm.arrays import Index, Mask
from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.kernels.threads import Deadline
from snapfm.solve.attempts.attempt import AFTERWARDS, FEW, NEWTON, NONE, PATIENCE, SOME, Attempt, Search, newton
from snapfm.solve.attempts.barrier import BARRIER, SOFT_BARRIER
from snapfm.solve.attempts.interior_start import guarded
from snapfm.solve.attempts.penalty import PENALTY, REGULARIZED
from snapfm.solve.attempts.restoration import RESTORATION
from snapfm.solve.attempts.sequential import OPAQUE_PROGRAMS, PROGRAMS, violation
from snapfm.solve.budget import Stopping
from snapfm.solve.kinks.search import KINKS, KINKS_FROM_ZERO
from snapfm.solve.tiles import AttemptOutcome, IterationBudget, Tiles

if TYPE_CHECKING:
    from snapfm.solve.system import Loops, Part

__all__ = ["ATTEMPTS", "LONGEST", "attempt", "newton", "order"]

# Iterations of the first attempt: benchmark inputs need 2 to 12, and one that takes longer rarely converges.
FIRST = 30
SETS_CYCLE = 8  # iterations with inequalities or bounds after which active sets count as cycling
_OPEN = (int(Status.STALLED), int(Status.ITERATION_LIMIT))  # statuses of lanes that another attempt may help


def _first(search: Search) -> AttemptOutcome:
    if search.part.inequalities:
        return search.newton(np.minimum(SETS_CYCLE, search.allowed), trials=NONE if search.near else FEW)
    return search.newton(np.minimum(FIRST, search.allowed), trials=SOME, patience=PATIENCE)


def _nearby(search: Search) -> AttemptOutcome:
    """Go on from a point beside the one where Newton's method stopped."""
    search.tiles.scatter(core.X)
    return search.newton(search.allowed)


def _from_zero(search: Search) -> AttemptOutcome:
    """Start from zero: for transport laws noise is the worst start, and zero often the best."""
    search.begin_at_zero()
    return search.newton(search.allowed)


FIRST_ATTEMPT = Attempt("Newton's method", 1.0, _first)
NEARBY_START = Attempt("nearby start", AFTERWARDS, _nearby)
ZERO_START = Attempt("zero start", NEWTON, _from_zero)


def _inequalities(part: Part) -> bool:
    return part.inequalities


def _square(part: Part) -> bool:
    """Whether there are as many equations as unknowns: what obeys is a point, and the nearest one."""
    system = part.system
    return int(system.equality.sum()) >= system.unknowns.shape[1] and not system.eliminated.shape[1]


def _quadratic(part: Part) -> bool:
    """Whether a part is one small quadratic program: affine rows, which only a callback evaluates.

    There is one answer, and the exact method finds it with two evaluations; active sets take some at every change.
    """
    return OPAQUE_PROGRAMS.applies(part) and part.inequalities and not part.system.program.hessian.nnz


ATTEMPTS: tuple[Attempt, ...] = (
    KINKS,
    KINKS_FROM_ZERO,
    OPAQUE_PROGRAMS,
    RESTORATION.when(_square),
    PROGRAMS.when(_square),
    SOFT_BARRIER.when(guarded),  # others begin at û, perhaps behind a pole
    BARRIER.when(_inequalities),
    PENALTY,
    SOFT_BARRIER,
    RESTORATION,
    PROGRAMS,
    NEARBY_START,
    ZERO_START,
    REGULARIZED,
)
"""All attempts after Newton's. A part gets those that apply, each where it is first listed for it."""

# The longest call of a compiled loop, as a share of a sample's limit. Attempts on kinks make many short ones.
LONGEST = max(one.share for one in ATTEMPTS if one not in (KINKS, KINKS_FROM_ZERO))


def order(part: Part) -> tuple[Attempt, ...]:
    """Return the attempts after Newton's."""
    found: dict[str, Attempt] = {}
    for one in ATTEMPTS:
        if one.name not in found and one.applies(part):
            found[one.name] = one
    return tuple(found.values())


def attempt(
    loops: Loops, tiles: Tiles, stopping: Stopping, near: bool, limit: int, deadline: Deadline
) -> AttemptOutcome:
    """Run Newton's method, then the other attempts in order on the lanes that failed. Written: tiles.

    `near`: the given multipliers belong to an answer for a nearby input.
    """
    lanes, part = tiles.lanes, loops.part
    if deadline.over:
        return AttemptOutcome.unfinished(lanes)
    whole = IterationBudget(np.full(lanes, limit), limit)
    search = Search(loops, tiles, np.array(tiles.section(core.X)), stopping, whole, deadline, near)
    ended = (OPAQUE_PROGRAMS if _quadratic(part) else FIRST_ATTEMPT).make(search)
    status, iterations, second = ended.status, ended.iterations, ended.second
    if not status.any():  # all converged, as they mostly do
        return ended
    beside = _outside(search, status)
    status[beside] = int(Status.STALLED)  # until the other attempts have begun inside
    for other in order(part):
        failed = np.flatnonzero(np.isin(status, _OPEN) & (iterations < limit))
        if deadline.over or not len(failed):
            break
        again = search.on(failed, iterations)
        again.tiles.section(core.MULTIPLIER)[:] = 0.0
        outcome = other.make(again)
        iterations[failed] += outcome.iterations
        better = np.flatnonzero((outcome.status == Status.CONVERGED) | (outcome.status == Status.INFEASIBLE))
        if other.keeps_nearer:
            nearer = np.flatnonzero(violation(loops, again.tiles) < violation(loops, tiles.take(failed)))
            tiles.put(failed[nearer], again.tiles, nearer)
        tiles.put(failed[better], again.tiles, better)
        status[failed[better]], second[failed[better]] = outcome.status[better], outcome.second[better]
    # With iterations and time left all attempts were made: a lane that has not converged has stalled.
    stuck = np.isin(status, _OPEN)
    short = (iterations >= limit) | deadline.over
    status[stuck] = np.where(short[stuck], int(Status.ITERATION_LIMIT), int(Status.STALLED))
    status[beside & stuck] = int(Status.NONFINITE)
    return AttemptOutcome(status, iterations, second)


def _outside(search: Search, status: Index) -> Mask:
    """Mark lanes whose laws have no value at the start, which is outside the bounds: roots and logarithms may need these."""
    tiles, first = search.tiles, search.first
    broken = status == Status.NONFINITE
    if not search.part.kkt.frame.bounded or not broken.any():
        return np.zeros(tiles.lanes, bool)
    begin = Tiles(first, np.array([0, first.shape[1]]), tiles.lanes).by_lane(0)
    outside = (begin < tiles.by_lane(core.LOWER)) | (begin > tiles.by_lane(core.UPPER))
    finite = np.isfinite(tiles.by_lane(core.TARGET)).all(axis=1) & np.isfinite(begin).all(axis=1)
    found: Mask = broken & finite & outside.any(axis=1)
    return found
