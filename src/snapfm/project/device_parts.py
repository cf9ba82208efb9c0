"""Parts on a device: what solve.closed_form, solve.system and solve.march do, as launches of entries on torch's memory.

Prepared from the objects of the CPU: their arrays become Structures, and a call's memory is torch's. Nothing here waits for the
device. Must not import solve.newton.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index, Values
from snapfm.device.held import ROOM, Held
from snapfm.device.launch import ALONE, WARP
from snapfm.device.sizes import kept_numbers, shared_factor, stage_numbers
from snapfm.device.structures import Place, Structures
from snapfm.errors import Status
from snapfm.kernels import layout
from snapfm.kernels.operations import LANES
from snapfm.kernels.panels import Schedule
from snapfm.project.device_attempts import Lanes, SecondAttempt
from snapfm.reduce.cascade import Level
from snapfm.solve.attempts.settings import first_attempt
from snapfm.solve.budget import Stopping, certified
from snapfm.solve.closed_form import AffinePart, Coordinates, Rows
from snapfm.solve.march import Marching
from snapfm.solve.stage_newton import share
from snapfm.solve.system import Part
from snapfm.solve.tiles import GRAVITY, RANK

_SMALL = 256  # cells, entries and packs of the factor of a part that one thread works through: a team would mostly wait
_NOTHING = Schedule(*(np.zeros((0, 8) if name == "updates" else 0, np.int64) for name in Schedule._fields))
LARGEST_GRAM = 4_000  # rows of a coupled affine part: beyond, a factor with one order for all is too large


@dataclass(frozen=True)
class Fields:
    """A batch on the device: û and u in the reduction's unknowns (b, n), and what depends on params only (b, …)."""

    start: Tensor
    u: Tensor
    externals: Tensor

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.u)

    @property
    def width(self) -> int:
        """Number of unknowns."""
        return self.u.shape[1]

    @property
    def known(self) -> int:
        """Numbers of a sample that depend on params only."""
        return self.externals.shape[1]


@dataclass(frozen=True)
class EndedThere:
    """Status, iterations and sign of the curvature of samples: as solve.tiles.Ended, on a device."""

    status: Tensor
    iterations: Tensor
    second: Tensor


class DeviceCoordinates:
    """Between fields and the unknowns of their reduction: as closed_form.Coordinates."""

    def __init__(self, coordinates: Coordinates, structures: Structures) -> None:
        self.unknowns = coordinates.unknowns
        turned, groups, runs = coordinates.rotations, coordinates.groups, coordinates.runs
        self.turns, self.groups = len(turned), len(groups)
        self._rotate = structures.add(turned.first, turned.second, turned.cos, turned.sin)
        self._condense = structures.add(runs, groups.ptr, groups.first)
        self._expand = structures.add(runs, groups.ptr, groups.members, groups.first)

    def enter(self, held: Held, given: Tensor, width: int) -> Tensor:
        """Convert fields (b, n) to the reduction's unknowns (b, width), float64."""
        count = len(given)
        start = torch.zeros(count, width, dtype=torch.float64, device=given.device)
        start[:, : self.unknowns] = given
        if self.turns:
            held.run("rotate", self._rotate, count, width, start, 1.0)
        if self.groups:
            held.run("condense", self._condense, count, width, start, ROOM, room=3 * self.groups)
        return start

    def leave(self, held: Held, start: Tensor, u: Tensor) -> None:
        """Convert back: members of aggregates along `start`, then rotations. Written: u."""
        if self.groups:
            held.run("expand", self._expand, len(u), u.shape[1], start, u, ROOM, room=3 * self.groups)
        self.rotate_back(held, u)

    def rotate_back(self, held: Held, u: Tensor) -> None:
        """Undo the rotations alone. Written: u."""
        if self.turns:
            held.run("rotate", self._rotate, len(u), u.shape[1], u, -1.0)


class DeviceRows:
    """A program with what it reads: as closed_form.Rows; `index` are its rows among all, one line per part."""

    def __init__(self, rows: Rows, index: Index, structures: Structures) -> None:
        self._cells, self._rows = rows.program.cells, rows.program.pattern.rows
        self._reads = rows.inputs.shape[1]
        self._pulled = index.shape[1]
        self._evaluate = structures.add(rows.program.code, rows.inputs, rows.outside)
        self._pull = structures.add(rows.program.code, rows.inputs, rows.outside, index)

    def evaluate(self, held: Held, at: Fields) -> Tensor:
        """Evaluate the rows (b, m) of a program of one part."""
        out = torch.empty(at.count, self._rows, dtype=torch.float64, device=at.u.device)
        read = (at.width, at.u, at.known, at.externals, self._cells, ROOM)
        held.run("evaluate", self._evaluate, at.count, *read, self._rows, out, room=self._cells + self._rows)
        return out

    def pull(self, held: Held, at: Fields, multipliers: Tensor, rest: Tensor) -> None:
        """Add Jᵀλ to `rest`. Written: rest."""
        if self._reads:
            read = (at.width, at.u, at.known, at.externals, self._cells, ROOM)
            room = 7 * self._cells + 2 * self._pulled
            held.run("pull", self._pull, at.count, *read, multipliers.shape[1], multipliers, rest, room=room)


