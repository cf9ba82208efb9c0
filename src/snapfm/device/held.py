"""Held: structures on a device, and how entries are started on them. Must not import project."""

from __future__ import annotations

from enum import Enum
from typing import Final

import torch
from torch import Tensor

from snapfm.device.launch import WARP, Machine, Teams
from snapfm.device.structures import Place, Structures


class Room(Enum):
    """Stands for the scratch memory of a launch among its arguments."""

    HERE = 0


ROOM: Final = Room.HERE


class Held:
    """Structures, copied to a device once. Never changes, so that calls and threads share it."""

    def __init__(self, machine: Machine, device: torch.device, structures: Structures) -> None:
        self.machine, self.device = machine, device
        self.memory = torch.empty(structures.size, dtype=torch.uint8, device=device)
        self._base = machine.address(self.memory)
        self.memory.copy_(torch.from_numpy(structures.packed(self._base)))

    def run(
        self, entry: str, spec: Place, samples: int, *given: int | float | Tensor | Room, width: int = WARP, room: int = 0
    ) -> None:  # fmt: skip
        """Start an entry, one team a sample, with scratch memory of `room` numbers a team where ROOM stands.

        Tensors, which have to be contiguous, stand for their addresses.
        """
        if not samples:
            return
        teams = Teams.of(samples, width, room)
        scratch = torch.empty(teams.count * room, dtype=torch.float64, device=self.device)
        arguments: list[int | float] = [self._base + spec.offset, samples]
        for one in given:
            held = scratch if one is ROOM else one
            arguments.append(self._address(held) if isinstance(held, Tensor) else held)
        self.machine.launch(entry, teams.blocks, teams.width, teams.height, arguments)

    def _address(self, memory: Tensor) -> int:
        assert memory.is_contiguous()
        return self.machine.address(memory)
