"""Projector: the public face. Finds the structure of the laws once, then projects whole batches onto them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from snapfm.laws import Law, Params
from snapfm.project.affine import Affine
from snapfm.project.base import Moved, Projection, Warm
from snapfm.project.door import (
    check_example,
    check_field,
    check_laws,
    check_params,
    check_shape,
    check_tolerance,
    check_warm,
)
from snapfm.project.general import General
from snapfm.project.implicit import attach_gradient
from snapfm.project.judge import Judgement, judge, verdict
from snapfm.project.limits import Limits, limits_of
from snapfm.project.newton import Newton
from snapfm.structure import Structure, analyze
from snapfm.structure.lower import Unlowerable


class Projector:
    """Project batches of fields of one shape onto a list of laws: min ½‖u − û‖² subject to the laws.

    `params` is an example with a leading batch axis: it fixes names, shapes and dtypes. `tolerance` is the largest
    violation, in the laws' own units, that counts as obeyed.
    """

    def __init__(
        self, laws: Sequence[Law], shape: Sequence[int], params: Params | None = None, tolerance: float = 1e-8
    ) -> None:
        self.laws = check_laws(laws)
        self.shape = check_shape(shape)
        self.example = check_example(params)
        self.tolerance = check_tolerance(tolerance)
        self.structure: Structure = analyze(self.laws, self.shape, self.example)
        field, sample = self.structure.example
        self.structure.check(field[None], {name: value[None] for name, value in sample.items()})
        self.limits = limits_of(self.laws, self.shape)
        self.method: Affine | Newton | General = _method(self.structure, self.limits)
        self.structure = self.method.structure  # a slow path leaves a note in it
        self._last: tuple[int, dict[str, Tensor], dict[str, Tensor]] | None = None

    def __call__(
        self, u_hat: Tensor, params: Params | None = None, *, warm: Projection | Moved | None = None,
        tolerance: float | None = None,
    ) -> Projection:  # fmt: skip
        """Project a batch (b, *shape); results keep its dtype and device, work is done in float64.

        `warm`, a projection of nearby fields of the same batch, gives a point to start from: fewer iterations where laws
        are nonlinear. `tolerance` replaces the projector's own for this call.
        """
        given, asked, known = self._asked(u_hat, params, warm, tolerance)
        start, inside = _inside(u_hat), self._inside_params(given, len(u_hat))
        with torch.no_grad():
            solved = self.method.solve(start, inside, asked, known)
            judged = judge(self.structure, solved.residual, self.limits, solved.u)
            status = verdict(self.structure, solved, judged, asked)
            answer = solved.u.reshape(start.shape).to(device=u_hat.device, dtype=u_hat.dtype)
        if torch.is_grad_enabled() and any(t.requires_grad for t in (u_hat, *given.values())):
            answer = attach_gradient(
                u_hat, answer, self.structure, inside, given, solved.u.reshape(start.shape), solved.multipliers,
                partial(self.method.adjoint, solved, inside),
            )  # fmt: skip
        device = u_hat.device
        rows = self.structure.slices()
        return Projection(
            u=answer,
            status=status.to(device),
            violation=judged.violation.to(device),
            stationarity=solved.stationarity.to(device),
            iterations=solved.iterations.to(device),
            distance=solved.distance.to(device),
            multipliers={name: solved.multipliers[:, part].to(device) for name, part in rows.items()},
            by_law={name: value.to(device) for name, value in judged.by_law.items()},
            tolerance=asked,
            warm=solved.warm,
        )

    def move(
        self, u_hat: Tensor, params: Params | None = None, *, warm: Projection | Moved | None = None,
        tolerance: float | None = None,
    ) -> Moved:  # fmt: skip
        """Give the same fields without their certificate and without gradients, in a fraction of the time.

        For the steps of a flow before its last, whose answers nobody looks at. A sample that fails is given as the
        iterations left it, unmarked.
        """
        given, asked, known = self._asked(u_hat, params, warm, tolerance)
        with torch.no_grad():
            start, inside = u_hat.detach().cpu().contiguous(), self._inside_params(given, len(u_hat))
            u, ended = self.method.move(start, inside, asked, known)
        return Moved(u.to(u_hat.device), ended)

    def _asked(
        self, u_hat: Tensor, params: Params | None, warm: Projection | Moved | None, tolerance: float | None
    ) -> tuple[dict[str, Tensor], float, Warm | None]:
        """Check what a call was given; give its params, its tolerance, and where it may begin."""
        check_field(u_hat, self.shape)
        given = check_params(params, self.example, len(u_hat))
        asked = self.tolerance if tolerance is None else check_tolerance(tolerance)
        check_warm(warm, len(u_hat), self.structure.slices())
        return given, asked, self._recall(warm)

    def _recall(self, warm: Projection | Moved | None) -> Warm | None:
        if warm is None:
            return None
        if warm.warm is not None and warm.warm.owner is self.method:
            return warm.warm
        if isinstance(warm, Moved):
            return None  # another projector's: it has no multipliers to go by
        parts = [
            warm.multipliers[name].detach().to(device="cpu", dtype=torch.float64) for name in self.structure.slices()
        ]
        whole = torch.cat([torch.zeros(len(warm.u), 0, dtype=torch.float64), *parts], dim=1)
        usable = warm.converged.cpu() & torch.isfinite(whole).all(dim=1)
        return self.method.recall(_inside(warm.u), whole, usable)

    def check(self, u: Tensor, params: Params | None = None) -> Judgement:
        """Judge fields as they are, in float64, without projecting them."""
        check_field(u, self.shape)
        given = check_params(params, self.example, len(u))
        with torch.no_grad():
            field = _inside(u)
            residual = self.structure.residual(field, self._inside_params(given, len(u)))
            return judge(self.structure, residual, self.limits, field.reshape(len(u), -1))

    def excess(self, u: Tensor, params: Params | None = None) -> Tensor:
        """Give what is broken at u, (b, rows), in float64 and differentiable in u: h, max(g, 0), then bound excess.

        For penalties and guidance; where nothing is broken all entries are zero.
        """
        check_field(u, self.shape)
        given = check_params(params, self.example, len(u))
        field = u.to(device="cpu", dtype=torch.float64)
        residual = self.structure.residual(field, self._inside_params(given, len(u)))
        parts = [torch.where(torch.from_numpy(self.structure.equality_rows), residual, residual.clamp(min=0.0))]
        if self.limits.names:
            lower, upper = torch.from_numpy(self.limits.lower), torch.from_numpy(self.limits.upper)
            flat = field.flatten(1)
            parts.append((torch.maximum(flat - upper, lower - flat).clamp(min=0.0))[:, self.limits.bounded])
        return torch.cat(parts, dim=1).to(u.device)

    def _inside_params(self, given: Params, batch: int) -> dict[str, Tensor]:
        """Take params to where the work is done; the same ones again give the same object, so that methods can tell."""
        if self._last is not None and self._last[0] == batch and _equal(self._last[1], given):
            return self._last[2]
        inside = {}
        for name, value in given.items():
            moved = value.detach().cpu()
            moved = moved.double() if moved.is_floating_point() else moved
            inside[name] = moved.expand(batch, *moved.shape[1:]).contiguous()
        # By value, not by object: writes through numpy or .data leave no trace in torch, and params are small.
        self._last = (batch, {name: value.detach().clone() for name, value in given.items()}, inside)
        return inside


def _equal(kept: Params, given: Params) -> bool:
    return all(
        value.dtype == kept[name].dtype and value.device == kept[name].device and torch.equal(value, kept[name])
        for name, value in given.items()
    )


def _inside(u_hat: Tensor) -> Tensor:
    """Take a batch to where the work is done: float64, contiguous, on the CPU."""
    return u_hat.detach().to(device="cpu", dtype=torch.float64).contiguous()


def _method(structure: Structure, limits: Limits) -> Affine | Newton | General:
    """Choose: closed form where every row is an affine equality with fixed slopes, Newton otherwise; General as a last resort."""
    if structure.affine and structure.equality_rows.all() and not limits.bounded.any():
        return Affine(structure)
    try:
        return Newton(structure, limits)
    except Unlowerable as cause:
        note = (
            f"slow path: law '{structure.plans[cause.law].name}' uses {cause}, which has no scalar form; projected sample by "
            "sample with torch's derivatives"
        )
        return General(replace(structure, note=note), limits)
