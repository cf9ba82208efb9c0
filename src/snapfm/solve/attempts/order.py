"""Attempts: stop 6 of the walk. Newton's method first; lanes on which it fails are tried again in other ways.

With inequalities or bounds, a barrier or a feasible start helps most often. Without them, other starts are cheaper and do as
well. Restoration includes the proof of infeasibility. Must not import solve.system or solve.newton.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from snapfm.arrays import Index, Mask, Values
from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.kernels.interior import interior_tiles
from snapfm.kernels.newton import solve_tiles
from snapfm.kernels.operations import LANES
from snapfm.kernels.restoration import restore_tiles
from snapfm.kernels.threads import Deadline
from snapfm.solve.attempts.interior_start import guarded, move_inside
from snapfm.solve.attempts.isolated_points import isolated
from snapfm.solve.attempts.sequential import dense, sequential, violation
from snapfm.solve.budget import Stopping, certified
from snapfm.solve.tiles import AttemptOutcome, IterationBudget, Tiles, taken

if TYPE_CHECKING:
    from snapfm.solve.system import Loops, Part


# Iterations of one attempt, as shares of a sample's limit.
NEWTON, SCATTERED, BARRIER, REGULARIZED = 0.2, 0.1, 0.3, 0.4
# Iterations of the first attempt: benchmark inputs need 2 to 12, and one that takes longer rarely converges.
FIRST = 30
# Iterations of a barrier before a falling penalty is tried: one that converges takes 15 to 40.
BRIEF = 0.1
# Of Newton's method after it: 3 to 6 where the barrier has found the active set, and none are enough where it has not.
SETTLED = 0.04
# Of a barrier along which equalities harden: a gas from far takes 20 to 200 of the 500.
SOFTLY = 0.4
FIRM, SOFT = 0, 1  # see kernels.interior
LONGEST = max(NEWTON, BARRIER, SOFTLY)  # of one call of a compiled loop
SETS_CYCLE = 8  # iterations with inequalities or bounds after which active sets count as cycling
# Trials of a step. Towards a wrong active set no step length helps, and near an answer full steps find the active set in fewer
# iterations than a line search.
MANY, SOME, FEW, NONE = 50, 24, 4, 0
# Short or rejected steps in a row after which the first attempt leaves a lane without inequalities to the others: a merit
# function whose penalty has grown with the multipliers rarely recovers. Damping has then grown from none to the size of W.
PATIENCE, ENDLESS = 4, 0
# Rows of sizes from this to one over it are not scaled at first. Scaling all rows takes more iterations where it is not needed
# (Heat-2 from noise), and fewer where it is (a total and an energy of a field of size 1e-3).
ORDINARY, ALL = 1e-3, 1.0
# δ of a penalty, relative to the rows' size squared, and the share of iterations for each. Few values whose minimum is found
# lead to near answers; many, with few iterations each, to an answer more often.
PENALTIES, PENALIZED = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-6), 0.02
FINER_PENALTIES, FINELY = tuple(10.0 ** (-k / 4) for k in range(25)), 0.006
LOOSE = Stopping(1e-4, 1e-2, 1.0)  # a minimum known this well is a start for the next one
FINER = 1024.0  # times smaller than the field: the unit of a barrier where the field's own unit is one
TENTHS = 6  # times that the regularization is divided by ten
OPEN = (int(Status.STALLED), int(Status.ITERATION_LIMIT))  # statuses of lanes that another attempt may help


def first_attempt(stopping: Stopping, inequalities: bool, near: bool, limit: int) -> tuple[core.Settings, int]:
    """Return settings and iterations of the first attempt, here and on devices. `near`: see attempt."""
    if inequalities:
        return core.Settings(*stopping, ORDINARY, NONE if near else FEW, 0, ENDLESS), min(SETS_CYCLE, limit)
    return core.Settings(*stopping, ORDINARY, SOME, 0, PATIENCE), min(FIRST, limit)


Attempt = Callable[["Loops", Tiles, Values, Stopping, IterationBudget, Deadline], AttemptOutcome]


def attempt(
    loops: Loops,
    tiles: Tiles,
    stopping: Stopping,
    near: bool,
    limit: int,
    deadline: Deadline,
    more: tuple[Attempt, ...] = (),
) -> AttemptOutcome:
    """Run Newton's method, then the other attempts in deadline on the lanes that failed: `more` first. Written: tiles.

    `near`: the given multipliers belong to an answer for a nearby input.
    """
    lanes, inequalities = tiles.lanes, loops.part.inequalities
    if deadline.over:
        return AttemptOutcome.unfinished(lanes)
    first = np.array(tiles.section(core.X))
    settings, allowed = first_attempt(stopping, inequalities, near, limit)
    if _quadratic(loops):
        ended = sequential(loops, tiles, first, stopping, IterationBudget(np.full(lanes, limit), limit), deadline)
    else:
        given = (stopping, np.full(lanes, allowed), deadline, settings.trials)
        ended = newton(loops, tiles, *given, patience=settings.patience)
    status, iterations, second = ended.status, ended.iterations, ended.second
    if not status.any():  # all converged, as they mostly do
        return ended
    beside = _outside(loops, tiles, first, status)
    status[beside] = int(Status.STALLED)  # until the other attempts have begun inside
    for other in (*more, *order(loops.part)):
        failed = np.flatnonzero(np.isin(status, OPEN) & (iterations < limit))
        if deadline.over or not len(failed):
            break
        again = tiles.take(failed)
        again.section(core.MULTIPLIER)[:] = 0.0
        begin = taken(first, failed)
        outcome = make(
            other, loops, again, begin, stopping, IterationBudget(limit - iterations[failed], limit), deadline
        )
        iterations[failed] += outcome.iterations
        better = np.flatnonzero((outcome.status == Status.CONVERGED) | (outcome.status == Status.INFEASIBLE))
        if other is sequential:  # a point that all but obeys is worth more than one that does not, certified or not
            nearer = np.flatnonzero(violation(loops, again) < violation(loops, tiles.take(failed)))
            tiles.put(failed[nearer], again, nearer)
        tiles.put(failed[better], again, better)
        status[failed[better]], second[failed[better]] = outcome.status[better], outcome.second[better]
    # With iterations and time left all attempts were made: a lane that has not converged has stalled.
    stuck = np.isin(status, OPEN)
    short = (iterations >= limit) | deadline.over
    status[stuck] = np.where(short[stuck], int(Status.ITERATION_LIMIT), int(Status.STALLED))
    status[beside & stuck] = int(Status.NONFINITE)
    return AttemptOutcome(status, iterations, second)


def make(other: Attempt, *given: Any) -> AttemptOutcome:
    """Make one attempt. All attempts after Newton's pass here, where a benchmark counts what they are worth."""
    return other(*given)