class DeviceLevel:
    """One level of substitutions."""

    def __init__(self, level: Level, rows: Rows, structures: Structures, device: torch.device) -> None:
        program = rows.program
        self.unknowns, self.rows = placed(level.unknowns, device), placed(level.rows, device)
        self._weights, self._cells = placed(level.weights, device), program.cells
        self._substitute = structures.add(program.code, rows.inputs, rows.outside, level.unknowns, level.weights)
        self._own = DeviceRows(rows, level.rows[None], structures)

    def substitute(self, held: Held, at: Fields) -> None:
        """Set the unknowns that the rows determine. Written: at.u."""
        room = self._cells + len(self.unknowns)
        read = (at.width, at.u, at.known, at.externals, self._cells, ROOM)
        held.run("substitute", self._substitute, at.count, *read, room=room)

    def determine(self, held: Held, at: Fields, multipliers: Tensor, rest: Tensor) -> None:
        """Find the multipliers that make the determined unknowns stationary. Written: multipliers, rest."""
        multipliers[:, self.rows] = -rest[:, self.unknowns] / self._weights
        self._own.pull(held, at, multipliers, rest)


class DeviceAffine:
    """The affine rows of a reduction: as closed_form.AffinePart, of which there is at least one row."""

    def __init__(self, affine: AffinePart, structures: Structures) -> None:
        gram = affine.gram
        assert gram is not None
        self._rows = len(affine.rows)
        diagonal = np.zeros(0) if gram.diagonal is None else gram.diagonal
        plan, factor, inverse = _NOTHING, np.zeros(0), np.zeros(0)
        if gram.diagonal is None:
            plan, factor, inverse = shared_factor(affine.runs, self._rows)
        self._room = 2 * self._rows + len(inverse)
        self._solve = structures.add(affine.runs, affine.rows, diagonal, plan, factor, inverse)
        self.known = DeviceRows(affine.known, affine.rows[None], structures)

    def solve(self, held: Held, at: Fields, constants: Tensor, multipliers: Tensor) -> None:
        """Project u onto the rows; `constants` is their known part. Written: at.u, multipliers."""
        given = (at.width, at.u, self._rows, constants, multipliers.shape[1], multipliers, ROOM)
        held.run("affine", self._solve, at.count, *given, room=self._room)


