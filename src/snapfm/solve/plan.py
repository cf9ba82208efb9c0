"""Plan: the stages that structure decides on, and the walks over them, forward and backward. Stop 5 of the walk of a batch.

    project   for every stage: solve; then backward: pull. The remainder u − û + Jᵀλ is the stationarity, the certificate
    adjoint   the same walks through the linearized problem at the answer: gradients in û and in params

Made once from a reduction (math.md, "Reduction"). Never changes. Must not import solve.newton.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from snapfm.arrays import Index, Values
from snapfm.compile.derivatives import Rows
from snapfm.compile.kinks import find_kinks
from snapfm.kernels.coordinates import differences, largest
from snapfm.linear import Automatic, Solver
from snapfm.reduce.kinked_system import KinkedRows, kinked_rows
from snapfm.reduce.reduce import Reduction
from snapfm.solve.affine import Affine
from snapfm.solve.base import Limits, Warm
from snapfm.solve.coordinates import Coordinates
from snapfm.solve.iterate import Iterate
from snapfm.solve.kinks.generalized import NO_WEIGHT
from snapfm.solve.march import Marching
from snapfm.solve.memory import Workspaces
from snapfm.solve.stage import Ended, LinearState, Stage, State
from snapfm.solve.substitute import Clip, Substitute
from snapfm.solve.system import Part
from snapfm.solve.totals import DualTotals
from snapfm.text import plural

Field = npt.NDArray[np.float32] | npt.NDArray[np.float64]


@dataclass(frozen=True)
class Known:
    """What follows from the params of a batch alone."""

    params: Values  # (b, …) cells of params, numbered as in the tape
    stages: tuple[Values | None, ...]  # (b, …) by stage: what params alone determine

    def part(self, piece: slice) -> Known:
        """Return that of some samples."""
        return Known(self.params[piece], tuple(None if one is None else one[piece] for one in self.stages))


class PieceResult(NamedTuple):
    """The answers of a call, written piece by piece."""

    u: Field  # (b, n) float64, or without a certificate the dtype of the input
    multipliers: Values  # (b, m)
    place: Values  # (b, …) where iterations ended
    stationarity: Values
    distance: Values
    weights: Values  # (b, kinks) of generalized gradients

    def part(self, piece: slice) -> PieceResult:
        """Return those of some samples."""
        return PieceResult._make([one[piece] for one in self])

    def return_input(self, u_hat: Field) -> None:
        """Return samples unchanged: there was no time for them."""
        self.u[:], self.multipliers[:], self.place[:] = u_hat, 0.0, 0.0
        self.stationarity[:], self.distance[:], self.weights[:] = 0.0, 0.0, NO_WEIGHT


class Plan:
    """The stages of a reduction. `linear` factorizes KKT matrices; `opaque`: a callback evaluates the rows.

    `limits` are those of the field, the reduction is over the field in units of `scale` (n,), if given.
    Raises TooLarge for factors of more than `most` bytes, unless laws have kinks: there is no other method for those.
    """

    def __init__(
        self, reduction: Reduction, limits: Limits, linear: Solver | None, most: float, opaque: bool = False,
        scale: Values | None = None,
    ) -> None:  # fmt: skip
        self.reduction, self.limits, self.opaque = reduction, limits, opaque
        self.unknowns, self.width = reduction.tape.unknowns, len(limits.lower)
        self.coordinates = Coordinates(reduction, self.width, scale)
        first = len(limits.lower) if reduction.transform is None else 0  # with a transform nothing is bounded
        more = np.full(self.unknowns - first, np.inf)
        divisor = np.ones(first) if scale is None else scale[:first]
        self.lower, self.upper = (
            np.concatenate([limits.lower[:first] / divisor, -more]),
            np.concatenate([limits.upper[:first] / divisor, more]),
        )
        kinks = None if opaque else find_kinks(reduction.tape)
        kinked, self.kinks = list[KinkedRows | None](), 0
        for system in reduction.systems:
            limits_and_first = self.lower, self.upper, self.kinks
            own = None if kinks is None else kinked_rows(kinks, reduction.rows, system, *limits_and_first)
            kinked.append(own)
            self.kinks += 0 if own is None else own.columns.size
        most = np.inf if self.kinks else most
        solver = Automatic(largest=most) if linear is None else linear
        groups = reduction.aggregates
        lengths = groups.first + 1 + 2 * np.arange(len(groups))
        self.systems = [
            Part(system, self.lower, self.upper, lengths, solver, rows)
            for system, rows in zip(reduction.systems, kinked, strict=True)
        ]
        free, touched = reduction.cascade.free, np.zeros(self.unknowns, bool)
        for unknowns in [part.unknowns.ravel() for part in reduction.systems] + [
            one.unknowns for one in reduction.totals
        ]:
            touched[unknowns] = True
        bounded = np.isfinite(self.lower) | np.isfinite(self.upper)
        self.bounded = np.flatnonzero(bounded & free)
        # Unknowns at which u − û + Jᵀλ has to be checked: for all others u = û − Aᵀλ makes it zero.
        self.moving = np.flatnonzero(touched)
        checked = ~free | touched
        checked[groups.members] = False
        self.checked = np.flatnonzero(checked)
        self.determined = np.flatnonzero(~free)
        self.determined = self.determined[~np.isin(self.determined, groups.members)]
        self.stages = self._stages(np.flatnonzero(bounded & free & ~touched), linear, most)
        self._memory: Workspaces[tuple[Values, Values, Values]] = Workspaces(self._batches)

    def _stages(self, clipped: Index, linear: Solver | None, most: float) -> tuple[Stage, ...]:
        """List the stages in the order in which they determine unknowns."""
        reduction = self.reduction
        stages: list[Stage] = []
        pinned = np.zeros(0, np.int64)
        for level, program in zip(reduction.cascade.levels, reduction.substitutions):
            stages.append(stage := Substitute(len(stages), level, Rows.of(program)))
            pinned = np.concatenate([pinned, stage.pinned])
        if len(reduction.march):
            stages.append(Marching(len(stages), reduction.march, reduction.tape, reduction.rows, linear))
        if len(clipped):
            stages.append(Clip(len(stages), clipped, self.lower[clipped], self.upper[clipped]))
        if len(reduction.affine):
            stages.append(Affine(len(stages), reduction, pinned, linear, most))
        lengths = reduction.aggregates.first + 1 + 2 * np.arange(len(reduction.aggregates))
        for found in reduction.totals:
            own = np.intersect1d(found.unknowns, lengths)
            stages.append(DualTotals(len(stages), found, reduction.cascade.free, self.lower, self.upper, own))
        for k, part in enumerate(self.systems, 1):
            stages.append(Iterate(len(stages), part, len(self.systems) - k))
        return tuple(stages)

    @cached_property
    def march(self) -> Marching | None:
        """The stage that marches, if there is one."""
        return next((stage for stage in self.stages if isinstance(stage, Marching)), None)

    def describe(self) -> list[str]:
        """Say what every stage does, in order."""
        reduction, levels = self.reduction, self.reduction.cascade.levels
        lines = []
        if reduction.transform is not None:
            lines.append(f"transform into {plural(reduction.transform.matrix.shape[0], 'orthogonal coefficient')}")
        if len(reduction.rotations):
            lines.append(f"rotate {plural(len(reduction.rotations), 'pair')}")
        if len(reduction.aggregates):
            groups = reduction.aggregates
            lines.append(f"aggregate {plural(len(groups.members), 'unknown')} into {2 * len(groups)}")
        if levels:
            count = sum(len(level.unknowns) for level in levels)
            lines.append(f"substitute {plural(count, 'unknown')} in {plural(len(levels), 'level')}")
        lines += [stage.describe() for stage in self.stages[len(levels) :]]
        return lines

    def from_params(self, params: Values) -> Known:
        """Evaluate what params alone determine."""
        u = np.zeros((len(params), self.unknowns))
        return Known(params, tuple(stage.from_params(u, params) for stage in self.stages))

    def bytes(self, samples: int) -> float:
        """Predict the memory that a piece of so many samples takes while it is solved."""
        return 8.0 * samples * 3 * self.unknowns + sum(stage.bytes(samples) for stage in self.stages)

    def project(
        self, u_hat: Field, state: State, warm: Warm | None, answers: PieceResult, ended: Ended, certify: bool
    ) -> None:
        """Project one piece of fields (b, n); iterations begin at û, or where `warm` says.

        `state` comes without its arrays over the unknowns, which are lent to it here. Written: answers, ended, state.
        """
        coordinates = self.coordinates
        answers.multipliers[:], answers.weights[:] = 0.0, NO_WEIGHT
        with self._memory.lend(len(u_hat)) as (own, u, rest):  # own: û in the coordinates of the stages
            double = u_hat.dtype == np.float64
            if coordinates.same and double:
                own = cast(Values, u_hat)
            else:
                coordinates.enter(u_hat, own)
            stays = double and not coordinates.wider
            if stays:
                u = cast(Values, answers.u)  # computed where it is returned
            u[:] = own
            if warm is not None:
                usable = warm.usable[:, None]
                u[:, self.moving] = warm.place if usable.all() else np.where(usable, warm.place, u[:, self.moving])
                state.warm = warm.multipliers if usable.all() else np.where(usable, warm.multipliers, 0.0)
            state.u_hat, state.u, state.multipliers, state.weights = own, u, answers.multipliers, answers.weights
            for stage in self.stages:
                stage.solve(state, ended)
            if len(self.bounded) and ended.status.any():  # bounds hold even where iterations end early
                failed = np.ix_(np.flatnonzero(ended.status), self.bounded)
                u[failed] = np.clip(u[failed], self.lower[self.bounded], self.upper[self.bounded])
            answers.place[:] = u[:, self.moving]
            if certify:
                self._certify(state, rest, answers.stationarity)
            coordinates.leave(own, u)
            if not stays:
                coordinates.field(u_hat, own, u, answers.u)
            if coordinates.scale is not None and self.limits.bounded.any():
                self.limits.restore(u[:, : self.width], self.lower, self.upper, answers.u)
            if certify:
                coordinates.distances(answers.u, u_hat, answers.distance)

    def _certify(self, state: State, rest: Values, stationarity: Values) -> None:
        """Find all multipliers, last stage first; the remainder of u − û + Jᵀλ is the stationarity.

        Written: state's multipliers, stationarity, rest (valid at `checked` only).
        """
        differences(self.checked, state.u, state.u_hat, rest)
        for stage in reversed(self.stages):
            stage.pull(state, rest)
        self.coordinates.leave_remainder(rest)
        if self.limits.bounded.any():
            # At a bound the remainder is minus the bound's multiplier: zero it where that has the right sign.
            at, left = state.u[:, self.checked], rest[:, self.checked]
            left[(at >= self.upper[self.checked]) & (left < 0)] = 0.0
            left[(at <= self.lower[self.checked]) & (left > 0)] = 0.0
            rest[:, self.checked] = left
        if self.reduction.transform is None:
            largest(self.checked, rest, stationarity)
        else:
            stationarity[:] = np.abs(self.coordinates.remainder(self.checked, rest)).max(axis=1, initial=0.0)

    def adjoint(self, fields: Values, gradient: Values, at: LinearState, in_params: bool, w: Values) -> None:
        """Solve the linearized problem at answers (b, n) for gradients (b, n).

        `at` comes without its arrays over the unknowns. Written: w (b, n), and at's ν; with `in_params`, its by_params.
        """
        coordinates = self.coordinates
        at.u, at.g = fields, gradient
        with self._memory.lend(len(fields)) as (u, g, rest):
            if not coordinates.same:
                at.u, at.g = u, g
                coordinates.enter(fields, at.u)
                coordinates.enter_linear(at.u, gradient, at.g)
            at.w = np.empty_like(at.g) if coordinates.wider else w
            at.w[:] = at.g
            for stage in self.stages:
                stage.linear(at)
            if in_params:
                at.rest = rest  # at determined unknowns only
                rest[:, self.determined] = -at.g[:, self.determined]
                for stage in reversed(self.stages):
                    stage.pull_linear(at)
            coordinates.leave_linear(at.u, at.multipliers, at.g, at.w)
            if coordinates.wider:
                coordinates.step(gradient, at.g, at.w, w)

    def _batches(self, count: int) -> tuple[Values, Values, Values]:
        """Make three batches over the reduction's unknowns: û, u, and the remainder of u − û + Jᵀλ."""
        shape = (count, self.unknowns)
        return np.empty(shape), np.empty(shape), np.empty(shape)
