"""OnDevice: Newton's method on a device, prepared from the one of the CPU. Tensors of the device in, tensors of it out.

A call is a sequence of launches and of torch's operations that does not depend on values, so that nothing waits for the device.
It follows Newton._solve_piece, for the whole batch at once. Iterations are those of the first attempt. Samples that need another
one are left as they are (`move`), or found by the certificate and given to the CPU (project.projector). Must not import it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.compile.trace.batched import each
from snapfm.compile.trace.batched import placed as placed_graph
from snapfm.device.held import Held
from snapfm.device.launch import Machine
from snapfm.device.structures import Structures
from snapfm.errors import Status
from snapfm.kernels.layout import HOLDS
from snapfm.laws import Params
from snapfm.project.device_attempts import summed
from snapfm.project.device_parts import (
    LARGEST_GRAM,
    DeviceAffine,
    DeviceCoordinates,
    DeviceLevel,
    DeviceMarch,
    DevicePart,
    Fields,
    WalkThere,
    placed,
)
from snapfm.solve.base import Method, WarmThere
from snapfm.solve.budget import Stopping, certified, enough
from snapfm.solve.newton import BESIDE, Newton

_CONVERGED, _STALLED = int(Status.CONVERGED), int(Status.STALLED)


def obstacle(method: Method) -> str | None:
    """Return why a method has no form on a device; None if it has one."""
    if not isinstance(method, Newton):
        return "the laws are matrix-free"
    if method.opaque:
        return "torch has to evaluate and differentiate a law, or a law brings its own derivatives"
    if not all(part.kkt.fused for part in method.parts):
        return "a system is too large to be factorized by one team of threads"
    if any(solver.structure is None for solver in method.marching.solvers):
        return "a stage of the march is too large to be factorized by one team of threads"
    gram = method.affine.gram
    if gram is not None and gram.diagonal is None and len(method.affine.rows) > LARGEST_GRAM:
        return "the affine rows are too many to be solved by one team of threads"
    return None


@dataclass(frozen=True)
class SolvedThere:
    """A batch as the method returns it to the judge, on the device: as base.Solution, float64."""

    u: Tensor
    multipliers: Tensor
    iterations: Tensor
    residual: Tensor
    stationarity: Tensor
    distance: Tensor
    status: Tensor
    second_order: Tensor
    warm: WarmThere


@dataclass(frozen=True)
class _Known:
    """What follows from the params of a batch alone, on one stream of the device."""

    given: Params
    versions: tuple[int, ...]
    stream: int
    count: int
    params: dict[str, Tensor]  # float64, (b, …)
    externals: Tensor
    pinned: Tensor | None
    constants: Tensor | None

    def of(self, given: Params, stream: int, count: int) -> bool:
        """Whether these are the same tensors, unchanged since. Values are not compared: the CPU would wait for them."""
        return (
            self.stream == stream
            and self.count == count
            and all(self.given[name] is value for name, value in given.items())
            and self.versions == _versions(given)
        )


@dataclass(frozen=True)
class _Run:
    """What a call leaves behind before it is certified."""

    at: Fields
    multipliers: Tensor
    status: Tensor
    iterations: Tensor
    second: Tensor
    walk: WalkThere | None


class OnDevice:
    """Prepared for a Newton and a device; `obstacle` has to be None. It never changes; a call's memory is torch's."""

    def __init__(self, newton: Newton, machine: Machine, device: torch.device) -> None:
        self.newton, self.machine, self.device = newton, machine, device
        reduction, tape, structures = newton.reduction, newton.tape, Structures()
        self._coordinates = DeviceCoordinates(newton.coordinates, structures)
        self._levels = [DeviceLevel(level, rows, structures, device) for level, rows in newton.substitutions]
        self._march = DeviceMarch(newton.marching, structures) if newton.marches else None
        self._affine = None if newton.affine.gram is None else DeviceAffine(newton.affine, structures)
        self._parts = [DevicePart(part, structures, device) for part in newton.parts]
        self._held = Held(machine, device, structures)
        self._lower, self._upper = placed(newton.lower, device), placed(newton.upper, device)
        self._clipped, self._bounded = placed(newton.clipped, device), placed(newton.bounded, device)
        self._moving, self._checked = placed(newton.moving, device), placed(newton.checked, device)
        self._inequality = placed(newton.inequality_rows, device)
        self._groups = reduction.aggregates
        self._example = newton.laws.example[0].to(device)
        self._outside = [(cell, placed_graph(graph, device), size) for cell, graph, size in tape.externals]
        self._first = tape.unknowns + 1
        self._known: _Known | None = None  # replaced whole, read once

    def move(
        self, given: Tensor, params: Params, tolerance: float, warm: WarmThere | None, limit: int
    ) -> tuple[Tensor, WarmThere]:
        """Project without a certificate, in the dtype given. Nothing waits for the device."""
        run = self._run(given, params, enough(tolerance), warm, limit)
        place = run.at.u[:, self._moving]
        self._coordinates.leave(self._held, run.at.start, run.at.u)
        u = run.at.u[:, : self.newton.laws.unknowns].to(given.dtype).reshape(given.shape)
        return u, WarmThere(place, run.multipliers, run.status == _CONVERGED, self)

    def solve(
        self, given: Tensor, params: Params, tolerance: float, warm: WarmThere | None, limit: int, again: bool = False
    ) -> SolvedThere:  # fmt: skip
        """Project with all that a judge asks for, and with `again` by all attempts. Nothing waits for the device here either."""
        run = self._run(given, params, certified(tolerance), warm, limit, again)
        place = run.at.u[:, self._moving]
        stationarity = self._certify(run)
        self._coordinates.leave(self._held, run.at.start, run.at.u)
        u = run.at.u[:, : self.newton.laws.unknowns].contiguous()
        start = given.reshape(u.shape).to(torch.float64)
        residual = self.newton.laws.residual(u.reshape(given.shape), self.inside(params, len(given)))
        status = run.status
        if run.walk is not None:  # multipliers of stages may need pivoting
            status = torch.where(run.walk.ended == 0, status, _STALLED)
        stationarity = torch.maximum(stationarity, self._off(residual, run.multipliers))
        ended = WarmThere(place, run.multipliers, status == _CONVERGED, self)
        distance = summed((u - start).square()).sqrt()
        return SolvedThere(
            u, run.multipliers, run.iterations, residual, stationarity, distance, status, run.second, ended
        )

    @property
    def tries_again(self) -> bool:
        """Whether `solve` with `again` makes attempts that it does not make without."""
        return any(part.tries_again for part in self._parts)

    def brought(self, values: Tensor) -> Tensor:
        """Wait for the device, and copy a tensor to the CPU."""
        return torch.from_numpy(self.machine.read(values.detach()))

    def recall(self, u: Tensor, multipliers: Tensor, usable: Tensor) -> WarmThere:
        """Return the warm start at another projector's result: fields (b, *shape), multipliers (b, m)."""
        width = self.newton.tape.unknowns
        start = self._coordinates.enter(self._held, u.reshape(len(u), self.newton.laws.unknowns), width)
        return WarmThere(start[:, self._moving], multipliers, usable, self)

    def inside(self, given: Params, count: int) -> dict[str, Tensor]:
        """Return params in float64, one line a sample, on the device."""
        return self._from_params(given, count).params

    def _from_params(self, given: Params, count: int) -> _Known:
        kept, stream = self._known, self.machine.stream()
        if kept is not None and kept.of(given, stream, count):
            return kept
        params = {}
        for name, value in given.items():
            moved = value.detach().to(self.device)
            moved = moved.double() if moved.is_floating_point() else moved
            params[name] = moved.expand(count, *moved.shape[1:]).contiguous()
        newton, tape = self.newton, self.newton.tape
        externals = torch.zeros(count, tape.cells - self._first, dtype=torch.float64, device=self.device)
        example = self._example.expand(count, *self._example.shape)
        for cell, graph, size in self._outside:
            value = each(graph, example, params).reshape(count, size)
            externals[:, cell - self._first : cell - self._first + size] = value
        u = torch.zeros(count, tape.unknowns, dtype=torch.float64, device=self.device)
        at, pinned, constants = Fields(u, u, externals), None, None
        if newton.pinning:
            self._levels[0].substitute(self._held, at)
            pinned = u[:, self._levels[0].unknowns]
        if newton.steady and self._affine is not None:
            constants = self._affine.known.evaluate(self._held, at)
        found = _Known(dict(given), _versions(given), stream, count, params, externals, pinned, constants)
        self._known = found
        return found

    def _run(
        self, given: Tensor, params: Params, stopping: Stopping, warm: WarmThere | None, limit: int, again: bool = False
    ) -> _Run:  # fmt: skip
        """Substitute, march, solve affine parts, iterate: see Newton._solve_piece."""
        newton, held, count = self.newton, self._held, len(given)
        known = self._from_params(params, count)
        flat = given.detach().reshape(count, newton.laws.unknowns)
        start = self._coordinates.enter(held, flat, newton.tape.unknowns)
        u, multiplier = start.clone(), None
        if warm is not None:
            usable = warm.usable[:, None]
            u[:, self._moving] = torch.where(usable, warm.place, u[:, self._moving])
            multiplier = torch.where(usable, warm.multipliers, 0.0)
        at = Fields(start, u, known.externals)
        for number, level in enumerate(self._levels):
            if number == 0 and known.pinned is not None:
                u[:, level.unknowns] = known.pinned
            else:
                level.substitute(held, at)
        multipliers = torch.zeros(count, newton.laws.rows, dtype=torch.float64, device=self.device)
        status = torch.full((count,), _CONVERGED, dtype=torch.int64, device=self.device)
        iterations, second = torch.ones_like(status), torch.full_like(status, HOLDS)
        walk = None
        if self._march is not None:
            walk = self._march.walk(held, at, stopping, limit)
            status, iterations = torch.where(walk.ended == 0, status, _STALLED), walk.used
        if len(self._clipped):
            self._clip(u, self._clipped, None)
        if self._affine is not None:
            constants = self._affine.known.evaluate(held, at) if known.constants is None else known.constants
            self._affine.solve(held, at, constants, multipliers)
        for part in self._parts:
            ended = part.solve(held, at, multipliers, multiplier, stopping, limit, BESIDE, again)
            # Any failure is looked at again by the CPU, which says which one it is.
            status = torch.where(status == _CONVERGED, ended.status, status)
            iterations = torch.maximum(iterations, ended.iterations)
            second = torch.minimum(second, ended.second)
        if len(self._bounded):  # bounds hold even where iterations end early
            self._clip(u, self._bounded, status != _CONVERGED)
        return _Run(at, multipliers, status, iterations, second, walk)

    def _clip(self, u: Tensor, which: Tensor, samples: Tensor | None) -> None:
        """Clip some unknowns to their limits, of some samples or of all. Written: u."""
        inside = u[:, which]
        clipped = torch.minimum(torch.maximum(inside, self._lower[which]), self._upper[which])
        u[:, which] = clipped if samples is None else torch.where(samples[:, None], clipped, inside)

    def _certify(self, run: _Run) -> Tensor:
        """Find all other multipliers, last first; return the stationarity: see Newton._certify. Written: run.multipliers."""
        at, multipliers, held = run.at, run.multipliers, self._held
        rest, checked = torch.zeros_like(at.u), self._checked
        rest[:, checked] = at.u[:, checked] - at.start[:, checked]
        for part in self._parts:
            part.pull(held, at, multipliers, rest)
        if self._affine is not None:
            self._affine.known.pull(held, at, multipliers, rest)
        if self._march is not None:
            assert run.walk is not None
            self._march.determine(held, at, run.walk, multipliers, rest)
        for level in reversed(self._levels):
            level.determine(held, at, multipliers, rest)
        if len(self._groups):
            first = self._groups.first
            rest[:, first::2] = rest[:, first::2].abs() + rest[:, first + 1 :: 2].abs()
        self._coordinates.rotate_back(held, rest)
        left = rest[:, checked]
        if self.newton.limits.bounded.any():
            u = at.u[:, checked]
            left = torch.where((u >= self._upper[checked]) & (left < 0.0), 0.0, left)
            left = torch.where((u <= self._lower[checked]) & (left > 0.0), 0.0, left)
        return torch.cat([left, left.new_zeros(len(left), 1)], dim=1).abs().amax(dim=1)

    def _off(self, residual: Tensor, multipliers: Tensor) -> Tensor:
        """Return how far multipliers of inequalities have the wrong sign, or are not complementary, per sample."""
        if not len(self._inequality):
            return residual.new_zeros(len(residual))
        sign, room = multipliers[:, self._inequality], (-residual[:, self._inequality]).clamp(min=0.0)
        return torch.maximum(-sign, sign.abs() * room).amax(dim=1).clamp(min=0.0)


def _versions(given: Params) -> tuple[int, ...]:
    return tuple(0 if value.is_inference() else value._version for value in given.values())
