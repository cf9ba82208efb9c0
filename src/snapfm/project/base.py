"""Projection: what became of every sample of a batch, with its certificate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.errors import ProjectionFailed, Status
from snapfm.laws import Params
from snapfm.project.budget import Budget

OnFailure = Literal["raise", "keep"]

_LISTED = 8  # failed samples named in a message; the rest are counted


@dataclass(frozen=True)
class Solution:
    """A batch as a method leaves it, for the judge: float64, (b, n) and (b, m)."""

    u: Tensor
    multipliers: Tensor
    iterations: Tensor
    residual: Tensor  # at u, every row
    stationarity: Tensor
    distance: Tensor
    status: Tensor | None = None  # what the method itself says; None when it has nothing to add
    warm: Warm | None = None  # None for closed forms, which begin nowhere
    # What is known of the curvature along the laws: 1 nowhere negative, 0 somewhere, -1 not known. None stands for all 1.
    second_order: Tensor | None = None


class Method(Protocol):
    """One way to project, prepared for compiled laws and limits. It never changes; a call's memory is lent to that call."""

    @property
    def implied(self) -> npt.NDArray[np.int64]:
        """Rows that hold if the others do: where only they are broken, the laws contradict each other."""
        ...

    def solve(self, start: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget) -> Solution:
        """Project a float64 batch (b, *shape); iterations begin at û, or where `warm` says."""
        ...

    def move(
        self, given: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget
    ) -> tuple[Tensor, Warm | None]:
        """Do the same without a certificate, in the dtype given."""
        ...

    def recall(self, u: Tensor, multipliers: Tensor, usable: Tensor) -> Warm | None:
        """Say where iterations begin that go on from a projection (b, *shape), (b, m) by someone else."""
        ...

    def adjoint(self, solved: Solution, params: Params, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Solve the optimality system's transpose at an answer."""
        ...


@dataclass(frozen=True)
class Warm:
    """Where iterations ended, in a method's own terms, so that they may begin there again: float64, (b, …) each."""

    place: npt.NDArray[np.float64]  # the unknowns that iterations move
    multipliers: npt.NDArray[np.float64]  # (b, m)
    usable: npt.NDArray[np.bool_]  # samples that arrived; the others begin from their input
    owner: object  # the method; to others it means nothing


@dataclass(frozen=True)
class Moved:
    """The nearest lawful fields without a certificate: what a flow needs of every step but its last."""

    u: Tensor  # (b, *shape), dtype and device of the input
    warm: Warm | None


@dataclass(frozen=True)
class Projection:
    """The nearest lawful fields and, per sample, the evidence.

    `violation` and `by_law` are those of the tensor `u` that is returned. In float32 it is the float64 answer, rounded:
    CONVERGED then means that the answer obeys to the tolerance, and `rounding` says what its rounding to float32 costs, so
    that violation ≤ tolerance + rounding. In float64 nothing is rounded.
    """

    u: Tensor  # (b, *shape), dtype and device of the input, differentiable
    status: Tensor  # (b,) int8 of Status
    violation: Tensor  # (b,) largest |h|, max(g, 0), bound excess, in the law's own units
    stationarity: Tensor  # (b,) ‖u − û + Jᵀλ‖∞ with right-signed λ
    iterations: Tensor  # (b,) int64
    distance: Tensor  # (b,) ‖u − û‖₂
    multipliers: dict[str, Tensor]  # law name to λ (b, rows)
    by_law: dict[str, Tensor]  # law name to violation (b,)
    tolerance: float
    rounding: Tensor  # (b,) largest change of a row, in the law's own units, when u was rounded to its dtype
    # (b,) int8, curvature along the laws: 1 nowhere negative, so nearer than all neighbours; 0 somewhere; -1 not known
    second_order: Tensor
    warm: Warm | None = field(default=None, repr=False, compare=False)  # for project(…, warm=…)

    @property
    def converged(self) -> Tensor:
        """Which samples obey their laws and are nearest, to the tolerance: (b,) bool."""
        return self.status == Status.CONVERGED

    def raise_for_status(self) -> Projection:
        """Raise ProjectionFailed unless every sample converged; give the projection back for chaining."""
        if bool(self.converged.all()):
            return self
        raise ProjectionFailed(self._complaint())

    def _complaint(self) -> str:
        failed = torch.nonzero(~self.converged).flatten().tolist()
        lines = [f"expected {len(self.status)} converged samples; {len(failed)} failed:"]
        for sample in failed[:_LISTED]:
            status = Status(int(self.status[sample]))
            lines.append(f"  sample {sample}: {status.name}, {self._worst(sample)}; {status.advice}.")
        if len(failed) > _LISTED:
            lines.append(f"  … and {len(failed) - _LISTED} more")
        lines.append(
            "To go on with the samples that did converge take result.u[result.converged]; snapfm.sample and the command line "
            "return the others too, marked, with on_failure='keep' (--keep-failed)."
        )
        return "\n".join(lines)

    def _worst(self, sample: int) -> str:
        """Name the law that is broken most."""
        sizes = {name: float(value[sample]) for name, value in self.by_law.items()}
        if not sizes:
            return "no law"
        name = max(sizes, key=lambda key: sizes[key] if sizes[key] == sizes[key] else float("inf"))
        return f"law '{name}' is off by {sizes[name]:.1e} (tolerance {self.tolerance:.0e})"