def _outside(loops: Loops, tiles: Tiles, first: Values, status: Index) -> Mask:
    """Mark lanes whose laws have no value at the start, which is outside the bounds: roots and logarithms may need these."""
    broken = status == Status.NONFINITE
    if not loops.part.kkt.frame.bounded or not broken.any():
        return np.zeros(tiles.lanes, bool)
    begin = Tiles(first, np.array([0, first.shape[1]]), tiles.lanes).by_lane(0)
    outside = (begin < tiles.by_lane(core.LOWER)) | (begin > tiles.by_lane(core.UPPER))
    finite = np.isfinite(tiles.by_lane(core.TARGET)).all(axis=1) & np.isfinite(begin).all(axis=1)
    found: Mask = broken & finite & outside.any(axis=1)
    return found


def newton(
    loops: Loops, tiles: Tiles, stopping: Stopping, limit: Index, deadline: Deadline, trials: int = MANY,
    ordinary: float = ORDINARY, filtered: bool = False, patience: int = ENDLESS,
) -> AttemptOutcome:  # fmt: skip
    """Run Newton's iterations; return how the lanes ended. `filtered`: a filter judges steps, not the merit function.

    With `patience` a lane also ends after so many short or rejected steps in a row.
    """
    lanes = tiles.lanes
    live, limits, status, iterations = _blank(tiles, limit)
    second = np.empty_like(status)
    settings = core.Settings(*stopping, ordinary, trials, int(filtered), patience)
    loops.run(solve_tiles, (settings, limits, deadline.stop, live), tiles, (status, iterations, second))
    return AttemptOutcome(status.ravel()[:lanes], iterations.ravel()[:lanes], second.ravel()[:lanes])


