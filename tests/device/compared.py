"""Whole projections on the emulated device against the CPU: same status and iterations, same fields, same bits in any order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from tests.device.emulated.machine import CHECKED, UNCHECKED, Order
from tests.device.launches import Device
from tests.device.step import Projected, Step
from torch import Tensor

import snapfm
from snapfm.linear import Lanes
from snapfm.solve.budget import Budget, certified, enough
from snapfm.solve.newton import Newton

LIMIT, SECONDS = 30, 600.0  # iterations: Newton's first attempt has no more, and those that fail take all of them
CLOSE = 1e-10


@dataclass(frozen=True)
class Compared:
    """How two projections of a batch differ; `faults` are races and stray accesses, `same_bits` is over orders of threads."""

    status: tuple[int, ...]  # on the CPU
    same_status: bool
    same_iterations: bool
    apart: float  # largest difference of fields, relative where they are large, of samples that converged
    same_bits: bool
    faults: tuple[str, ...]
    entries: frozenset[str]

    @property
    def agrees(self) -> bool:
        """Whether the device did what the CPU did."""
        return self.same_status and self.same_iterations and self.apart <= CLOSE and self.same_bits and not self.faults


@dataclass(frozen=True)
class Given:
    """Laws prepared for kernels alone, one try a sample, with a batch."""

    project: snapfm.Projector
    u_hat: Tensor
    params: dict[str, Tensor]

    @classmethod
    def of(cls, laws, u_hat: Tensor, params: dict[str, Tensor], tolerance: float = 1e-8) -> Given | None:
        """Prepare; None where laws or factors are not those of kernels."""
        example = {name: value[:1] for name, value in params.items()}
        project = snapfm.Projector(laws, u_hat.shape[1:], example, tolerance, linear=Lanes())
        method = project.method
        if not isinstance(method, Newton) or method.opaque or not all(part.kkt.fused for part in method.parts):
            return None
        if any(solver.structure is None for solver in method.marching.solvers):
            return None
        method.retry = False
        return cls(project, u_hat, params)

    def on_cpu(self, certify: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return fields, status and iterations."""
        project, method = self.project, self.project.method
        count, tolerance = len(self.u_hat), project.tolerance
        inside, budget = project.inside_params(self.params, count), Budget.of(LIMIT, SECONDS)
        with torch.no_grad(), np.errstate(all="ignore"):
            out = method._outcome(np.empty((count, method.laws.unknowns)))
            field = self.u_hat.reshape(count, -1).numpy().astype(np.float64)
            stopping = certified(tolerance) if certify else enough(tolerance)
            method._run(field, inside, stopping, None, out, budget, certify)
        return out.u, out.status.astype(np.int64), out.iterations

    def on_device(self, certify: bool, device: Device) -> Projected:
        """Launch everything."""
        project, method = self.project, self.project.method
        count, tolerance = len(self.u_hat), project.tolerance
        field = self.u_hat.reshape(count, -1).numpy().astype(np.float64)
        stopping = certified(tolerance) if certify else enough(tolerance)
        with torch.no_grad(), np.errstate(all="ignore"):
            inside = project.inside_params(self.params, count)
            return Step(method, inside, field, stopping, LIMIT, device).project(certify)

    def compared(self, certify: bool = False) -> Compared:
        """Project on both, on the device in three orders of threads."""
        u, status, iterations = self.on_cpu(certify)
        devices = [
            Device(Order.ASCENDING, CHECKED),
            Device(Order.DESCENDING, UNCHECKED),
            Device(Order.RANDOM, UNCHECKED),
        ]
        first, *others = (self.on_device(certify, device) for device in devices)
        done = status == snapfm.Status.CONVERGED
        apart = np.abs(first.u - u)[done] / np.maximum(np.abs(u[done]), 1.0)
        bits = [_bits(first), *map(_bits, others)]
        return Compared(
            tuple(status.tolist()), np.array_equal(first.status, status), np.array_equal(first.iterations, iterations),
            float(apart.max(initial=0.0)), all(one == bits[0] for one in bits), tuple(devices[0].faults),
            frozenset(entry for entry, _ in devices[0].reports),
        )  # fmt: skip


def _bits(one: Projected) -> bytes:
    return b"".join(array.tobytes() for array in (one.u, one.status, one.iterations, one.multipliers))
