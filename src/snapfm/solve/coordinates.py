"""Between a field and the unknowns of its reduction: units, rotated pairs, and aggregates (math.md, "Reduction").

The frame around the stages of a plan: entered before the first, left after the last. Lengths are preserved, so that "nearest"
means the same. Must not import other stages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from snapfm.arrays import Index, Values
from snapfm.kernels.coordinates import condense, condense_linear, distances, expand, expand_linear, rotate
from snapfm.kernels.run_length import join
from snapfm.reduce.reduce import Reduction


class Coordinates:
    """Between a field and the unknowns of its reduction. `same`: they are the same; `wider`: the reduction has more."""

    def __init__(self, reduction: Reduction, unknowns: int, scale: Values | None) -> None:
        self.rotations, self.groups = reduction.rotations, reduction.aggregates
        self.unknowns, self.scale = unknowns, scale  # of every unknown of the field, in units of which it is reduced
        self.transform = reduction.transform
        plain = self.transform is None and scale is None
        self.same = plain and not (len(self.rotations) or len(self.groups))
        self.wider = reduction.tape.unknowns > unknowns or not plain
        sizes = np.diff(self.groups.ptr)
        self.runs = join(
            self.groups.members, np.repeat(np.arange(len(sizes)), sizes), np.ones(len(self.groups.members))
        )

    def enter(self, given: npt.NDArray[np.float32] | npt.NDArray[np.float64], u: Values) -> None:
        """Convert fields (b, n) to the reduction's unknowns. Written: u."""
        self._start(given if self.scale is None else given / self.scale, u)
        self._rotate(u)
        if len(self.groups):
            condense(self.runs, self.groups.ptr, self.groups.first, u)

    def leave(self, u_hat: Values, u: Values) -> None:
        """Convert back: members of aggregates along `u_hat`, then rotations. Written: u."""
        groups = self.groups
        if len(groups):
            expand(self.runs, groups.ptr, groups.members, groups.first, u_hat, u)
        self._rotate_back(u)

    def leave_remainder(self, rest: Values) -> None:
        """Convert a remainder of u − û + Jᵀλ back: that of a member is at most the sum of those of its two coordinates."""
        groups = self.groups
        if len(groups):
            one, two = rest[:, groups.first :: 2], rest[:, groups.first + 1 :: 2]
            one[:] = np.abs(one) + np.abs(two)
        self._rotate_back(rest)

    def enter_linear(self, u: Values, gradient: Values, g: Values) -> None:
        """Convert gradients (b, n) at the answers u, which are converted already. Written: g; members keep theirs."""
        self._start(gradient if self.scale is None else gradient * self.scale, g)
        self._rotate(g)
        groups = self.groups
        if len(groups):
            condense_linear(groups.ptr, groups.members, groups.first, u, g)

    def leave_linear(self, u: Values, multipliers: Values, g: Values, w: Values) -> None:
        """Convert w back. Across an aggregate the curvature is that of its sum of squares, in all directions. Written: w."""
        groups = self.groups
        if len(groups):
            curvature = np.ascontiguousarray(1.0 + 2.0 * (multipliers @ groups.curvature))
            expand_linear(groups.ptr, groups.members, groups.first, u, curvature, g, w)
        self._rotate_back(w)

    def field(self, given: npt.NDArray[Any], u_hat: Values, u: Values, out: npt.NDArray[Any]) -> None:
        """Return what was left as fields: `u_hat` is what `given` became. Written: out, u_hat."""
        if self.scale is not None:  # what did not move keeps its bits
            start = given / self.scale
            found = np.empty_like(start)
            self._moved(start, u_hat, u, found)
            out[:] = np.where(found == start, given, found * self.scale)
        else:
            self._moved(given, u_hat, u, out)

    def step(self, gradient: Values, g: Values, w: Values, out: Values) -> None:
        """Return w of the linearized problem as a step of the field: `g` is what `gradient` became. Written: out, g."""
        scale = 1.0 if self.scale is None else self.scale
        self._moved(gradient * scale, g, w, out)
        out *= scale

    def _moved(self, given: npt.NDArray[Any], before: Values, after: Values, out: npt.NDArray[Any]) -> None:
        if self.transform is None:
            out[:] = after[:, : given.shape[1]]
            return
        self._rotate_back(before)
        count = self.transform.matrix.shape[0]
        out[:] = given + self.transform.back(after[:, :count] - before[:, :count])

    def distances(self, u: npt.NDArray[Any], u_hat: npt.NDArray[Any], out: Values) -> None:
        """Compute the distances (b,) of fields (b, n), in their units. Written: out."""
        if self.scale is None:
            distances(u, u_hat, out)
        else:
            distances(u / self.scale, u_hat / self.scale, out)

    def remainder(self, checked: Index, rest: Values) -> Values:
        """Return a remainder, known at `checked` and zero elsewhere, as one of fields."""
        assert self.transform is not None
        known = np.zeros_like(rest)
        known[:, checked] = rest[:, checked]
        return self.transform.back(known[:, : self.transform.matrix.shape[0]])

    def _start(self, given: npt.NDArray[Any], u: Values) -> None:
        if self.transform is None:
            u[:, : self.unknowns] = given
        else:
            u[:, : self.transform.matrix.shape[0]] = self.transform.forward(given.astype(np.float64, copy=False))

    def _rotate(self, u: Values) -> None:
        rotations = self.rotations
        if len(rotations):
            rotate(rotations.first, rotations.second, rotations.cos, rotations.sin, u)

    def _rotate_back(self, u: Values) -> None:
        rotations = self.rotations
        if len(rotations):
            rotate(rotations.first, rotations.second, rotations.cos, -rotations.sin, u)