def barrier(
    loops: Loops, tiles: Tiles, first: Values, stopping: Stopping, budget: IterationBudget, deadline: Deadline,
    ordinary: float = ORDINARY,
    share: float = BARRIER, settled: float = NEWTON,
) -> AttemptOutcome:  # fmt: skip
    """Follow a barrier from `first` until the active set is clear, then run Newton's method from there."""
    tiles.section(core.X)[:] = first
    live, limits, status, iterations = _blank(tiles, budget.share(share))
    loops.run(interior_tiles, (ordinary, FIRM, limits, deadline.stop, live), tiles, (status, iterations))
    used = iterations.ravel()[: tiles.lanes]
    patience = PATIENCE if settled < NEWTON else ENDLESS
    left = budget.spend(used).share(settled)
    ended = newton(loops, tiles, stopping, left, deadline, FEW if patience else MANY, ordinary, patience=patience)
    return AttemptOutcome(ended.status, ended.iterations + used, ended.second)


def brief_barrier(
    loops: Loops, tiles: Tiles, first: Values, stopping: Stopping, budget: IterationBudget, deadline: Deadline
) -> AttemptOutcome:
    """Follow a barrier for as long as most need; what takes longer may find its way by a falling penalty."""
    return barrier(loops, tiles, first, stopping, budget, deadline, share=BRIEF, settled=SETTLED)


def _soft_barrier(
    loops: Loops, tiles: Tiles, first: Values, stopping: Stopping, budget: IterationBudget, deadline: Deadline
) -> AttemptOutcome:
    """Follow a barrier along which the equalities harden, from inside the inequalities; then run Newton's method.

    Far from an answer many laws cannot hold together to first order within the inequalities: a firm barrier gets stuck there.
    """
    tiles.section(core.X)[:] = first
    none = np.zeros(tiles.lanes, np.int64)
    # Newton's method without an iteration evaluates.
    move_inside(loops.part.system, tiles, lambda: newton(loops, tiles, stopping, none, deadline))
    live, limits, status, iterations = _blank(tiles, budget.share(SOFTLY))
    loops.run(interior_tiles, (ORDINARY, SOFT, limits, deadline.stop, live), tiles, (status, iterations))
    used = iterations.ravel()[: tiles.lanes]
    ended = newton(loops, tiles, stopping, budget.spend(used).share(SCATTERED), deadline)
    return AttemptOutcome(ended.status, ended.iterations + used, ended.second)


def _fine_barrier(
    loops: Loops, tiles: Tiles, first: Values, stopping: Stopping, budget: IterationBudget, deadline: Deadline
) -> AttemptOutcome:
    """Follow the barrier once more, in the laws' own units, from where it ended in the field's.

    Where unknowns are of very different sizes, a barrier that ends at a share of the largest leaves the small ones in the middle
    of their bounds.
    """
    tiles.section(core.X)[:] = first
    unit = tiles.section(core.UNIT)[:, :LANES].ravel()
    factor = np.where(unit > 1.0, unit, FINER)
    used = np.zeros(tiles.lanes, np.int64)
    for scale in (np.ones_like(factor), factor):
        live, limits, status, iterations = _blank(tiles, budget.spend(used).share(BARRIER))
        tiles.rescale(scale)
        loops.run(interior_tiles, (ALL, FIRM, limits, deadline.stop, live), tiles, (status, iterations))
        tiles.rescale(1.0 / scale)
        used += iterations.ravel()[: tiles.lanes]
    ended = newton(loops, tiles, stopping, budget.spend(used).share(NEWTON), deadline)
    return AttemptOutcome(ended.status, ended.iterations + used, ended.second)


