"""Models trained in normalised units, data = mean + std·z; fields and laws stay in physical units (math.md, eq. units)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.adapters.base import Adapter, Model, along, times_of
from snapfm.adapters.projector import UnitsProjector
from snapfm.errors import ParamsError, SettingError, ShapeError
from snapfm.laws import Law, Params
from snapfm.project import Projector
from snapfm.project.checks import check_shape


class Normalized(Adapter):
    """A velocity in physical units made of one of normalised fields z = (u − mean) / std.

    `mean` and `std` are numbers, or tensors with one axis for each of ONE field: (nx, nt) for every point, (c, 1, 1) for
    every component. The noise of the run is mean + std·white, so that the model sees white noise. Subtracting a mean much
    larger than std costs digits: sample in float64 then.
    """

    mean: Tensor
    std: Tensor
    name = "Normalized"

    def __init__(self, model: Model, mean: float | Tensor, std: float | Tensor) -> None:
        super().__init__(model)
        self.register_buffer("mean", _numbers("mean", mean), persistent=False)
        self.register_buffer("std", _numbers("std", std), persistent=False)
        if not bool(torch.isfinite(self.mean).all()) or not bool((torch.isfinite(self.std) & (self.std > 0)).all()):
            raise ParamsError(
                "Normalized(model, mean, std) expects finite means and positive finite stds; got means from "
                f"{float(self.mean.min()):g} to {float(self.mean.max()):g}, stds from {float(self.std.min()):g} to "
                f"{float(self.std.max()):g}. Put the floor under std that training had, such as std.clamp(min=1e-6)."
            )

    def forward(self, u: Tensor, tau: float | Tensor, **inputs: Any) -> Tensor:
        """Normalise the state, ask, and give the velocity of physical fields."""
        mean, std = self._fit(u)
        held = self._sum(self.path.data, self.path.noise, u, tau)
        moved = self._sum(self.path.data_slope, self.path.noise_slope, u, tau)
        speed: Tensor = self.model((u - held * mean) / std, tau, **inputs)
        return moved * mean + std * speed

    def noise_from(self, white: Tensor) -> Tensor:
        """Give noise in the units of the data."""
        mean, std = self._fit(white)
        return mean + std * super().noise_from(white)

    def projector(
        self, laws: Sequence[Law], shape: Sequence[int], params: Params | None = None, tolerance: float = 1e-8
    ) -> Projector:
        """Build a projector for laws in physical units that moves fields least in the model's units, ‖(u − û) / std‖.

        A plain Projector works as well; it measures ‖u − û‖, which adds pascals to metres per second where std differs
        between components.
        """
        mean, std = self._fit(torch.zeros(1, *check_shape(shape), dtype=torch.float64))
        if bool((mean == 0).all()) and bool((std == 1).all()):
            return Projector(laws, shape, params, tolerance)
        return UnitsProjector(laws, shape, params, tolerance, mean=mean, std=std)

    def _fit(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Give mean and std in the dtype of the fields; refuse shapes that would broadcast along a wrong axis."""
        for name, value in (("mean", self.mean), ("std", self.std)):
            fits = value.ndim == 0 or (
                value.ndim == u.ndim - 1 and all(n in (1, m) for n, m in zip(value.shape, u.shape[1:]))
            )
            if not fits:
                raise ShapeError(
                    f"Normalized({name}) expects a number, or the axes of a field {tuple(u.shape[1:])}, each of its size or 1; "
                    f"got {tuple(value.shape)}. One value per component of the first axis: {name}.view(-1{', 1' * (u.ndim - 2)})."
                )
        return self.mean.to(u), self.std.to(u)

    @staticmethod
    def _sum(
        a: Callable[[float], float], b: Callable[[float], float], u: Tensor, tau: float | Tensor
    ) -> float | Tensor:
        """Add two schedules: α + σ, which is one on straight paths, or its slope."""
        if not isinstance(tau, Tensor):
            times_of(tau, u)
            return a(tau) + b(tau)
        values = [a(at) + b(at) for at in times_of(tau, u.double()).reshape(-1).tolist()]
        return along(torch.tensor(values, dtype=u.dtype, device=u.device) if tau.ndim else u.new_tensor(values[0]), u)


def _numbers(name: str, value: Any) -> Tensor:
    """Give a mean or std in float64; refuse what holds no real numbers."""
    try:
        found = value.detach() if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))  # not to float32
    except (TypeError, ValueError, RuntimeError):
        found = torch.zeros(0)
    if not found.numel() or found.is_complex() or found.dtype == torch.bool:
        came = f"a tensor of shape {tuple(value.shape)}, {value.dtype}" if isinstance(value, Tensor) else repr(value)
        raise SettingError(
            f"Normalized({name}) expects a real number, or a tensor of them; got {came}. Write Normalized(model, mean, std) with "
            "those of the training fields."
        )
    return found.double()
