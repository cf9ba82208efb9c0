"""Adapter: a model in front of the sampler, called as velocity(u, tau), whatever it was before.

Adapters are put around each other; what the sampler asks of a velocity besides its value (path, shape, noise, the rows that
belong to a sample) is passed on from the inside out. Imports the path of sampling and errors, no other library.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from snapfm.errors import ParamsError, SettingError, ShapeError
from snapfm.project.checks import is_real
from snapfm.sampling.path import STRAIGHT, Path

Model = Callable[..., Any]


class Adapter(nn.Module):
    """A velocity made of a model. Weights, where the model has any, stay its own: device and dtype are found there."""

    model: Model
    name = "Adapter"  # what a caller wrote, for messages

    def __init__(self, model: Model, path: Path | None = None) -> None:
        super().__init__()
        if not callable(model) or isinstance(model, type):
            came = model.__name__ if isinstance(model, type) else type(model).__name__
            raise SettingError(
                f"{self.name}(model) expects a model to call; got {came}. Pass the trained network itself, or a function."
            )
        self.model = model
        self._path = path

    @property
    def path(self) -> Path:
        """How noise and data are mixed: given here, or by what is inside, else the straight path."""
        inside = getattr(self.model, "path", None)
        return self._path or (inside if isinstance(inside, Path) else STRAIGHT)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of one field, where what is inside knows it."""
        inside = getattr(self.model, "shape", None)
        return self._outside(tuple(inside)) if isinstance(inside, (tuple, list)) else None

    def noise_from(self, white: Tensor) -> Tensor:
        """Turn white noise (b, *shape) into the noise the flow starts from."""
        inside = getattr(self.model, "noise_from", None)
        return white if inside is None else inside(white)

    def of_samples(self, first: int, count: int) -> Self:
        """Give the velocity of samples first .. first + count − 1; weights are shared, not copied."""
        inside = getattr(self.model, "of_samples", None)
        chosen = self.model if inside is None else inside(first, count)
        return self if chosen is self.model else self._around(chosen)

    def _outside(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Say which fields come in where fields of `shape` go to the model."""
        return shape

    def _around(self, model: Model) -> Self:
        """Copy this adapter around another model."""
        twin = copy.copy(self)
        twin._modules = dict(self._modules)  # copy.copy shares it, and the twin's model would replace this one's
        twin.model = model
        return twin


def times_of(tau: Any, u: Tensor) -> Tensor:
    """Give flow time in the dtype of the fields, () for one number or (b,) for one per sample; refuse anything else."""
    if isinstance(tau, (int, float)):
        return torch.tensor(float(tau), dtype=u.dtype, device=u.device)
    if isinstance(tau, Tensor) and (tau.ndim == 0 or tuple(tau.shape) in {(1,), (len(u),)}):
        return tau.to(u) if tau.numel() == len(u) and tau.ndim else tau.reshape(()).to(u)
    came = f"a tensor of shape {tuple(tau.shape)}" if isinstance(tau, Tensor) else type(tau).__name__
    raise ShapeError(
        f"velocity(u, tau) expects tau as a number or of shape ({len(u)},); got {came}. Give one flow time, or one per sample."
    )


def along(values: Tensor, like: Tensor) -> Tensor:
    """Shape one value per sample, or one for all, so that it multiplies fields."""
    return values if values.ndim == 0 else values.view(-1, *[1] * (like.ndim - 1))


def fields_back(answer: Any, sent: Tensor, call: str) -> Tensor:
    """Refuse an answer of another shape than the fields sent: it would broadcast, or be cut without a word."""
    if not isinstance(answer, Tensor) or answer.shape != sent.shape:
        came = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
        raise ShapeError(
            f"{call} expects fields {tuple(sent.shape)} back from the model; got {came}. Choose the adapter that fits its "
            "inputs, or return one tensor of the shape of its input."
        )
    return answer


def check_path(path: Path, call: str) -> Path:
    """Accept a path that starts at noise, moves from the start, ends at data, and has the slopes of its values."""
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
    if not turn_at(path, 0.0) > 0.0:
        raise ParamsError(
            f"{call} expects a path that leaves the noise at once; got data_slope(0) = {path.data_slope(0.0):g}. Its velocity at "
            "τ = 0 says nothing about data: start the path a little later, τ' = τ₀ + (1 − τ₀)τ."
        )
    return path


def _at_middle(schedule: Callable[[float], Any]) -> Any:
    """Give the value of a schedule half way, or what it raises."""
    try:
        value = schedule(0.5)
    except Exception as cause:  # the schedule is the caller's: it may raise anything
        return cause
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value


def turn_at(path: Path, tau: float) -> float:
    """Give α'σ − ασ', which is zero where the velocity does not tell data from noise."""
    return path.data_slope(tau) * path.noise(tau) - path.data(tau) * path.noise_slope(tau)


_ROUNDING = 1e-6
_LEFT_OVER = 0.1  # noise levels of diffusion models stop short of pure noise, σ(0) ≈ 0.998; beyond this it would show
_PROBES = (0.31, 0.73)
_STEP = 1e-5
_SLOPE_SLACK = 1e-2  # a wrong formula misses by far more, a forward difference by about a step