def _regularized(
    loops: Loops, tiles: Tiles, first: Values, stopping: Stopping, budget: IterationBudget, deadline: Deadline
) -> AttemptOutcome:
    """Regularize the rows: where they can only almost hold, no multiplier is large enough to make them hold.

    A row is then off by δ times its multiplier, which has to stay within the tolerance; δ is divided by ten until it does.
    """
    tiles.section(core.X)[:] = first
    lanes = tiles.lanes
    ended = AttemptOutcome(np.full(lanes, int(Status.STALLED)), np.zeros(lanes, np.int64), np.full(lanes, core.UNKNOWN))
    delta, tolerance = 0.1 * stopping.tolerance, stopping.tolerance / tiles.by_lane(core.UNIT)[:, 0]
    budget = IterationBudget(budget.share(REGULARIZED), budget.limit)
    waiting = np.arange(lanes)
    for _ in range(TENTHS):
        if deadline.over or not len(waiting):
            break
        some = tiles.take(waiting)
        some.section(core.REGULARIZATION)[:] = delta
        some.section(core.BARRIER)[:] = delta
        left = budget.spend(ended.iterations).at(waiting).share(NEWTON)
        found = newton(loops, some, certified(0.1 * stopping.tolerance), left, deadline)
        off = delta * np.abs(some.by_lane(core.MULTIPLIER)).max(axis=1, initial=0.0)
        tiles.put(waiting, some, np.arange(len(waiting)))
        ended.iterations[waiting] += found.iterations
        ended.status[waiting] = np.where(off <= 0.8 * tolerance[waiting], found.status, int(Status.STALLED))
        ended.second[waiting] = found.second
        waiting = waiting[ended.status[waiting] != Status.CONVERGED]
        delta *= 0.1
    tiles.section(core.REGULARIZATION)[:] = 0.0
    tiles.section(core.BARRIER)[:] = 0.0
    return ended


