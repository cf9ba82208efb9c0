"""Models trained in normalized units, data = mean + std·z; fields and laws stay in physical units (math.md, eq. units)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.adapters.base import Adapter, Model, levels, numbers_of
from snapfm.errors import ParamsError, SettingError, ShapeError, Status, UnsupportedLaw
from snapfm.laws import Bounds, Equality, Inequality, Law, Params
from snapfm.project import Metric, Moved, Projection, Projector
from snapfm.project.checks import check_field, check_laws, check_shape
from snapfm.project.judge import Judgement
from snapfm.project.transforms import transformed
from snapfm.solve.base import limits_of
from snapfm.solve.budget import LIMIT, SECONDS
from snapfm.solve.tangent import Tangents


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


_OWN_METRIC = (
    "a projector in a model's units expects no {} beside ‖(u − û)/std‖; got one. Build snapfm.Projector(laws, shape, params), in "
    "physical units."
)


class UnitsProjector(Projector):
    """A Projector that minimizes ‖(u − û) / std‖. It works on z = (u − mean) / std, which is of order one.

    Fields, laws, bounds and violations are in physical units, `stationarity` and `distance` in the units of z. `mean` and `std`
    are float64 tensors that broadcast to one field.
    """

    def __init__(
        self, laws: Sequence[Law], shape: Sequence[int], params: Params | None = None, tolerance: float = 1e-8, *,
        mean: Tensor, std: Tensor, limit: int = LIMIT, seconds: float = SECONDS,
    ) -> None:  # fmt: skip
        self.mean, self.std = mean.detach().cpu().clone(), std.detach().cpu().clone()  # the laws are compiled with them
        self.physical = check_laws(laws)
        inside = [self._of_normalized(law) for law in self.physical]
        super().__init__(inside, shape, params, tolerance, limit=limit, seconds=seconds)
        self._physical_limits = limits_of(self.physical, self.shape)

    def _recipe(self) -> tuple[Sequence[Law], dict[str, Any]]:
        """Return the laws in physical units, with mean and std beside the other arguments."""
        return self.physical, {
            "shape": self.shape, "params": self._first(), "tolerance": self.tolerance, "mean": self.mean, "std": self.std,
            "limit": self.limit, "seconds": self.seconds,
        }  # fmt: skip

    def __call__(
        self, u_hat: Tensor, params: Params | None = None, *, warm: Projection | Moved | None = None,
        tolerance: float | None = None, limit: int | None = None, seconds: float | None = None,
        metric: Metric | None = None, starts: int = 1,
    ) -> Projection:  # fmt: skip
        """Project a batch (b, *shape) as Projector does, to fields that are near in the model's units."""
        if metric is not None:
            raise SettingError(_OWN_METRIC.format("metric"))
        if transformed(u_hat, params):
            return self._transformed(
                u_hat, params, warm, tolerance=tolerance, limit=limit, seconds=seconds, starts=starts
            )
        start, warm = self._normalize(u_hat), self._normalize_warm(warm)
        found = super().__call__(
            start, params, warm=warm, tolerance=tolerance, limit=limit, seconds=seconds, starts=starts
        )
        u = self._restore(found.u)
        judged = self._in_units(Judgement(found.violation, found.by_law), u.detach())
        # The base class met bounds to the tolerance in the model's units; here they must hold in physical units.
        broken = found.converged & ~(judged.violation <= found.tolerance)
        status = torch.where(broken, torch.full_like(found.status, int(Status.STALLED)), found.status)
        returned, rounding = u.to(u_hat.dtype), found.rounding
        if returned.dtype != torch.float64:
            z = self._normalize(returned.detach())
            rounding = self.row_differences(found.u.detach(), z, params)
            judged = self.check(returned, params)
        return replace(
            found, u=returned, status=status, violation=judged.violation, by_law=judged.by_law, rounding=rounding
        )  # fmt: skip

    @property
    def linearized(self) -> Tangents:
        """Refuse: the laws here are those of normalized fields."""
        raise SettingError(_OWN_METRIC.format("linearized laws"))

    def move(
        self, u_hat: Tensor, params: Params | None = None, *, warm: Projection | Moved | None = None,
        tolerance: float | None = None, limit: int | None = None, seconds: float | None = None,
    ) -> Moved:  # fmt: skip
        """Return the same fields without their certificate, as Projector does."""
        start, warm = self._normalize(u_hat), self._normalize_warm(warm)
        found = super().move(start, params, warm=warm, tolerance=tolerance, limit=limit, seconds=seconds)
        return replace(found, u=self._restore(found.u).to(u_hat.dtype))

    def check(self, u: Tensor, params: Params | None = None) -> Judgement:
        """Judge fields as they are, in float64, without projecting them."""
        return self._in_units(super().check(self._normalize(u), params), u.detach())

    def excess(self, u: Tensor, params: Params | None = None) -> Tensor:
        """Return the violations at u, (b, rows), as Projector does, in physical units."""
        found, rows = super().excess(self._normalize(u), params), self.structure.rows
        std = self.std.expand(self.shape).flatten()[torch.from_numpy(self.limits.bounded)]
        return torch.cat([found[:, :rows], found[:, rows:] * std.to(found)], dim=1) if self.limits.names else found

    def _of_normalized(self, law: Law) -> Law:
        """Write a law of physical fields as one of normalized fields; its residual keeps its units."""
        mean, std = self.mean, self.std
        if isinstance(law, Bounds):
            lower, upper = (
                None if limit is None else (torch.as_tensor(limit).cpu().double() - mean) / std
                for limit in (law.lower, law.upper)
            )
            return replace(law, lower=lower, upper=upper)
        if not isinstance(law, (Equality, Inequality)):
            raise UnsupportedLaw(
                f"a projector in a model's units expects laws that can be written for other units; got Oracle '{law.name}'. Give "
                "its functions normalized fields, and use Projector itself."
            )
        function = law.function
        return replace(law, function=lambda z, params: function(mean + std * z, params))

    def _normalize(self, u: Tensor) -> Tensor:
        check_field(u, self.shape)
        return (u.double() - self.mean.to(u.device)) / self.std.to(u.device)

    def _normalize_warm(self, warm: Projection | Moved | None) -> Projection | Moved | None:
        return replace(warm, u=self._normalize(warm.u)) if isinstance(warm, Projection) else warm

    def _restore(self, z: Tensor) -> Tensor:
        return self.mean.to(z.device) + self.std.to(z.device) * z

    def _in_units(self, judged: Judgement, u: Tensor) -> Judgement:
        """Measure bounds in physical units; laws already are."""
        if not self.limits.names:
            return judged
        broken = self._physical_limits.excess(u.double().cpu().flatten(1)).amax(dim=1).to(u.device)
        by_law = judged.by_law | dict.fromkeys(self.limits.names, broken)
        return Judgement(torch.stack(list(by_law.values())).amax(dim=0), by_law)
