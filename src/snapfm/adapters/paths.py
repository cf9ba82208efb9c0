"""Paths of diffusion models, as functions of flow time: 0 is noise, 1 is data (math.md, eq. affine-path).

Diffusion time runs the other way and often stops short of both ends. Here it is reversed and extended to the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.errors import ParamsError, SettingError
from snapfm.laws.checks import is_real, shown
from snapfm.sampling.path import Path, Schedule

# The noise of variance-preserving paths ends like √(1 − τ), with an infinite slope at τ = 1. Slopes, and predictions that are
# divided by σ, are evaluated no later than here. Exact for up to 1000 flow steps.
LAST = 1.0 - 1e-3
_SNAP = 1e-9  # flow times are quotients: rounding must not select another interval
_HALVINGS = 40
_ROUNDING = 1e-6
_LEFT_OVER = 0.1  # diffusion models stop short of pure noise, σ(0) ≈ 0.998; a larger gap would be visible
_PROBES = (0.31, 0.73)
_STEP = 1e-5
_SLOPE_SLACK = 1e-2  # a wrong formula is off by far more, a forward difference by about a step


def variance_preserving(beta_min: float = 0.1, beta_max: float = 20.0) -> Path:
    """Return the path of a continuous diffusion with noise rate β rising linearly, α² + σ² = 1.

    If the model was trained with time 1 at noise, pass clock=lambda tau: 1 - tau.
    """
    if not (is_real(beta_min) and is_real(beta_max) and 0.0 < beta_min <= beta_max < math.inf):
        raise ParamsError(
            f"variance_preserving(beta_min, beta_max) expects 0 < beta_min <= beta_max; got {beta_min!r} and {beta_max!r}. "
            "0.1 and 20 are usual."
        )

    def spent(tau: float) -> float:  # ∫β from data to τ
        late = 1.0 - tau
        return 0.5 * late * late * (beta_max - beta_min) + late * beta_min

    def rate(tau: float) -> float:  # its slope in τ
        return -(1.0 - tau) * (beta_max - beta_min) - beta_min

    def data(tau: float) -> float:
        return math.exp(-0.5 * spent(tau))

    def noise(tau: float) -> float:
        return math.sqrt(-math.expm1(-spent(tau)))  # 1 − exp(−s) without losing small s

    def data_slope(tau: float) -> float:
        return -0.5 * rate(tau) * data(tau)

    def noise_slope(tau: float) -> float:
        tau = min(tau, LAST)
        return 0.5 * rate(tau) * math.exp(-spent(tau)) / noise(tau)

    return Path(data, noise, data_slope, noise_slope)


@dataclass(frozen=True)
class Timesteps:
    """Noise levels of a diffusion model with integer timesteps: `levels[i]` is ᾱ at timestep i, falling from data to noise.

    Flow time 0 is the last timestep; each timestep takes 1/T of flow time, and one more leads from timestep 0 to clean
    data. `sample(steps=…)` with a divisor of T visits timesteps only; at other times the model is called at the nearest one.
    """

    levels: Sequence[float] | Tensor
    path: Path = field(init=False, repr=False)

    def __post_init__(self) -> None:
        row = _row(self.levels)
        values = [] if row is None else row.tolist()
        if not values or not _falling([1.0, *values, 0.0]):
            few = f"{values[:3]} … {values[-1:]}" if len(values) > 4 else str(values)
            raise ParamsError(
                "Timesteps(levels) expects alphas_cumprod, numbers that fall from below 1 at data to above 0 at noise; got "
                f"{shown(self.levels) if row is None else few}. From betas: Timesteps.of_betas(betas)."
            )
        object.__setattr__(self, "levels", tuple(values))
        object.__setattr__(self, "path", Path(self._data, self._noise, self._data_slope, self._noise_slope))

    @classmethod
    def of_betas(cls, betas: Sequence[float] | Tensor) -> Timesteps:
        """Compute the levels of a diffusion from its betas."""
        values = _row(betas)
        if values is None or not len(values) or not bool(((values > 0) & (values < 1)).all()):
            came = shown(betas)
            if values is not None:
                spread = f"{float(values.min()):g} to {float(values.max()):g}" if len(values) else "none"
                came = f"shape {tuple(values.shape)}, {spread}"
            raise ParamsError(
                f"Timesteps.of_betas(betas) expects a row of numbers between 0 and 1; got {came}. Pass the betas the model was "
                "trained with."
            )
        return cls(torch.cumprod(1.0 - values, dim=0))

    def index(self, tau: float) -> int:
        """Return the timestep nearest to flow time tau: the clock of the model."""
        last = len(self.levels) - 1
        return min(max(round((last + 1) * (1.0 - tau) - 1.0), 0), last)

    # ᾱ is interpolated linearly between timesteps, with 1 one step before timestep 0.

    def _data(self, tau: float) -> float:
        return math.sqrt(self._level(tau)[0])

    def _noise(self, tau: float) -> float:
        return math.sqrt(1.0 - self._level(tau)[0])

    def _data_slope(self, tau: float) -> float:
        level, slope = self._level(tau)
        return 0.5 * slope / math.sqrt(level)

    def _noise_slope(self, tau: float) -> float:
        level, slope = self._level(min(tau, LAST))
        return -0.5 * slope / math.sqrt(1.0 - level)

    def _level(self, tau: float) -> tuple[float, float]:
        """Return ᾱ and its slope towards data, at flow time tau."""
        nodes = (1.0, *self.levels)  # node j is timestep j − 1, at flow time 1 − j / T
        count = len(self.levels)
        place = (1.0 - tau) * count
        noisier = min(max(math.ceil(place - _SNAP), 1), count)  # the interval from this node towards the data
        rise = nodes[noisier - 1] - nodes[noisier]
        share = min(max(noisier - place, 0.0), 1.0)
        level = nodes[noisier] + share * rise if share < 1.0 else nodes[noisier - 1]
        return level, rise * count


def first_time(data: Schedule, level: float) -> float:
    """Find the flow time at which α has risen to `level`; 0 if it starts there or above."""
    low, high = 0.0, 1.0
    if data(low) >= level:
        return low
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if data(middle) >= level else (middle, high)
    return high


def _row(values: Any) -> Tensor | None:
    """Return a row of real numbers in float64, None for anything else."""
    try:
        found = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except (TypeError, ValueError, RuntimeError):  # lists of unequal length
        return None
    return torch.from_numpy(found.astype(np.float64)) if found.ndim == 1 and found.dtype.kind in "iuf" else None


def _falling(values: list[float]) -> bool:
    return all(math.isfinite(v) for v in values) and all(a > b for a, b in pairwise(values))


def check_path(path: Path, call: str) -> Path:
    """Accept a path that starts at noise, moves from the start, ends at data, and has consistent slopes."""
    if isinstance(getattr(path, "path", None), Path):
        kind = type(path).__name__
        raise SettingError(f"{call} expects a snapfm.sampling.Path; got {kind}. Pass its path: {kind}(…).path.")
    if not isinstance(path, Path):
        raise SettingError(
            f"{call} expects a snapfm.sampling.Path; got {type(path).__name__}. Build one from α, σ and their slopes, or with "
            "adapters.variance_preserving, Timesteps, scheduler_path or matcher_path."
        )
    for name, schedule in vars(path).items():
        if not is_real(found := _at_middle(schedule)):
            raise SettingError(
                f"{call} expects path.{name} to give a number for a flow time; got {found!r} at τ = 0.5. Return a "
                "float."
            )
    for name, value, wanted, slack in (
        ("data(1)", path.data(1.0), 1.0, _ROUNDING),
        ("noise(1)", path.noise(1.0), 0.0, _ROUNDING),
        ("noise(0)", path.noise(0.0), 1.0, _LEFT_OVER),
    ):
        if not abs(value - wanted) <= slack:
            raise ParamsError(
                f"{call} expects a path from white noise to data; got {name} = {value:g}, not {wanted:g}. Sampling starts from "
                "noise of variance one: scale the path to it."
            )
    for name, value_at, slope_at in (("data", path.data, path.data_slope), ("noise", path.noise, path.noise_slope)):
        for tau in _PROBES:
            slope, rise = slope_at(tau), (value_at(tau + _STEP) - value_at(tau)) / _STEP
            if not abs(slope - rise) <= _SLOPE_SLACK * (1.0 + abs(rise)):
                raise ParamsError(
                    f"{call} expects path.{name}_slope to be the slope of path.{name}; got {slope:g} at τ = {tau}, where "
                    f"{name} rises by {rise:g}. Differentiate it again."
                )
    if not path.determinant(0.0) > 0.0:
        raise ParamsError(
            f"{call} expects a path that leaves the noise at once; got data_slope(0) = {path.data_slope(0.0):g}. Its velocity at "
            "τ = 0 says nothing about data: start the path a little later, τ' = τ₀ + (1 − τ₀)τ."
        )
    return path


def _at_middle(schedule: Callable[[float], Any]) -> Any:
    """Return the value of a schedule at τ = 0.5, or what it raises."""
    try:
        value = schedule(0.5)
    except Exception as cause:  # the schedule is the caller's: it may raise anything
        return cause
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
