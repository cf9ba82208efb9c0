"""Certificates of a device: which samples it leaves open, and how answers of the CPU take their places.

The judge's rules, on numbers that are read from the device at once. A sample that meets them has converged. Every other is open:
the CPU projects it, and its judge says how it ended. Must not import project.projector.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index, Mask
from snapfm.compile import LawStack
from snapfm.device.launch import Machine
from snapfm.errors import Status
from snapfm.project.judge import STEEP, Judgement
from snapfm.project.on_device import SolvedThere
from snapfm.solve.attempts.settings import OPEN
from snapfm.solve.base import PER_SAMPLE, Projection, WarmThere
from snapfm.solve.budget import stationary


@dataclass(frozen=True)
class Open:
    """Samples that a device has not brought to an end: their numbers, iterations, and whether another attempt may help."""

    index: Index
    iterations: Index
    unfinished: Mask

    def after(self, still: Open) -> Open:
        """Return what is open after another attempt on the unfinished ones, of which those of `still` remain so."""
        again, others = np.flatnonzero(self.unfinished)[still.index], ~self.unfinished
        return Open(
            np.concatenate([self.index[others], self.index[again]]),
            np.concatenate([self.iterations[others], self.iterations[again] + still.iterations]),
            np.concatenate([self.unfinished[others], still.unfinished]),
        )


def open_samples(machine: Machine, solved: SolvedThere, violation: Tensor, u_hat: Tensor, tolerance: float) -> Open:
    """Return the samples that have not converged on a device: judge.verdict, but for rules that only the CPU can apply."""
    steepest = torch.cat([solved.multipliers, solved.multipliers.new_zeros(len(u_hat), 1)], dim=1).abs().amax(dim=1)
    flat = torch.cat([u_hat.flatten(1).double(), solved.u.new_zeros(len(u_hat), 1)], dim=1)
    told = machine.read(
        torch.stack(
            [
                violation,
                solved.stationarity,
                solved.distance,
                solved.second_order.double(),
                steepest,
                flat.abs().amax(dim=1),
                solved.iterations.double(),
                solved.status.double(),
            ]
        )
    )
    broken, stationarity, distance, second, slope, size, iterations, status = told
    met = (broken <= tolerance) & (stationarity <= stationary(size)) & (second != 0) & np.isfinite(distance)
    found: Index = np.flatnonzero(~(met & (slope <= STEEP)))
    return Open(found, iterations[found].astype(np.int64), np.isin(status[found], OPEN))


def projection_of(
    laws: LawStack, solved: SolvedThere, answer: Tensor, judged: Judgement, rounding: Tensor, tolerance: float
) -> Projection:
    """Return the result of a batch whose samples all converged."""
    return Projection(
        u=answer,
        status=torch.full_like(solved.status, int(Status.CONVERGED), dtype=torch.int8),
        violation=judged.violation,
        stationarity=solved.stationarity,
        iterations=solved.iterations,
        distance=solved.distance,
        multipliers={name: solved.multipliers[:, rows] for name, rows in laws.slices().items()},
        by_law=judged.by_law,
        tolerance=tolerance,
        rounding=rounding,
        second_order=solved.second_order.to(torch.int8),
        generalized=torch.zeros_like(solved.status, dtype=torch.bool),
        warm=solved.warm,
    )


def with_samples(whole: Projection, index: Tensor, some: Projection) -> Projection:
    """Put samples of another projection in the places `index` (k,) of a whole one; a warm start begins anew there."""

    def put(one: Tensor, two: Tensor) -> Tensor:
        return one.index_copy(0, index, two.to(one.dtype))

    def put_all(one: dict[str, Tensor], two: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: put(value, two[name]) for name, value in one.items()}

    placed: dict[str, Any] = {name: put(getattr(whole, name), getattr(some, name)) for name in PER_SAMPLE}
    # What the device did before counts: its iterations came first.
    placed["iterations"] = whole.iterations.index_add(0, index, some.iterations)
    warm = whole.warm
    if isinstance(warm, WarmThere):
        warm = replace(warm, usable=warm.usable.index_fill(0, index, False))
    return replace(
        whole, **placed, warm=warm, multipliers=put_all(whole.multipliers, some.multipliers),
        by_law=put_all(whole.by_law, some.by_law),
    )  # fmt: skip
