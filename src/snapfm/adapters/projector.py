"""UnitsProjector: laws in physical units, nearness in the units a model was trained in (math.md, eq. units)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from snapfm.errors import Status
from snapfm.laws import Bounds, Law, Params
from snapfm.project import Moved, Projection, Projector
from snapfm.project.budget import LIMIT, SECONDS
from snapfm.project.checks import check_field, check_laws
from snapfm.project.judge import Judgement


class UnitsProjector(Projector):
    """A Projector that moves fields least as measured by ‖(u − û) / std‖; it works on z = (u − mean) / std, of order one.

    Fields, laws, bounds and violations are in physical units, `stationarity` and `distance` in those of z. `mean` and `std`
    are float64 tensors that broadcast to one field.
    """

    def __init__(
        self, laws: Sequence[Law], shape: Sequence[int], params: Params | None = None, tolerance: float = 1e-8, *,
        mean: Tensor, std: Tensor, limit: int = LIMIT, seconds: float = SECONDS,
    ) -> None:  # fmt: skip
        self.mean, self.std = mean.cpu(), std.cpu()
        self.physical = check_laws(laws)
        inside = [self._of_normalized(law) for law in self.physical]
        super().__init__(inside, shape, params, tolerance, limit=limit, seconds=seconds)

    def __call__(
        self, u_hat: Tensor, params: Params | None = None, *, warm: Projection | Moved | None = None,
        tolerance: float | None = None, limit: int | None = None, seconds: float | None = None,
    ) -> Projection:  # fmt: skip
        """Project a batch (b, *shape) as Projector does, to the nearest fields in the model's units."""
        start = self._normalize(u_hat)
        known = replace(warm, u=self._normalize(warm.u)) if isinstance(warm, Projection) else warm
        found = super().__call__(start, params, warm=known, tolerance=tolerance, limit=limit, seconds=seconds)
        u = self._restore(found.u)
        judged = self._in_units(Judgement(found.violation, found.by_law), u.detach())
        # Inside, bounds were met to the tolerance in the model's units; here they are asked in their own.
        broken = found.converged & ~(judged.violation <= found.tolerance)
        status = torch.where(broken, torch.full_like(found.status, int(Status.STALLED)), found.status)
        returned, rounding = u.to(u_hat.dtype), found.rounding
        if returned.dtype != torch.float64:
            z = self._normalize(returned.detach())
            rounding = self.changed(found.u.detach(), z, params)
            judged = self.check(returned, params)
        return replace(
            found, u=returned, status=status, violation=judged.violation, by_law=judged.by_law, rounding=rounding
        )  # fmt: skip

    def move(
        self, u_hat: Tensor, params: Params | None = None, *, warm: Projection | Moved | None = None,
        tolerance: float | None = None, limit: int | None = None, seconds: float | None = None,
    ) -> Moved:  # fmt: skip
        """Give the same fields without their certificate, as Projector does."""
        known = replace(warm, u=self._normalize(warm.u)) if isinstance(warm, Projection) else warm
        start = self._normalize(u_hat)
        found = super().move(start, params, warm=known, tolerance=tolerance, limit=limit, seconds=seconds)
        return replace(found, u=self._restore(found.u).to(u_hat.dtype))

    def check(self, u: Tensor, params: Params | None = None) -> Judgement:
        """Judge fields as they are, in float64, without projecting them."""
        return self._in_units(super().check(self._normalize(u), params), u.detach())

    def excess(self, u: Tensor, params: Params | None = None) -> Tensor:
        """Give what is broken at u, (b, rows), as Projector does, in physical units."""
        found, rows = super().excess(self._normalize(u), params), self.structure.rows
        std = self.std.expand(self.shape).flatten()[torch.from_numpy(self.limits.bounded)]
        return torch.cat([found[:, :rows], found[:, rows:] * std.to(found)], dim=1) if self.limits.names else found

    def _of_normalized(self, law: Law) -> Law:
        """Write a law of physical fields as one of normalised fields; its residual keeps its units."""
        mean, std = self.mean, self.std
        if isinstance(law, Bounds):
            lower, upper = (
                None if limit is None else (torch.as_tensor(limit).cpu().double() - mean) / std
                for limit in (law.lower, law.upper)
            )
            return replace(law, lower=lower, upper=upper)
        function = law.function
        return replace(law, function=lambda z, params: function(mean + std * z, params))

    def _normalize(self, u: Tensor) -> Tensor:
        check_field(u, self.shape)
        return (u.double() - self.mean.to(u.device)) / self.std.to(u.device)

    def _restore(self, z: Tensor) -> Tensor:
        return self.mean.to(z.device) + self.std.to(z.device) * z

    def _in_units(self, judged: Judgement, u: Tensor) -> Judgement:
        """Measure bounds in physical units; laws already are."""
        if not self.limits.names:
            return judged
        lower, upper = (
            self._restore(torch.from_numpy(limit).view(self.shape)) for limit in (self.limits.lower, self.limits.upper)
        )
        field = u.double().cpu()
        broken = torch.maximum(field - upper, lower - field).clamp(min=0.0).flatten(1).amax(dim=1).to(u.device)
        by_law = judged.by_law | dict.fromkeys(self.limits.names, broken)
        return Judgement(torch.stack(list(by_law.values())).amax(dim=0), by_law)
