"""Fields that are not on the CPU: whether a method works on their device, or the CPU works for it and says so once.

Must not import project.projector.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch

from snapfm.device.launch import Machine, machine_of
from snapfm.errors import StructureWarning
from snapfm.project.on_device import OnDevice, obstacle
from snapfm.solve.base import Method
from snapfm.solve.newton import Newton


@dataclass(frozen=True)
class Elsewhere:
    """The CPU works for a device. `machine` hides the copies behind the work; None: torch copies."""

    machine: Machine | None
    reason: str


def prepared_for(method: Method, device: torch.device) -> OnDevice | Elsewhere:
    """Prepare a method for a device; where it has no form there, or the device cannot run it, warn and leave it to the CPU."""
    machine, reason = machine_of(device), obstacle(method)
    if machine is not None and reason is None and isinstance(method, Newton):
        return OnDevice(method, machine, device)
    reason = reason or "its kernels are for NVIDIA's devices of compute capability 8.0 and newer, with their driver"
    warnings.warn(
        f"fields on {device} are projected by the CPU: {reason}. Answers are the same; docs/gpu.md lists what runs where.",
        StructureWarning,
        stacklevel=5,
    )
    return Elsewhere(machine, reason)
