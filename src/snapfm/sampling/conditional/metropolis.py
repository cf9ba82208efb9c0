"""Metropolis steps on the surface of fields that obey equalities, for the density N(d, Σ) in a chosen measure.

Zappa, Holmes-Cerfon and Goodman, "Monte Carlo on manifolds" (2018): move along the tangent space, return to the surface along the
normals of where the move began, and accept by the ratio of densities if the way back leads to the start. All of it in the
metric Σ⁻¹, in which N(d, Σ) is round (math.md, eq. metropolis). Inequalities and bounds reject.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import lu_factor, lu_solve
from torch import Tensor

from snapfm.arrays import Mask, Values
from snapfm.project.linearized import TangentFrame
from snapfm.project.metric import Metric
from snapfm.sampling.conditional.conditioning import Conditioning, perturbed

_RETURNS = 12  # iterations back to the surface; a move that needs more is rejected
_NEAR = 1e-6  # relative distance within which the way back has led to the start
_FEW = 4  # rows up to which normals are kept as dense matrices: a few times the memory of the fields
# Moves take turns in length, which leaves the density as it is: where the surface bends sharply, long ones miss it.
_LENGTHS = (1.0, 0.25)
_LENGTH = 1.7  # of a move relative to 1/√dimensions: near the best of random walks, capped at one standard deviation


class Chain:
    """Steps for all samples of a run. `measure` is "surface" or "residual"."""

    def __init__(self, near: Conditioning, measure: str) -> None:
        self.near, self.measure = near, measure

    def run(
        self, start: Tensor, center: Tensor, metrics: Sequence[Metric], streams: tuple[torch.Generator, ...], steps: int
    ) -> Tensor:
        """Take steps from fields (b, *shape) on the surface, each in its metric; a sample whose move is rejected stays."""
        shape = start.shape
        x, middle = start.double().flatten(1).numpy(), center.double().cpu().flatten(1).numpy()
        measured = _norms(metrics, x.shape[1])
        normals = self._normals(x, metrics)
        free = max(1, x.shape[1] - len(self.near.near.system.rows))
        longest = min(1.0, _LENGTH / math.sqrt(free))
        for turn in range(steps):
            length = longest * _LENGTHS[turn % len(_LENGTHS)]
            drawn, chance = _draws(streams, shape[1:], metrics)
            move = length * normals.tangent(drawn)
            there, found = self._land(normals, x + move)
            there[~found] = x[~found]  # where the density is known; rejected below
            found &= self.near.obeys(there)
            ahead = self._normals(there, metrics)
            back = ahead.tangent(x - there)
            again, returned = self._land(ahead, there + back)
            size = np.abs(x).max(axis=1, initial=0.0)
            found &= returned & (np.abs(again - x).max(axis=1, initial=0.0) <= _NEAR * np.maximum(1.0, size))
            gain = 0.5 * (measured(x - middle) - measured(there - middle))
            gain += 0.5 * (measured(move) - measured(back)) / length**2
            gain += ahead.volume - normals.volume
            taken = found & (np.log(chance) <= gain)
            x = np.where(taken[:, None], there, x)
            normals = normals.replaced(ahead, taken)
        return torch.from_numpy(x).view(shape)

    def _normals(self, x: Values, metrics: Sequence[Metric]) -> _Normals:
        frames = self.near.near.frames(x, self.near.inside)
        return _Normals.of(frames, metrics, self.measure)

    def _land(self, normals: _Normals, x: Values) -> tuple[Values, Mask]:
        """Return to the surface along the normals; mark the samples that arrive."""
        at, tolerance = x.copy(), self.near.laws.strictest
        last = np.full(len(x), np.inf)
        for _ in range(_RETURNS):
            rest = self.near.residuals(at)
            off = np.abs(rest).max(axis=1, initial=0.0)
            going = (off > tolerance) & (off < last)  # a residual that grows has missed the surface
            if not going.any():
                break
            last = np.where(going, off, -np.inf)
            at[going] += normals.correction(rest, going)[going]
        arrived = np.abs(self.near.residuals(at)).max(axis=1, initial=0.0) <= tolerance
        return np.where(arrived[:, None], at, x), arrived


@dataclass(frozen=True)
class _Normals:
    """The directions along which samples return to the surface, from the frames at their fields.

    With few rows they are kept as dense matrices, so that a whole batch moves at once; their bits are those of each sample.
    """

    frames: list[TangentFrame]
    metrics: Sequence[Metric]
    volume: Values  # (b,) logarithm of the density's factor relative to the surface measure of the metric
    normal: Values | None  # (b, n, m) what a unit of each residual adds to the field
    jacobian: Values | None  # (b, m, n)

    @classmethod
    def of(cls, frames: list[TangentFrame], metrics: Sequence[Metric], measure: str) -> _Normals:
        factor = [-0.5 * frame.log_volume(metric) for frame, metric in zip(frames, metrics)]
        if measure == "surface":
            factor = [one + 0.5 * frame.log_volume() for one, frame in zip(factor, frames)]
        volume = np.asarray(factor)
        if not frames or not 0 < len(frames[0].active) <= _FEW:
            return cls(frames, metrics, volume, None, None)
        normal = np.stack([_normal(frame, metric) for frame, metric in zip(frames, metrics)])
        return cls(frames, metrics, volume, normal, np.stack([frame.jacobian.toarray() for frame in frames]))

    def correction(self, rest: Values, which: Mask) -> Values:
        """Return what removes the linearized residuals (b, m) of some samples; zeros for the others."""
        if self.normal is not None:
            return np.where(which[:, None], (self.normal @ rest[:, :, None])[:, :, 0], 0.0)
        found = np.zeros((len(rest), len(self.frames[0].relative)))
        for i in np.flatnonzero(which).tolist():
            found[i] = self.frames[i].move(rest[i], self.metrics[i])
        return found

    def tangent(self, fields: Values) -> Values:
        """Remove from each field (b, n) what is normal to the surface in the metric."""
        if self.jacobian is not None:
            rest = (self.jacobian @ fields[:, :, None])[:, :, 0]
        else:
            rest = np.stack([frame.jacobian @ one for frame, one in zip(self.frames, fields)])
        return fields + self.correction(rest, np.ones(len(fields), bool))

    def replaced(self, other: _Normals, which: Mask) -> _Normals:
        """Take some samples from another."""

        def pick(old: Values | None, new: Values | None) -> Values | None:
            return None if old is None or new is None else np.where(which[:, None, None], new, old)

        frames = [new if good else old for old, new, good in zip(self.frames, other.frames, which)]
        volume = np.where(which, other.volume, self.volume)
        normal, jacobian = pick(self.normal, other.normal), pick(self.jacobian, other.jacobian)
        return _Normals(frames, self.metrics, volume, normal, jacobian)


def _normal(frame: TangentFrame, metric: Metric) -> Values:
    """Return (n, m): the correction of a unit of each row."""
    return np.stack([frame.move(unit, metric) for unit in np.eye(len(frame.active))], axis=1)


def _draws(streams: tuple[torch.Generator, ...], shape: torch.Size, metrics: Sequence[Metric]) -> tuple[Values, Values]:
    """Draw N(0, Σ), (b, n), and numbers in [0, 1), (b,), each sample from its own stream."""
    white, along, chance = [], [], []
    for stream, metric in zip(streams, metrics):
        white.append(torch.randn(shape, generator=stream, dtype=torch.float64))
        along.append(torch.randn(metric.rank, generator=stream, dtype=torch.float64))
        chance.append(torch.rand((), generator=stream, dtype=torch.float64))
    fields = torch.stack(white)
    drawn = perturbed(torch.zeros_like(fields), metrics, fields, torch.stack(along))
    return drawn.flatten(1).numpy(), torch.stack(chance).numpy()


def _norms(metrics: Sequence[Metric], size: int) -> Callable[[Values], Values]:
    """Return the squared lengths (b,) of fields (b, n), each in its metric, as a function; equal metrics are prepared once."""
    made = {key: _Norm(metric, size) for key, metric in {id(metric): metric for metric in metrics}.items()}
    own = [made[id(metric)] for metric in metrics]
    return lambda fields: np.asarray([norm(field) for norm, field in zip(own, fields)])


class _Norm:
    """Squared length in one metric, Σ⁻¹ with Σ = δD + VVᵀ."""

    def __init__(self, metric: Metric, size: int) -> None:
        self.inverse = 1.0 / (metric.level * metric.relative(size))
        directions = np.zeros((0, size)) if metric.directions is None else metric.directions.double().flatten(1).numpy()
        self.scaled = metric.scaled(directions) if len(directions) else directions
        self.weighted = self.scaled * self.inverse
        self.middle = (
            lu_factor(np.eye(len(self.scaled)) + self.weighted @ self.scaled.T, check_finite=False)
            if len(self.scaled)
            else None
        )

    def __call__(self, field: Values) -> float:
        # Split the field into a part along the directions and the rest: subtracting two large numbers would cost digits.
        amounts = (
            np.zeros(0) if self.middle is None else lu_solve(self.middle, self.weighted @ field, check_finite=False)
        )
        rest = field - amounts @ self.scaled
        return float((rest * rest * self.inverse).sum() + (amounts * amounts).sum())