class DevicePart:
    """A System on a device: as solve.system. A team works on a part, of one thread where parts are small."""

    def __init__(self, part: Part, structures: Structures, device: torch.device) -> None:
        system, program = part.system, part.system.program
        self.parts, self._rows = system.parts, system.rows.shape[1]
        at = part.at // LANES
        self._at: tuple[int, ...] = tuple(at.tolist())
        self._kept, self._second = self._at[layout.KEPT], SecondAttempt.of(part)
        self._inequalities = part.inequalities
        self._width = ALONE if program.cells + program.pattern.nnz + part.kkt.schedule.packs <= _SMALL else WARP
        self._into = structures.add(
            system.inputs, part.rows.outside, system.unknowns, system.rows, program.constants, part.lower[0], part.upper[0], at
        )  # fmt: skip
        self._system = structures.add(program.code, part.kkt.frame, part.kkt.schedule, at)
        self._out = structures.add(system.unknowns, system.rows, at)
        self._runs = structures.add(part.eliminated)
        self._eliminates = len(part.eliminated.place) > 0
        self._own = DeviceRows(part.rows, system.rows, structures)
        self._lengths = placed(part.lengths, device)
        self._first, self._moved = placed(system.unknowns[0], device), placed(system.eliminated.ravel(), device)
        self._rank, self._gravity = placed(RANK, device), placed(np.array([int(one) for one in GRAVITY]), device)

    @property
    def tries_again(self) -> bool:
        """Whether there is an attempt that is made only `again`: see solve."""
        return self._second is not None and not self._second.prompt

    def pull(self, held: Held, at: Fields, multipliers: Tensor, rest: Tensor) -> None:
        """Add Jᵀλ of this part's rows to `rest`."""
        self._own.pull(held, at, multipliers, rest)

    def solve(
        self, held: Held, at: Fields, multipliers: Tensor, warm: Tensor | None, stopping: Stopping, limit: int,
        beside: float, again: bool,
    ) -> EndedThere:  # fmt: skip
        """Iterate from u to the feasible point nearest to û: as Newton._iterate. Written: at.u, multipliers.

        Lanes that fail are tried again by a barrier, and with `again` also in ways that take more launches.
        """
        if not len(self._lengths):
            return self._iterate(held, at, multipliers, warm, stopping, limit, again)
        u, start, lengths = at.u, at.start, self._lengths
        if not self._inequalities:
            flat = u[:, lengths]
            size = start[:, self._first].abs().amax(dim=1, keepdim=True)
            u[:, lengths] = torch.where(flat == 0.0, beside * torch.where(size > 0.0, size, 1.0), flat)
        ended = self._iterate(held, at, multipliers, warm, stopping, limit, again)
        # Aggregates with y₂ < 0 go on from their mirror image. All samples are launched, as nothing waits to learn how many
        # need it; those that do not are NaN, and end at once.
        behind = (u[:, lengths] < 0.0).any(dim=1) & (ended.status == int(Status.CONVERGED))
        mirrored = u.clone()
        mirrored[:, lengths] = mirrored[:, lengths].abs()
        mirrored[:, self._moved] = start[:, self._moved]
        mirrored = torch.where(behind[:, None], mirrored, torch.nan)
        found = multipliers.clone()
        then = self._iterate(held, Fields(start, mirrored, at.externals), found, None, stopping, limit, again)
        u.copy_(torch.where(behind[:, None], mirrored, u))
        multipliers.copy_(torch.where(behind[:, None], found, multipliers))
        return EndedThere(
            torch.where(behind, then.status, ended.status),
            ended.iterations + torch.where(behind, then.iterations, 0),
            torch.where(behind, then.second, ended.second),
        )

    def _iterate(
        self, held: Held, at: Fields, multipliers: Tensor, warm: Tensor | None, stopping: Stopping, limit: int, again: bool
    ) -> EndedThere:  # fmt: skip
        count, width, lanes, rows = at.count, at.width, at.count * self.parts, self.parts * self._rows
        height, device = multipliers.shape[1], at.u.device
        totals = torch.zeros(count, rows, dtype=torch.float64, device=device)
        if self._eliminates:
            held.run("products", self._runs, count, width, at.start, rows, totals)
        space = torch.empty(lanes, self._kept, dtype=torch.float64, device=device)
        lam: Tensor | int = 0 if warm is None else warm
        read = (width, at.u, at.start, at.known, at.externals, height, lam, rows, totals, space)
        held.run("into_tiles", self._into, lanes, *read, width=self._width)
        if self._inequalities:  # see Part._iterate
            stopping = certified(stopping.tolerance)
        settings, allowed = first_attempt(stopping, self._inequalities, warm is not None, limit)
        tiles, second = Lanes(held, self._system, space, self._at, self._width), self._second
        if second is None or not (second.prompt or again):
            ended = tiles.run("newton", settings, allowed, None)
        else:
            begin = tiles.section(layout.X).clone()
            ended = second(tiles, begin, tiles.run("newton", settings, allowed, None), stopping, limit)
        given = (width, at.u, height, multipliers, rows, totals, space)
        held.run("out_of_tiles", self._out, lanes, *given, width=self._width)
        if self._eliminates:
            held.run("transposed", self._runs, count, width, at.u, rows, totals)
        status, iterations, curvature = ended.view(3, count, self.parts)
        gravest = self._gravity[self._rank[status].amax(dim=1)]
        return EndedThere(gravest, iterations.amax(dim=1), curvature.amin(dim=1))


class DeviceMarch:
    """All stages of a march, in one launch: as solve.march, for samples that kernels.march gets through."""

    def __init__(self, marching: Marching, structures: Structures) -> None:
        squares, stages = list[Place](), list[Place]()
        self._kept = self._room = 0
        for solver in marching.solvers:
            one = solver.structure
            assert one is not None
            squares.append(structures.add(one, self._kept))
            self._kept += kept_numbers(one)
            self._room = max(self._room, stage_numbers(one))
        before: list[int] = []
        for stage in marching.march.stages:
            again = stage.square in (before if marching.keeps else before[-1:])  # a factor and a solution to go on from
            read = (stage.inputs[None], stage.externals[None], stage.unknowns, stage.rows)
            stages.append(structures.add(stage.square, again, *read))
            before.append(stage.square)
        self._spec = structures.add(structures.listed(stages), structures.listed(squares))

    def walk(self, held: Held, at: Fields, stopping: Stopping, limit: int) -> WalkThere:
        """Solve all stages. Written: at.u."""
        device, count = at.u.device, at.count
        kept = torch.empty(count * self._kept, dtype=torch.float64, device=device)
        ended, used = torch.empty(2, count, dtype=torch.int64, device=device)
        rule = (stopping.polish * stopping.tolerance, stopping.tolerance, int(stopping.polish < 1.0), share(limit))
        read = (at.width, at.start, at.u, at.known, at.externals)
        held.run("march", self._spec, count, *read, *rule, kept, ROOM, ended, used, room=self._room)
        return WalkThere(kept, ended, used)

    def determine(self, held: Held, at: Fields, walk: WalkThere, multipliers: Tensor, rest: Tensor) -> None:
        """Find the multipliers of all stages, last first. Written: multipliers, rest, walk.ended."""
        given = (at.width, at.u, at.known, at.externals, multipliers.shape[1], multipliers, rest, walk.kept, ROOM)
        held.run("march_back", self._spec, at.count, *given, walk.ended, room=self._room)


@dataclass(frozen=True)
class WalkThere:
    """What a march leaves: memory of its factors, how samples ended (0: at the last stage), and their iterations."""

    kept: Tensor
    ended: Tensor
    used: Tensor


def placed(array: Index | Values, device: torch.device) -> Tensor:
    """Copy an array to a device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
