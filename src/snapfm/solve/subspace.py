"""Subspaces of the null space, one per lane: their directions, the small problems on them, and what these leave of the gradient.

Second half of solve.nullspace, which says what for, and which it must not import. A lane's bits do not depend on the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from snapfm.arrays import Index, Mask, Values
from snapfm.kernels import coordinates
from snapfm.kernels.run_length import add_batch, products
from snapfm.kernels.subspace import add_images, add_scaled, dots, least_curvature, nearest_on_quadrics
from snapfm.kernels.threads import Deadline
from snapfm.solve.budget import LEAST, Stopping

if TYPE_CHECKING:
    from snapfm.solve.nullspace import NullSpace

_PARALLEL = 1e-10  # a direction of which less than this share is new adds nothing
_CLEAN = 1e-13  # share of a direction that may lie outside the null space
_CORRECTIONS = 2  # of rows that rounding left violated


@dataclass(frozen=True)
class Found:
    """Per lane: the point (b, v + s), multipliers (b, m), rounds, and what the point is good for."""

    point: Values
    multipliers: Values
    rounds: Index
    usable: Mask  # iterations may start there
    certified: (
        Mask  # it is an answer: the conditions of first order hold, and the Hessian of the Lagrangian is positive
    )


class Subspaces:
    """Up to AT_ONCE lanes of one call: the subspace of each, and the small problem on it."""

    def __init__(self, space: NullSpace, given: Values, externals: Values, stopping: Stopping) -> None:
        self.space, self.given, self.externals, self.stopping = space, given, externals, stopping
        self.count, self.rows = len(given), len(space.border)
        still = given.copy()  # all at zero that can move
        still[:, : space.unknowns] = 0.0
        size = largest(given - still)
        self.allowed = np.maximum(stopping.stationarity * np.minimum(size, 1.0), LEAST * size)
        self.base = space.rows(still, externals)[:, space.inner]
        self.hessians = space.hessians(still, externals)
        self.point, self.multipliers = given.copy(), np.zeros((self.count, len(space.inner)))
        self.directions: list[Values] = []
        self.images: list[list[Values]] = []  # of each direction under the Hessian of each row
        self.y, self.mu = np.zeros((self.count, 0)), np.zeros((self.count, self.rows))
        # Of the rows along the directions: (b, k, d) and (b, k, d, d).
        self.slope: Values = np.zeros((self.count, self.rows, 0))
        self.curvature: Values = np.zeros((self.count, self.rows, 0, 0))

    def solved(self, limit: int, deadline: Deadline) -> Found:
        """Return where the lanes end."""
        space = self.space
        with np.errstate(all="ignore"):
            for _ in range(2):  # the second removes the error of an ill-conditioned factor
                self._approach(self.point, np.ones(self.count, bool))
            values = space.rows(self.point, self.externals)[:, space.border]
            self._begin(values)
            return self._iterated(values, limit, deadline)

    def _iterated(self, values: Values, limit: int, deadline: Deadline) -> Found:
        space, stopping = self.space, self.stopping
        point, multipliers = self.given.copy(), np.zeros((self.count, len(space.system.equality)))
        rounds, corrections = np.ones(self.count, np.int64), np.zeros(self.count, np.int64)
        stationary, failed = np.zeros(self.count, bool), np.zeros(self.count, bool)
        residual, violation = np.zeros_like(multipliers), np.zeros(self.count)
        while True:
            failed |= ~self._minimize(values)
            at, lam, rest = self._lagrangian()
            gap = largest(rest)
            open_ = ~(gap <= self.allowed) & ~stationary & ~failed
            if open_.any():
                lam -= space.project(rest, open_)
                gap = largest(rest)
            at[:, space.iterated : space.unknowns] -= rest[:, space.iterated : space.unknowns]
            near = (gap <= self.allowed) & ~stationary & ~failed
            if near.any():
                residual = space.rows(at, self.externals)
                violation = _violation(residual, space.system.equality)
            exact = violation <= stopping.polish * stopping.tolerance
            exact |= (corrections > 0) & (violation <= stopping.tolerance)
            new = near & exact
            point[new] = at[new]
            multipliers[np.ix_(new, space.inner)], multipliers[np.ix_(new, space.border)] = lam[new], self.mu[new]
            stationary |= new
            off = near & ~exact
            failed |= (off & (corrections >= _CORRECTIONS)) | ~np.isfinite(gap)
            off &= ~failed & (rounds < limit)
            wide = ~stationary & ~failed & ~off & (rounds < limit)
            if not (off | wide).any() or deadline.over:
                break
            rounds[off | wide] += 1
            corrections[off] += 1
            if off.any():
                values = values + np.where(off[:, None], residual[:, space.border] - self._model(values), 0.0)
                self._approach(at, off)
            if wide.any():
                failed |= wide & ~self._extend(rest, wide)
        left = ~stationary & ~failed
        point[left] = at[left]
        multipliers[np.ix_(left, space.inner)], multipliers[np.ix_(left, space.border)] = lam[left], self.mu[left]
        certified = self._convex(multipliers[:, space.border], stationary)
        return Found(point[:, : space.unknowns], multipliers, rounds, ~failed, certified)

    def _approach(self, at: Values, which: Mask) -> None:
        """Move the point by what the affine rows lack `at` another. Written: point, multipliers."""
        space, residual = self.space, self.base.copy()
        products(space.affine, at, residual)
        residual[~which] = 0.0
        step = space.factor.solve(residual)
        step[~which] = 0.0
        self.multipliers += step
        add_batch(space.affine, -step, self.point)

    def _begin(self, values: Values) -> None:
        """Take the projected gradients of the rows that are not met, given their values at the point, as directions."""
        space = self.space
        self.slopes = [space.gradient(i, self.point, self.externals) for i in range(self.rows)]
        self.pulled = []
        for i in range(self.rows):
            direction = self.slopes[i].copy()
            self.pulled.append(space.project(direction, space.equality[i] | (values[:, i] > 0.0)))
            self._extend(direction, space.equality[i] | (values[:, i] > 0.0))

    def _extend(self, direction: Values, which: Mask) -> Mask:
        """Add a direction to the subspaces of some lanes, zero to the others; mark where it is new. Written: direction."""
        space, size, part = self.space, np.empty(self.count), np.empty(self.count)
        dots(direction, direction, size)
        for _ in range(2 if self.directions else 0):
            for other in self.directions:
                dots(direction, other, part)
                add_scaled(-part, other, direction)
        dots(direction, direction, part)
        useful = which & (part > _PARALLEL**2 * size) & np.isfinite(part)
        direction *= np.where(useful, 1.0 / np.sqrt(part), 0.0)[:, None]
        direction[~useful] = 0.0
        space.project(direction, useful, _CLEAN)  # what is small before it is scaled has left the null space
        images = [np.zeros_like(direction) for _ in range(self.rows)]
        for i, image in enumerate(images):
            add_images(*space.bends, self.hessians[i], direction, image)
        self.directions.append(direction)
        self.images.append(images)
        self.y = np.concatenate([self.y, np.zeros((self.count, 1))], axis=1)
        self._measure()
        return useful

    def _measure(self) -> None:
        """Find slopes and curvatures of the rows along the newest direction."""
        d, shape = len(self.directions), (self.count, self.rows)
        slope, curvature = np.zeros((*shape, d)), np.zeros((*shape, d, d))
        slope[..., :-1], curvature[..., :-1, :-1] = self.slope, self.curvature
        out, newest = np.empty(self.count), self.directions[-1]
        for i in range(self.rows):
            dots(self.slopes[i], newest, out)
            slope[:, i, -1] = out
            for j, other in enumerate(self.directions):
                dots(self.images[-1][i], other, out)
                curvature[:, i, j, -1] = curvature[:, i, -1, j] = out
        self.slope, self.curvature = slope, curvature

    def _minimize(self, values: Values) -> Mask:
        """Solve the small problems, from where the last ones ended. Written: y, mu."""
        solved = np.zeros(self.count, bool)
        # Each order of an array is a kernel of its own, and this one takes long to compile.
        values = np.ascontiguousarray(values)
        nearest_on_quadrics(values, self.slope, self.curvature, self.space.equality, self.y, self.mu, solved)
        return solved

    def _model(self, values: Values) -> Values:
        """Return the values of the quadratic rows at the answers of the small problems."""
        along = (self.slope * self.y[:, None, :]).sum(axis=2)
        bent = ((self.curvature * self.y[:, None, None, :]).sum(axis=3) * self.y[:, None, :]).sum(axis=2)
        model: Values = values + along + 0.5 * bent
        return model

    def _lagrangian(self) -> tuple[Values, Values, Values]:
        """Return the points, multipliers of affine rows that suit them, and the gradients of the Lagrangian there."""
        at, lam = self.point.copy(), self.multipliers.copy()
        for j, direction in enumerate(self.directions):
            add_scaled(self.y[:, j].copy(), direction, at)
        rest = at - self.given
        for i in range(self.rows):
            mu = self.mu[:, i].copy()
            add_scaled(mu, self.slopes[i], rest)
            for j, images in enumerate(self.images):
                add_scaled(mu * self.y[:, j], images[i], rest)
            lam -= mu[:, None] * self.pulled[i]
        add_batch(self.space.affine, lam, rest)
        return at, lam, rest

    def _convex(self, mu: Values, asked: Mask) -> Mask:
        """Mark lanes for which I + Σμ∇²q is known to be positive."""
        least = np.empty(self.count)
        least_curvature(*self.space.bends, np.ascontiguousarray(mu), self.hessians, self.space.iterated, least)
        convex: Mask = asked & (least > 0.0)
        return convex


def largest(field: Values) -> Values:
    """Return the largest |u| of every lane."""
    out = np.empty(len(field))
    coordinates.largest(np.arange(field.shape[1]), field, out)
    return out


def _violation(residual: Values, equality: Mask) -> Values:
    sizes = np.where(equality, np.abs(residual), np.maximum(residual, 0.0))
    found: Values = sizes.max(axis=1, initial=0.0)
    return found
