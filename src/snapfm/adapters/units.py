"""Models trained in normalized units, data = mean + std·z; fields and laws stay in physical units (math.md, eq. units)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.adapters.base import Adapter, Model, levels, numbers_of
from snapfm.errors import ParamsError, SettingError, ShapeError
from snapfm.laws import Law, Params
from snapfm.project import Metric, Projector
from snapfm.project.checks import check_shape


class Normalized(Adapter):
    """A velocity in physical units made from one of normalized fields z = (u − mean) / std.

    `mean` and `std` are numbers, or tensors with one axis for each of ONE field: (nx, nt) for every point, (c, 1, 1) for
    every component. The noise of the run is mean + std·white, so the model sees white noise. Subtracting a mean much larger
    than std loses digits: then sample in float64.
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
        """Normalize the state, evaluate, and return the velocity of physical fields."""
        mean, std = self._fit(u)
        taus, path = numbers_of(tau, u), self.path
        held = levels(lambda at: path.data(at) + path.noise(at), taus, u)  # 1 on straight paths
        moved = levels(lambda at: path.data_slope(at) + path.noise_slope(at), taus, u)
        speed: Tensor = self.model((u - held * mean) / std, tau, **inputs)
        return moved * mean + std * speed

    def noise_from(self, white: Tensor) -> Tensor:
        """Return noise in the units of the data."""
        mean, std = self._fit(white)
        return mean + std * super().noise_from(white)

    def projector(
        self, laws: Sequence[Law], shape: Sequence[int], params: Params | None = None,
        tolerance: float | Mapping[str, float] = 1e-8,
    ) -> Projector:  # fmt: skip
        """Build a projector for laws in physical units that moves fields least in the model's units, ‖(u − û) / std‖.

        A plain Projector works as well; it measures ‖u − û‖, which adds pascals to metres per second where std differs
        between components.
        """
        shape = check_shape(shape)
        _, std = self._fit(torch.zeros(1, *shape, dtype=torch.float64))
        metric = None if bool((std == 1).all()) else Metric(std.cpu().square().expand(shape))
        return Projector(laws, shape, params, tolerance, metric=metric)

    def _fit(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and std in the dtype of the fields; refuse shapes that would broadcast along a wrong axis."""
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


def _numbers(name: str, value: Any) -> Tensor:
    """Return a mean or std in float64; refuse anything but real numbers."""
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
