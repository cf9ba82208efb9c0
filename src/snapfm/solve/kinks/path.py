"""The weights of kinks followed like the duals of an interior-point method, for lanes with many kinks (math.md, eq. weights).

Where a kink holds a point, the pieces a = max(s, 0) and b = max(−s, 0) of its switch have multipliers ρ − ν and ν. Products of
pieces and multipliers follow a parameter μ down, all at once: as with barriers, the number of steps hardly depends on how many
kinks there are, and dependent switches have multipliers in the middle of all that serve. A step is one of Newton's method with
every kink held softly. Used by solve.kinks.search; must not import it.
"""

from __future__ import annotations

import numpy as np

from snapfm.arrays import Index, Values
from snapfm.kernels import layout as core
from snapfm.solve.attempts.attempt import newton
from snapfm.solve.kinks.states import TINY, KinkedLanes
from snapfm.solve.tiles import Tiles

_STEPS = 60
_END = 1e-14  # mean product of a piece and its multiplier, in the lane's unit, at which sides are clear
_KEEP = 0.99  # share of the way to zero that a piece or a multiplier may go
_FALLS = ((0.9, 0.1), (0.5, 0.3), (0.0, 0.7))  # after a step longer than the first, μ is the second times the mean


def follow(on: KinkedLanes, lanes: Index, width: Values) -> None:
    """Follow some lanes from where smoothing of `width` (lanes, kinks) ended; end on sides and holds. Written: tiles, used."""
    if not len(lanes) or on.deadline.over:
        return
    some = on.tiles.take(lanes)
    path, going = _Path(on, some, width[lanes]), np.arange(len(lanes))
    for _ in range(_STEPS):
        going = going[(path.mean()[going] > _END) & (on.used < on.budget.left)[lanes[going]]]
        if not len(going) or on.deadline.over:
            break
        on.used[lanes[going]] += 1
        path.step(going)
    path.end()
    on.tiles.put(lanes, some, np.arange(len(lanes)))


class _Path:
    """Pieces and multipliers of the kinks of all lanes of `tiles`, (lanes, kinks) each."""

    def __init__(self, on: KinkedLanes, tiles: Tiles, width: Values) -> None:
        self.on, self.tiles = on, tiles
        seen = on.see(tiles)
        self.switch, self.slope, self.reach = seen.switch, seen.slope, seen.reach
        self.taken = (seen.reach > TINY) & (seen.slope > TINY) & (width > 0.0)
        root, square = np.hypot(seen.switch, 2.0 * width), np.maximum(width, TINY) ** 2
        larger = np.maximum(0.5 * (np.abs(seen.switch) + root), TINY)
        positive = seen.switch > 0.0
        self.a, self.b = np.where(positive, larger, square / larger), np.where(positive, square / larger, larger)
        self.nu = np.where(self.taken, seen.reach * self.a / (self.a + self.b), 1.0)
        self.other = np.where(self.taken, seen.reach - self.nu, 1.0)
        self.length = np.ones(tiles.lanes)

    def mean(self) -> Values:
        """Return the mean product of a piece and its multiplier, of every lane."""
        products = np.where(self.taken, self.a * self.other + self.b * self.nu, 0.0).sum(axis=1)
        found: Values = products / np.maximum(2 * self.taken.sum(axis=1), 1)
        return found

    def step(self, lanes: Index) -> None:
        """Take one step of Newton's method on some lanes, as long as pieces and multipliers stay positive."""
        on, spec = self.on, self.on.spec
        share = np.select([self.length > least for least, _ in _FALLS], [by for _, by in _FALLS], _FALLS[-1][1])
        mu = (share * self.mean())[:, None]
        stiff = 1.0 / (self.a / self.other + self.b / self.nu)
        center = mu / self.other - mu / self.nu
        gate = np.where(self.taken, np.sqrt(stiff), 0.0)
        weight = np.where(self.taken, self.nu / (self.nu + self.other), self.switch > 0.0)
        some = self.tiles.take(lanes)
        some.write(core.CELLS, -1.0 - weight[lanes], packs=spec.state)
        some.write(core.CELLS, gate[lanes], packs=spec.gate)
        some.write(core.SHIFT, (-gate * center)[lanes], packs=spec.holds)
        some.write(core.MULTIPLIER, np.zeros_like(gate[lanes]), packs=spec.holds)
        before = some.take(np.arange(len(lanes)))
        newton(on.loops, some, on.stopping, np.ones(len(lanes), np.int64), on.deadline, trials=0)
        seen = on.see(some)
        nu = weight[lanes] * seen.reach + gate[lanes] * some.by_lane(core.MULTIPLIER)[:, spec.rows :]
        other = seen.reach - nu
        mu, a, b = mu[lanes], self.a[lanes], self.b[lanes]
        old = (a, b, self.nu[lanes], self.other[lanes])
        new = ((mu - a * (other - old[3])) / old[3], (mu - b * (nu - old[2])) / old[2], nu, other)
        taken, length = self.taken[lanes], np.ones(len(lanes))
        for was, now in zip(old, new):
            short = np.where(taken & (now < was), _KEEP * was / np.maximum(was - now, TINY), 1.0)
            length = np.minimum(length, short.min(axis=1, initial=1.0))
        length = np.where(np.isfinite(seen.switch).all(axis=1) & np.isfinite(length), length, 0.0)
        on.between(before, some, length)
        self.tiles.put(lanes, some, np.arange(len(lanes)))
        part = length[:, None]
        for one, was, now in zip((self.a, self.b, self.nu, self.other), old, new):
            one[lanes] = np.where(taken & (part > 0.0), was + part * (now - was), was)
        self.switch[lanes] += np.where(part > 0.0, part * (seen.switch - self.switch[lanes]), 0.0)
        self.length[lanes] = length

    def end(self) -> None:
        """Put every kink on a side, or hold it where both multipliers are larger than their pieces."""
        square = np.maximum(self.slope, TINY) ** 2
        held = self.taken & (self.nu * square > self.b) & (self.other * square > self.a)
        side = np.where(self.taken, self.a > self.b, self.switch > 0.0)
        self.on.hold(self.tiles, self.on.see(self.tiles), held, side, self.nu)
