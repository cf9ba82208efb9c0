"""Launch entries of the PTX on the emulated device, with numpy arrays for memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tests.device.captured import Call
from tests.device.descriptors import Descriptor
from tests.device.emulated.machine import CHECKED, Order, Report, executable

from snapfm.device.artifact import shipped
from snapfm.kernels import layout

CPU = torch.device("cpu")
TEAM = 32


@dataclass(frozen=True)
class Solved:
    """What an entry made of a Call."""

    memory: np.ndarray
    status: np.ndarray
    iterations: np.ndarray
    second: np.ndarray
    report: Report


def solve(
    call: Call, order: Order = Order.ASCENDING, team: int = TEAM, left_out: Sequence[int] = (), flag: str = CHECKED
) -> Solved:
    """Run the entry `newton` on a call, one team a sample."""
    code, frame, schedule = call.read
    spec = Descriptor(CPU, code, frame, schedule, call.at)
    count, memory = len(call.before), call.before.copy()
    work = np.zeros((count, int(call.at[-1])))
    ended = [np.zeros(count, np.int64) for _ in range(3)]
    given = [
        spec.address, count, *(float(one) for one in call.settings[:4]), *(int(one) for one in call.settings[4:]),
        int(call.limits.max()), memory.ctypes.data, work.ctypes.data, *(one.ctypes.data for one in ended),
    ]  # fmt: skip
    program = executable(shipped().ptx["newton"], flag)
    width, height = (team, 1) if team > 1 else (1, count)
    own = [memory, work, *ended, *spec.arrays]
    report = program.run(count if team > 1 else 1, width, height, given, order, left_out=left_out, memory=own)
    return Solved(memory, *ended, report)


FIELDS = (layout.X, layout.MULTIPLIER)
