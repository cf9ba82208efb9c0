"""A second attempt on a device, on lanes that Newton's first one leaves open: as solve.attempts.order, as launches of entries.

It is the one that the CPU would make first. All lanes are launched, as nothing waits to learn how many need it; the others end at
once. What follows on the CPU (exact programs, proofs, kinks) stays there. Must not import project.device_parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.device.held import ROOM, Held
from snapfm.device.structures import Place
from snapfm.errors import Status
from snapfm.kernels import layout
from snapfm.solve.attempts.order import Attempt, brief_barrier, order, penalized, restored
from snapfm.solve.attempts.settings import (
    ALL,
    BARRIER,
    BRIEF,
    ENDLESS,
    FEW,
    FIRM,
    LOOSE,
    MANY,
    NEWTON,
    OPEN,
    ORDINARY,
    PATIENCE,
    PENALIZED,
    PENALTIES,
    SCATTERED,
    SETTLED,
)
from snapfm.solve.budget import Stopping
from snapfm.solve.system import Part
from snapfm.solve.tiles import most

_CONVERGED = int(Status.CONVERGED)


@dataclass(frozen=True)
class Lanes:
    """The memory of lanes on a device, and how entries are started on them."""

    held: Held
    system: Place  # descriptor of the entries of iterations
    space: Tensor  # (lanes, numbers kept)
    at: tuple[int, ...]  # where sections begin
    width: int  # threads of a team

    def section(self, number: int) -> Tensor:
        """View a section: (lanes, numbers)."""
        return self.space[:, self.at[number] : self.at[number + 1]]

    def run(self, entry: str, settings: tuple[float, ...], limit: int, left: Tensor | None) -> Tensor:
        """Iterate, on lanes with iterations left if that is given; return status, iterations and curvature: (3, lanes)."""
        ended = torch.zeros(3, len(self.space), dtype=torch.int64, device=self.space.device)
        told = ended if entry == "newton" else ended[:2]
        self.held.run(
            entry, self.system, len(self.space), *settings, limit, 0 if left is None else left, self.space, ROOM, *told,
            width=self.width, room=self.at[-1],
        )  # fmt: skip
        return ended


class SecondAttempt:
    """Prepared for a part; `prompt`: it takes a few launches, which steps of a flow can afford, too."""

    def __init__(self, attempt: Attempt, inequalities: bool) -> None:
        self.prompt, self._inequalities = attempt is brief_barrier, inequalities
        self._attempt = attempt

    @classmethod
    def of(cls, part: Part) -> SecondAttempt | None:
        """Return the attempt that a part has on a device; None if the CPU makes it."""
        first = order(part)[0]
        if part.kinks is not None or first not in (brief_barrier, penalized, restored):
            return None
        return cls(first, part.inequalities)

    def __call__(self, lanes: Lanes, begin: Tensor, ended: Tensor, stopping: Stopping, limit: int) -> Tensor:
        """Try lanes again from `begin`; return how all ended (3, lanes). Written: lanes, where that converged."""
        x, lam = lanes.section(layout.X), lanes.section(layout.MULTIPLIER)
        status, iterations, second = ended
        failed = torch.stack([status == one for one in OPEN]).any(dim=0) & (iterations < limit)
        left = torch.where(failed, limit - iterations, -1)
        before = x.clone(), lam.clone()
        x.copy_(torch.where(failed[:, None], begin, x))
        lam.masked_fill_(failed[:, None], 0.0)
        then = self._tried(lanes, left, stopping, limit)
        better = failed & (then[0] == _CONVERGED)
        for now, old in zip((x, lam), before):
            now.copy_(torch.where((failed & ~better)[:, None], old, now))
        return torch.stack(
            [
                torch.where(better, _CONVERGED, status),
                iterations + then[1],
                torch.where(better, then[2], second),
            ]
        )

    def _tried(self, lanes: Lanes, left: Tensor, stopping: Stopping, limit: int) -> Tensor:
        if self._attempt is brief_barrier:
            settings = layout.Settings(*stopping, ORDINARY, FEW, 0, PATIENCE)
            return _barrier(lanes, left, settings, most(BRIEF, limit), most(SETTLED, limit))
        if self._attempt is penalized:
            return _penalized(lanes, left, stopping, limit)
        return self._restored(lanes, left, stopping, limit)

    def _restored(self, lanes: Lanes, left: Tensor, stopping: Stopping, limit: int) -> Tensor:
        """Minimize the violation; go on from feasible points. The others stay open, for the CPU to look for a proof."""
        found = lanes.run("restore", (stopping.tolerance,), most(BARRIER, limit), left)
        rest = torch.where((left >= 0) & (found[0] == _CONVERGED), left - found[1], -1)
        settings = layout.Settings(*stopping, ALL, MANY, 0, ENDLESS)
        if self._inequalities:
            then = _barrier(lanes, rest, settings, most(BARRIER, limit), most(NEWTON, limit))
        else:
            then = lanes.run("newton", settings, most(NEWTON, limit), rest)
        status = torch.where(found[0] == _CONVERGED, then[0], found[0])
        return torch.stack([status, found[1] + then[1], then[2]])


def _barrier(lanes: Lanes, left: Tensor, settings: layout.Settings, limit: int, settled: int) -> Tensor:
    """Follow a barrier until the active set is clear, then run Newton's method from there."""
    inner = lanes.run("interior", (settings.ordinary, FIRM), limit, left)
    then = lanes.run("newton", settings, settled, left - inner[1])
    then[1] += inner[1]
    return then


def _penalized(lanes: Lanes, left: Tensor, stopping: Stopping, limit: int) -> Tensor:
    """Follow the minimum of the distance and a penalty as that grows, then let the rows hold."""
    softness = (lanes.section(layout.REGULARIZATION), lanes.section(layout.BARRIER))
    sizes = lanes.section(layout.ROW_SIZE)
    size = summed(sizes.square())[:, None] / sizes.shape[1]
    used = torch.zeros_like(left)
    for share in PENALTIES:
        for section in softness:
            section.copy_((share * size).expand_as(section))
        settings = layout.Settings(*LOOSE, ORDINARY, MANY, 1, ENDLESS)
        used = used + lanes.run("newton", settings, most(PENALIZED, limit), left - used)[1]
    for section in softness:
        section.zero_()
    settings = layout.Settings(*stopping, ORDINARY, MANY, 1, PATIENCE)
    then = lanes.run("newton", settings, most(SCATTERED, limit), left - used)
    then[1] += used
    return then


def summed(values: Tensor) -> Tensor:
    """Sum over the last axis, halves at a time: in one order whatever the batch, which torch's own sums do not promise."""
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        folded = values[..., :half] + values[..., half : 2 * half]
        values = torch.cat([folded, values[..., 2 * half :]], dim=-1)
    return values[..., 0] if values.shape[-1] else values.new_zeros(values.shape[:-1])
