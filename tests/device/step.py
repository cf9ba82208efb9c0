"""A whole projection as launches of entries, with numpy in between: what solve.newton does, on the emulated device.

For laws that kernels evaluate, without other attempts on what Newton's first one leaves open (`retry` is False).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tests.device.descriptors import Descriptor
from tests.device.launches import Device

from snapfm.device.sizes import kept_numbers, shared_factor, stage_numbers
from snapfm.errors import Status
from snapfm.kernels import layout
from snapfm.kernels.operations import LANES
from snapfm.kernels.panels import Schedule
from snapfm.solve.attempts.settings import ENDLESS, MANY, ORDINARY
from snapfm.solve.budget import Stopping, certified
from snapfm.solve.closed_form import Rows
from snapfm.solve.march import _KEPT
from snapfm.solve.newton import BESIDE, Newton
from snapfm.solve.stage_newton import share
from snapfm.solve.system import Part
from snapfm.solve.tiles import gravest

NOWHERE = np.zeros(0)
NO_SCHEDULE = Schedule(*(np.zeros((0, 8) if name == "updates" else 0, np.int64) for name in Schedule._fields))


@dataclass(frozen=True)
class Projected:
    """Fields, status and iterations of samples; multipliers and stationarity if they were asked for."""

    u: np.ndarray
    status: np.ndarray
    iterations: np.ndarray
    multipliers: np.ndarray
    stationarity: np.ndarray


class Step:
    """One projection of a batch (b, n), launch by launch."""

    def __init__(
        self, method: Newton, params, field: np.ndarray, stopping: Stopping, limit: int, device: Device
    ) -> None:
        assert not method.opaque
        assert all(part.kkt.fused for part in method.parts)
        self.method, self.given, self.stopping, self.limit, self.device = method, field, stopping, limit, device
        self.count, self.width = len(field), method.tape.unknowns
        self.known = method._from_params(params, self.count)
        self.externals = np.ascontiguousarray(self.known.externals)
        self.multipliers = np.zeros((self.count, method.laws.rows))
        self.start = np.zeros((self.count, self.width))
        self.u = self.start
        self.status, self.iterations = np.zeros(self.count, np.int64), np.ones(self.count, np.int64)
        self.between = 3  # operations of torch on a device: fields to unknowns, a copy, and back

    def project(self, certify: bool) -> Projected:
        """Launch everything; return what came out."""
        method = self.method
        self._enter()
        self.u = self.start.copy()
        for number, (level, rows) in enumerate(method.substitutions):
            if number == 0 and self.known.pinned is not None:
                self.u[:, level.unknowns] = self.known.pinned
                self.between += 1
            else:
                self._substitute(level, rows)
        if method.marches:
            self._march()
        clipped = method.clipped
        self.between += len(clipped) > 0
        self.u[:, clipped] = np.clip(self.u[:, clipped], method.lower[clipped], method.upper[clipped])
        if method.affine.gram is not None:
            self._affine()
        for part in method.parts:
            self._part(part)
        failed = np.ix_(np.flatnonzero(self.status), method.bounded)
        self.u[failed] = np.clip(self.u[failed], method.lower[method.bounded], method.upper[method.bounded])
        stationarity = self._certify() if certify else np.full(self.count, np.nan)
        self._leave()
        fields = self.u[:, : self.given.shape[1]]
        return Projected(fields, self.status, self.iterations, self.multipliers, stationarity)

    def _launch(self, entry: str, spec: Descriptor, *arguments, count: int | None = None) -> None:
        self.device.launch(entry, spec, self.count if count is None else count, *arguments)

    def _memory(self, numbers: int, count: int | None = None) -> np.ndarray:
        """Make memory of so many numbers a team."""
        return np.full((self.device.teams or (self.count if count is None else count), max(numbers, 1)), np.nan)

    def _enter(self) -> None:
        turns, groups = self.method.reduction.rotations, self.method.reduction.aggregates
        self.start[:, : self.given.shape[1]] = self.given
        if len(turns):
            spec = Descriptor(turns.first, turns.second, turns.cos, turns.sin)
            self._launch("rotate", spec, self.width, self.start, 1.0)
        if len(groups):
            spec = Descriptor(self.method.coordinates.runs, groups.ptr, groups.first)
            self._launch("condense", spec, self.width, self.start, self._memory(3 * len(groups)))

    def _leave(self) -> None:
        groups = self.method.reduction.aggregates
        if len(groups):
            spec = Descriptor(self.method.coordinates.runs, groups.ptr, groups.members, groups.first)
            self._launch("expand", spec, self.width, self.start, self.u, self._memory(3 * len(groups)))
        self._rotate_back(self.u)

    def _rotate_back(self, u: np.ndarray) -> None:
        turns = self.method.reduction.rotations
        if len(turns):
            self._launch("rotate", Descriptor(turns.first, turns.second, turns.cos, turns.sin), self.width, u, -1.0)

    def _params(self) -> tuple[int, np.ndarray]:
        return self.externals.shape[1], self.externals

    def _substitute(self, level, rows: Rows) -> None:
        program = rows.program
        spec = Descriptor(program.code, rows.inputs, rows.outside, level.unknowns, level.weights)
        memory = self._memory(program.cells + len(level.unknowns))
        self._launch("substitute", spec, self.width, self.u, *self._params(), program.cells, memory)

    def _affine(self) -> None:
        affine = self.method.affine
        gram, rows, count = affine.gram, affine.known, len(affine.rows)
        assert gram is not None
        base = self.known.constants
        if base is None:
            program, base = rows.program, np.zeros((self.count, count))
            spec, memory = Descriptor(program.code, rows.inputs, rows.outside), self._memory(program.cells + count)
            self._launch("evaluate", spec, self.width, self.u, *self._params(), program.cells, memory, count, base)
        plan, factor, inverse = NO_SCHEDULE, NOWHERE, NOWHERE
        if gram.diagonal is None:
            plan, factor, inverse = shared_factor(affine.runs, count)
        diagonal = NOWHERE if gram.diagonal is None else gram.diagonal
        spec = Descriptor(affine.runs, affine.rows, diagonal, plan, factor, inverse)
        memory = self._memory(2 * count + len(inverse))
        lam = self.multipliers
        self._launch("affine", spec, self.width, self.u, count, base.copy(), lam.shape[1], lam, memory)

    def _part(self, part: Part) -> None:
        lengths = part.lengths
        self.between += 4  # totals, and what becomes of status and iterations
        if len(lengths) and not part.inequalities:
            self.between += 6
            flat = self.u[:, lengths]
            size = np.abs(self.start[:, part.system.unknowns[0]]).max(axis=1, keepdims=True, initial=0.0)
            self.u[:, lengths] = np.where(flat == 0.0, BESIDE * np.where(size > 0.0, size, 1.0), flat)
        status, iterations = self._iterate(part, self.start, self.externals, self.u, self.multipliers)
        again = np.flatnonzero((self.u[:, lengths] < 0.0).any(axis=1) & (status == Status.CONVERGED))
        if len(again):
            mirrored, found, moved = self.u[again], self.multipliers[again], part.system.eliminated.ravel()
            mirrored[:, lengths] = np.abs(mirrored[:, lengths])
            mirrored[:, moved] = self.start[again][:, moved]
            then = self._iterate(part, self.start[again], self.externals[again], mirrored, found)
            self.u[again], self.multipliers[again] = mirrored, found
            status[again] = then[0]
            iterations[again] += then[1]
        self.status = gravest(np.stack([self.status, status], axis=1))
        self.iterations = np.maximum(self.iterations, iterations)

    def _iterate(self, part: Part, start, externals, u, multipliers) -> tuple[np.ndarray, np.ndarray]:
        system, at, count = part.system, part.at // LANES, len(u)
        lanes, rows = count * system.parts, system.parts * system.rows.shape[1]
        totals, space = np.zeros((count, rows)), np.full((lanes, int(at[layout.KEPT])), np.nan)
        eliminated = Descriptor(part.eliminated)
        self._launch("products", eliminated, self.width, start, rows, totals, count=count)
        spec = Descriptor(
            system.inputs, part.rows.outside, system.unknowns, system.rows, system.program.constants, part.lower[0],
            part.upper[0], at,
        )  # fmt: skip
        height = multipliers.shape[1]
        given = (self.width, u, start, externals.shape[1], externals, height, 0, rows, totals, space)
        self._launch("into_tiles", spec, *given, count=lanes)
        stopping = certified(self.stopping.tolerance) if part.inequalities else self.stopping
        ended = [np.zeros(lanes, np.int64) for _ in range(3)]
        spec = Descriptor(system.program.code, part.kkt.frame, part.kkt.schedule, at)
        settings = (*(float(one) for one in stopping), ORDINARY, MANY, 0, ENDLESS, self.limit, 0)
        self._launch("newton", spec, *settings, space, self._memory(int(at[-1]), lanes), *ended, count=lanes)
        spec = Descriptor(system.unknowns, system.rows, at)
        self._launch("out_of_tiles", spec, self.width, u, height, multipliers, rows, totals, space, count=lanes)
        self._launch("transposed", eliminated, self.width, u, rows, totals, count=count)
        status, iterations = (one.reshape(count, system.parts) for one in ended[:2])
        return gravest(status), iterations.max(axis=1)

    def _stages(self) -> Descriptor:
        march, offset = self.method.marching, 0
        squares, stages, before = [], [], list[int]()
        for solver in march.solvers:
            assert solver.structure is not None
            squares.append(Descriptor(solver.structure, offset))
            offset += kept_numbers(solver.structure)
        for stage in march.march.stages:
            again = stage.square in (before if len(squares) <= _KEPT else before[-1:])
            before.append(stage.square)
            read = (stage.inputs[None], stage.externals[None], stage.unknowns, stage.rows)
            stages.append(Descriptor(stage.square, again, *read))
        return Descriptor(stages, squares)

    def _march(self) -> None:
        solvers, stopping = self.method.marching.solvers, self.stopping
        structures = [one.structure for one in solvers if one.structure is not None]
        self.stages, self.kept = self._stages(), np.full(self.count * sum(map(kept_numbers, structures)), np.nan)
        self.work = self._memory(max(map(stage_numbers, structures)))
        self.ended, used = np.zeros(self.count, np.int64), np.zeros(self.count, np.int64)
        rule = (stopping.polish * stopping.tolerance, stopping.tolerance, int(stopping.polish < 1.0), share(self.limit))
        self._launch(
            "march",
            self.stages,
            self.width,
            self.start,
            self.u,
            *self._params(),
            *rule,
            self.kept,
            self.work,
            self.ended,
            used,
        )
        self.status[self.ended != 0] = int(Status.STALLED)
        self.iterations = np.maximum(self.iterations, used)

    def _pull(self, rows: Rows, index: np.ndarray, rest: np.ndarray) -> None:
        program, lam = rows.program, self.multipliers
        if rows.inputs.shape[1]:
            spec = Descriptor(program.code, rows.inputs, rows.outside, index)
            memory = self._memory(7 * program.cells + 2 * index.shape[1])
            given = (self.width, self.u, *self._params(), program.cells, memory, lam.shape[1], lam, rest)
            self._launch("pull", spec, *given)

    def _certify(self) -> np.ndarray:
        method, lam = self.method, self.multipliers
        rest = np.zeros_like(self.u)
        rest[:, method.checked] = self.u[:, method.checked] - self.start[:, method.checked]
        for part in method.parts:
            self._pull(part.rows, part.system.rows, rest)
        if method.affine.gram is not None:
            self._pull(method.affine.known, method.affine.rows[None], rest)
        if method.marches:
            given = (self.width, self.u, *self._params(), lam.shape[1], lam, rest, self.kept, self.work, self.ended)
            self._launch("march_back", self.stages, *given)
        for level, rows in reversed(method.substitutions):
            lam[:, level.rows] = -rest[:, level.unknowns] / level.weights
            self._pull(rows, level.rows[None], rest)
        groups = method.reduction.aggregates
        if len(groups):
            one, two = rest[:, groups.first :: 2], rest[:, groups.first + 1 :: 2]
            one[:] = np.abs(one) + np.abs(two)
        self._rotate_back(rest)
        at, left = self.u[:, method.checked], rest[:, method.checked]
        left[(at >= method.upper[method.checked]) & (left < 0)] = 0.0
        left[(at <= method.lower[method.checked]) & (left > 0)] = 0.0
        return np.abs(left).max(axis=1, initial=0.0)
