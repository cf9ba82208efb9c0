"""The last step of the search for answers on kinks: every kink is on a side or held, and multipliers agree with that.

A side or a hold that the multiplier contradicts is changed, as an active set is (math.md, "Kinks"). Used by solve.kinks.search;
must not import it.
"""

from __future__ import annotations

import numpy as np

from snapfm.arrays import Index, Mask
from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.solve.attempts.attempt import newton
from snapfm.solve.kinks.states import ON, TINY, KinkedLanes
from snapfm.solve.tiles import Tiles

_HELD = 0.008  # iterations between two changes of sides, as a share of the limit
# Rounds in which all kinks change that disagree, then the farthest, then the first; then again.
TOGETHER, _FARTHEST, _CYCLE, ROUNDS = 8, 20, 30, 120
_STUCK = 6  # rounds without a change, or convergence, after which a lane gives up


def choose(on: KinkedLanes, lanes: Index, rounds: int = ROUNDS) -> Index:
    """Change sides and holds of some lanes until multipliers agree with them; return the lanes where they do not.

    Written: tiles, status, second.
    """
    states = np.concatenate([on.spec.state, on.spec.gate])
    left, stuck = lanes, np.zeros(on.tiles.lanes, np.int64)
    for number in range(rounds):
        if not len(left) or on.deadline.over:
            break
        some = on.tiles.take(left)
        limit = np.minimum(on.budget.share(_HELD), on.budget.left - on.used)[left].clip(0)
        ended = newton(on.loops, some, on.stopping, limit, on.deadline)
        on.used[left] += ended.iterations
        before = some.by_lane(core.CELLS)[:, states]
        agreed = _agree(on, some, ended.status == Status.CONVERGED, number)
        still = (ended.status != Status.CONVERGED) & (before == some.by_lane(core.CELLS)[:, states]).all(axis=1)
        stuck[left] = np.where(still, stuck[left] + 1, 0)
        on.tiles.put(left, some, np.arange(len(left)))
        on.status[left[agreed]] = int(Status.CONVERGED)
        on.second[left] = ended.second
        left = left[~agreed & (on.used[left] < on.budget.left[left]) & (stuck[left] < _STUCK)]
    rest: Index = lanes[on.status[lanes] != Status.CONVERGED]
    return rest


def _agree(on: KinkedLanes, tiles: Tiles, converged: Mask, number: int) -> Mask:
    """Compare sides and holds with multipliers; change what disagrees, mark lanes where nothing does. Written: tiles.

    In later rounds of lanes that cycle (a shock that stays at one face ties its kinks at all times) one kink changes at a
    time: the one that is farthest off, and last the first in order, which ends for convex laws (Murty's rule).
    """
    spec, seen = on.spec, on.see(tiles)
    cells = tiles.by_lane(core.CELLS)
    weight, gate = -1.0 - cells[:, spec.state], cells[:, spec.gate]
    was_held = gate > 0.0
    nu = gate * tiles.by_lane(core.MULTIPLIER)[:, spec.rows :]
    convex = (seen.reach > 0.0) & (seen.slope > TINY)
    now = np.where(was_held, nu, weight * seen.reach)
    aim = now + seen.switch / np.maximum(seen.slope, TINY) ** 2
    held = convex & (aim > 0.0) & (aim < seen.reach)
    side = np.where(convex, aim >= seen.reach, seen.switch > 0.0)
    size = np.abs(tiles.by_lane(core.X)).max(axis=1, initial=1.0, keepdims=True)
    away = np.abs(seen.switch) / np.maximum(seen.slope, TINY)
    was, close = weight > 0.0, away <= ON * size
    slack = ON * (1.0 + np.abs(seen.reach))
    within = was_held & convex & (aim > -slack) & (aim < seen.reach + slack)
    kept = within | (~was_held & ((was == (seen.switch > 0.0)) | close))
    held, side = np.where(kept, was_held, held), np.where(kept, was, side)
    same = (held == was_held) & (held | (side == was))
    there = ~held | close
    deadline = number % _CYCLE
    if deadline >= TOGETHER:
        off = np.where(was_held, np.maximum(-aim, aim - seen.reach) * seen.slope, away)
        off = np.where(same, -1.0, off if deadline < _FARTHEST else 1.0)
        stay = np.arange(off.shape[1]) != off.argmax(axis=1)[:, None]
        held, side = np.where(stay, was_held, held), np.where(stay, was, side)
    agreed: Mask = converged & (same & there).all(axis=1)
    if not agreed.all():
        on.hold(tiles, seen, held, side, np.clip(aim, 0.0, np.maximum(seen.reach, 0.0)), ~agreed)
    if agreed.any():
        share = np.clip(nu / np.where(held, seen.reach, 1.0), 0.0, 1.0)
        final = np.where(held, share, side)
        done = np.flatnonzero(agreed)
        tiles.write(core.CELLS, -1.0 - final[done], done, spec.state)
    return agreed
