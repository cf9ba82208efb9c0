"""Projector: the public face. Finds the structure of the laws once, then projects whole batches onto them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from snapfm.errors import ShapeError, UnsupportedLaw
from snapfm.laws import Bounds, Inequality, Law, Params
from snapfm.project.affine import Affine
from snapfm.project.base import Projection
from snapfm.project.door import check_example, check_field, check_laws, check_params, check_shape
from snapfm.project.implicit import attach_gradient
from snapfm.project.judge import Judgement, judge, verdict
from snapfm.structure import RowKind, Structure, analyze


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
        if not tolerance > 0:
            raise ShapeError(
                f"Projector(tolerance=…) expects a positive number; got {tolerance}. The default is 1e-8; rounding of a sum of "
                "100 values of order one is near 1e-14."
            )
        self.tolerance = float(tolerance)
        _refuse_unsupported_kinds(self.laws)
        self.structure: Structure = analyze(self.laws, self.shape, self.example)
        _refuse_nonlinear(self.structure)
        self.method = Affine(self.structure)
        self._last: tuple[list[Any], dict[str, Tensor]] | None = None

    def __call__(self, u_hat: Tensor, params: Params | None = None) -> Projection:
        """Project a batch (b, *shape); results keep its dtype and device, work is done in float64."""
        check_field(u_hat, self.shape)
        given = check_params(params, self.example, len(u_hat))
        start, inside = _inside(u_hat), self._inside_params(given, len(u_hat))
        with torch.no_grad():
            solved = self.method.solve(start, inside, self.tolerance)
            judged = judge(self.structure, solved.residual)
            status = verdict(self.structure, solved.residual, judged, solved.stationarity, self.tolerance)
            answer = solved.u.reshape(start.shape).to(device=u_hat.device, dtype=u_hat.dtype)
        if torch.is_grad_enabled() and any(t.requires_grad for t in (u_hat, *given.values())):
            answer = attach_gradient(
                u_hat, answer, self.structure, inside, given, solved.u.reshape(start.shape), solved.multipliers,
                self.method.adjoint,
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
            tolerance=self.tolerance,
        )

    def check(self, u: Tensor, params: Params | None = None) -> Judgement:
        """Judge fields as they are, in float64, without projecting them."""
        check_field(u, self.shape)
        given = check_params(params, self.example, len(u))
        with torch.no_grad():
            return judge(self.structure, self.structure.residual(_inside(u), self._inside_params(given, len(u))))

    def _inside_params(self, given: Params, batch: int) -> dict[str, Tensor]:
        """Take params to where the work is done; the same ones again give the same object, so that methods can tell."""
        key = [batch, *((name, value, _version(value)) for name, value in given.items())]
        if self._last is not None and len(self._last[0]) == len(key) and all(map(_same, self._last[0], key)):
            return self._last[1]
        inside = {}
        for name, value in given.items():
            moved = value.detach().cpu()
            moved = moved.double() if moved.is_floating_point() else moved
            inside[name] = moved.expand(batch, *moved.shape[1:])
        self._last = (key, inside)
        return inside


def _version(value: Tensor) -> int:
    """Count of in-place changes; tensors made in inference mode have none, and never count as unchanged."""
    return -1 if value.is_inference() else value._version


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, tuple):
        return bool(one == other)
    return one[0] == other[0] and one[1] is other[1] and one[2] == other[2] and one[2] >= 0


def _inside(u_hat: Tensor) -> Tensor:
    """Take a batch to where the work is done: float64, contiguous, on the CPU."""
    return u_hat.detach().to(device="cpu", dtype=torch.float64).contiguous()


def _refuse_unsupported_kinds(laws: Sequence[Law]) -> None:
    for law in laws:
        if isinstance(law, (Inequality, Bounds)):
            raise UnsupportedLaw(
                f"Projector handles affine Equality laws today; law '{law.name}' is of kind {type(law).__name__}. Leave it "
                "out, or project on the equalities and inspect the rest."
            )


def _refuse_nonlinear(structure: Structure) -> None:
    for plan in structure.plans:
        bent = plan.count(RowKind.SEPARABLE, RowKind.GENERAL)
        if bent:
            raise UnsupportedLaw(
                f"Projector handles affine laws today; {bent} of {plan.rows} rows of law '{plan.name}' are nonlinear. "
                "snapfm.structure.analyze gives their sparse derivatives already."
            )
        if plan.count(RowKind.PARAMETRIC):
            raise UnsupportedLaw(
                f"Projector handles laws whose slopes never change today; those of law '{plan.name}' depend on params. Move the "
                "params into the right-hand side, or fold them into a constant."
            )
