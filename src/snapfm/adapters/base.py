"""Adapter: wraps a model so that the sampler can call it as velocity(u, tau).

Adapters can be nested. Each passes on what the sampler reads besides the velocity: path, shape, noise, and the rows of each
sample. Imports the path of sampling and errors, no other library.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from snapfm.errors import SettingError, ShapeError
from snapfm.laws.checks import shown
from snapfm.sampling.path import STRAIGHT, Path, Schedule, along

Model = Callable[..., Any]


class Adapter(nn.Module):
    """A velocity made from a model. Device and dtype are those of the model's weights, if it has any."""

    model: Model
    name = "Adapter"  # as the caller wrote it, for messages

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
        """How noise and data are mixed: the path given here, else that of the inner model, else the straight path."""
        inside = getattr(self.model, "path", None)
        return self._path or (inside if isinstance(inside, Path) else STRAIGHT)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of one field, if the inner model knows it."""
        inside = getattr(self.model, "shape", None)
        return self._outside(tuple(inside)) if isinstance(inside, (tuple, list)) else None

    def noise_from(self, white: Tensor) -> Tensor:
        """Turn white noise (b, *shape) into the noise the flow starts from."""
        inside = getattr(self.model, "noise_from", None)
        return white if inside is None else inside(white)

    def of_samples(self, first: int, count: int) -> Self:
        """Return the velocity of samples first .. first + count − 1; weights are shared, not copied."""
        inside = getattr(self.model, "of_samples", None)
        chosen = self.model if inside is None else inside(first, count)
        return self if chosen is self.model else self._around(chosen)

    def _outside(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of fields outside this adapter, if `shape` is that of the model's."""
        return shape

    def _around(self, model: Model) -> Self:
        """Copy this adapter around another model."""
        copied = copy.copy(self)
        copied._modules = dict(self._modules)  # copy.copy shares it, and the copy's model would replace this one's
        copied.model = model
        return copied


def times_of(tau: Any, u: Tensor) -> Tensor:
    """Return flow time in the dtype of the fields, () for one number or (b,) for one per sample; refuse anything else."""
    if isinstance(tau, (int, float)):
        return torch.tensor(float(tau), dtype=u.dtype, device=u.device)
    if isinstance(tau, Tensor) and (tau.ndim == 0 or tuple(tau.shape) in {(1,), (len(u),)}):
        return tau.to(u) if tau.numel() == len(u) and tau.ndim else tau.reshape(()).to(u)
    came = shown(tau) if isinstance(tau, Tensor) else type(tau).__name__
    raise ShapeError(
        f"velocity(u, tau) expects tau as a number or of shape ({len(u)},); got {came}. Give one flow time, or one per sample."
    )


def numbers_of(tau: Any, u: Tensor) -> list[float]:
    """Return flow time as numbers, one for all samples or one each; refuse anything else."""
    times_of(tau, u)
    return [float(at) for at in tau.reshape(-1).tolist()] if isinstance(tau, Tensor) else [float(tau)]


def levels(schedule: Schedule, taus: list[float], u: Tensor) -> Tensor:
    """Evaluate a schedule at each flow time, shaped to multiply fields."""
    values = torch.tensor([schedule(tau) for tau in taus], dtype=u.dtype, device=u.device)
    return along(values if len(taus) == len(u) else values.reshape(()), u)


def fields_back(answer: Any, sent: Tensor, call: str) -> Tensor:
    """Refuse an answer of another shape than the fields sent: it would broadcast, or be cut silently."""
    if not isinstance(answer, Tensor) or answer.shape != sent.shape:
        came = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
        raise ShapeError(
            f"{call} expects fields {tuple(sent.shape)} back from the model; got {came}. Choose the adapter that fits its "
            "inputs, or return one tensor of the shape of its input."
        )
    return answer