def penalized(
    loops: Loops, tiles: Tiles, first: Values, stopping: Stopping, budget: IterationBudget, deadline: Deadline,
    penalties: tuple[float, ...] = PENALTIES, each: float = PENALIZED,
) -> AttemptOutcome:  # fmt: skip
    """Follow the minimum of ½‖x − x̂‖² + ‖h‖²/2δ from û as δ falls, then let the rows hold.

    A row that is off by δ times its multiplier bounds every step, also where the linearized rows ask for a far one: transport
    laws from noise, whose linear model grows from step to step in time. The path also leads to a near local minimum.
    """
    tiles.section(core.X)[:] = first
    lanes = tiles.lanes
    iterations = np.zeros(lanes, np.int64)
    size = np.mean(tiles.by_lane(core.ROW_SIZE) ** 2, axis=1)
    delta = np.resize(np.append(size, np.repeat(size[-1:], -lanes % LANES)), (len(tiles.space), LANES))
    for share in penalties:
        if deadline.over:
            break
        for number in (core.REGULARIZATION, core.BARRIER):
            section = tiles.section(number)
            section[:] = np.tile(share * delta, section.shape[1] // LANES)
        left = budget.spend(iterations).share(each)
        iterations += newton(loops, tiles, LOOSE, left, deadline, filtered=True).iterations
    for number in (core.REGULARIZATION, core.BARRIER):
        tiles.section(number)[:] = 0.0
    left = budget.spend(iterations).share(SCATTERED)
    ended = newton(loops, tiles, stopping, left, deadline, filtered=True, patience=PATIENCE)
    return AttemptOutcome(ended.status, ended.iterations + iterations, ended.second)


def _slowly_penalized(
    loops: Loops, tiles: Tiles, first: Values, stopping: Stopping, budget: IterationBudget, deadline: Deadline
) -> AttemptOutcome:
    """Follow the same path in smaller steps, for lanes that lost it in large ones."""
    return penalized(loops, tiles, first, stopping, budget, deadline, FINER_PENALTIES, FINELY)


def _filtered(
    loops: Loops, tiles: Tiles, first: Values, stopping: Stopping, budget: IterationBudget, deadline: Deadline
) -> AttemptOutcome:
    """Begin again at û with a filter in place of the merit function, whose penalty makes steps short far from an answer."""
    tiles.section(core.X)[:] = first
    return newton(loops, tiles, stopping, budget.share(NEWTON), deadline, filtered=True)


def _scattered(
    loops: Loops, tiles: Tiles, first: Values, stopping: Stopping, budget: IterationBudget, deadline: Deadline
) -> AttemptOutcome:
    """Go on from a point beside the one where Newton's method stopped."""
    tiles.scatter(core.X)
    return newton(loops, tiles, stopping, budget.share(SCATTERED), deadline)


def _from_zero(
    loops: Loops, tiles: Tiles, first: Values, stopping: Stopping, budget: IterationBudget, deadline: Deadline
) -> AttemptOutcome:
    """Start from zero: for transport laws noise is the worst start, and zero often the best."""
    tiles.section(core.X)[:] = 0.0
    tiles.scatter(core.X)
    return newton(loops, tiles, stopping, budget.share(NEWTON), deadline)


def restored(
    loops: Loops, tiles: Tiles, first: Values, stopping: Stopping, budget: IterationBudget, deadline: Deadline
) -> AttemptOutcome:
    """Minimize the violation alone from û; go on from a feasible point, or try to prove that there is none."""
    tiles.section(core.X)[:] = first
    lanes = tiles.lanes
    live, limits, status, used = _blank(tiles, budget.share(BARRIER))
    loops.run(restore_tiles, (stopping.tolerance, limits, deadline.stop, live), tiles, (status, used))
    found, iterations = status.ravel()[:lanes], used.ravel()[:lanes]
    broken = np.flatnonzero((found != Status.CONVERGED) & (found != Status.NONFINITE))
    if len(broken):  # a local minimum of the violation is no proof
        proven = loops.part.prove_infeasible(tiles.take(broken), stopping.tolerance)
        found[broken] = np.where(proven, int(Status.INFEASIBLE), int(Status.STALLED))
    second = np.full(lanes, core.UNKNOWN)
    feasible = np.flatnonzero(found == Status.CONVERGED)
    if len(feasible):
        again = tiles.take(feasible)
        alone = isolated(loops.part.system, again, stopping.stationarity)
        tiles.put(feasible, again, np.arange(len(feasible)))
        second[feasible[alone]] = core.HOLDS
        feasible = feasible[~alone]
    if len(feasible):
        again, left = tiles.take(feasible), budget.spend(iterations).at(feasible)
        if loops.part.inequalities:
            begin = np.array(again.section(core.X))
            ended = barrier(loops, again, begin, stopping, left, deadline, ALL)
        else:
            ended = newton(loops, again, stopping, left.share(NEWTON), deadline, ordinary=ALL)
        tiles.put(feasible, again, np.arange(len(feasible)))
        found[feasible], second[feasible] = ended.status, ended.second
        iterations[feasible] += ended.iterations
    return AttemptOutcome(found, iterations, second)


_WITH_INEQUALITIES: tuple[Attempt, ...] = (
    brief_barrier, penalized, _soft_barrier, restored, sequential, barrier, _scattered, _from_zero,
    _regularized, _fine_barrier,
)  # fmt: skip
_EQUALITIES: tuple[Attempt, ...] = (
    penalized, _soft_barrier, _slowly_penalized, _filtered, _scattered, _regularized, _from_zero, restored, sequential,
)  # fmt: skip


def _quadratic(loops: Loops) -> bool:
    """Whether a part is one small quadratic program: affine rows, which only a callback evaluates.

    There is one answer, and the exact method finds it with two evaluations; active sets take some at every change.
    """
    system = loops.part.system
    return bool(system.opaque and loops.part.inequalities and not system.program.hessian.nnz and dense(system))


def order(part: Part) -> tuple[Attempt, ...]:
    """Return the attempts after Newton's. As many equations as unknowns: what obeys is a point, and the nearest one."""
    system = part.system
    others = _WITH_INEQUALITIES if part.inequalities else _EQUALITIES
    # Evaluations of an opaque part cost more than linear algebra: exact programs take the fewest of them.
    first: tuple[Attempt, ...] = (sequential,) if system.opaque and dense(system) else ()
    if int(system.equality.sum()) >= system.unknowns.shape[1] and not system.eliminated.shape[1]:
        first = (*first, restored, sequential)
    if guarded(system):  # other attempts begin at û, perhaps behind a pole
        first = (*first, _soft_barrier)
    return (*dict.fromkeys((*first, *others)),)


def _blank(tiles: Tiles, limit: Index) -> tuple[Mask, Index, Index, Index]:
    """Return (tiles, LANES) arrays: lanes that hold a sample, their limits, and room for statuses and iterations."""
    shape = (len(tiles.space), LANES)
    live, limits = np.zeros(shape, bool), np.zeros(shape, np.int64)
    live.ravel()[: len(limit)] = True
    limits.ravel()[: len(limit)] = limit
    return live, limits, np.empty(shape, np.int64), np.empty(shape, np.int64)
