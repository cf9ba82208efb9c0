"""What projections exchange: Limits, Method, Solution, and the public results Projection and Moved with their certificates.

Everything else in the package may import this module; it imports budget only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index, Mask, Values
from snapfm.display import Sheet
from snapfm.errors import ProjectionFailed, ShapeError, Status
from snapfm.laws import Bounds, Law, Params
from snapfm.solve.budget import Budget
from snapfm.text import extents, plural, scientific

OnFailure = Literal["raise", "keep"]

_LISTED = 8  # failed samples named in a message; the rest are counted


@dataclass(frozen=True)
class Solution:
    """A batch as a method returns it to the judge: float64, (b, n) and (b, m)."""

    u: Tensor
    multipliers: Tensor
    iterations: Tensor
    residual: Tensor  # at u, every row
    stationarity: Tensor
    distance: Tensor
    status: Tensor | None = None  # the method's own verdict, if it has one
    warm: Warm | None = None  # None for closed forms, which need no start
    # What is known of the curvature along the laws: 1 nowhere negative, 0 somewhere, -1 not known. None stands for all 1.
    second_order: Tensor | None = None
    generalized: Tensor | None = None  # (b,) bool: certified with a generalized gradient. None stands for all False.
    away: Tensor | None = None  # (b, n) u − û, where any sample is

    def apart(self) -> Solution:
        """Return it with copies of what a projection shows: a gradient taken later must not see what the caller writes there."""
        generalized = None if self.generalized is None else self.generalized.clone()
        return replace(self, multipliers=self.multipliers.clone(), generalized=generalized)


@dataclass(frozen=True)
class Adjoints:
    """The solution (w, ν) of the linearized problem, and what gradients in params need.

    `externals` (b, …) are the derivatives of wᵀJᵀλ + νᵀh by the cells of params; None where only torch knows them.
    """

    w: Tensor
    nu: Tensor
    externals: Tensor | None


class Method(Protocol):
    """A way to project, prepared for compiled laws and limits. It never changes; memory is lent to each call."""

    @property
    def implied(self) -> Index:
        """Rows that hold if the others do: where only they are broken, the laws contradict each other."""
        ...

    def solve(self, start: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget) -> Solution:
        """Project a float64 batch (b, *shape); iterations begin at û, or where `warm` says."""
        ...

    def move(
        self, given: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget
    ) -> tuple[Tensor, Warm | None]:
        """Project without a certificate, in the dtype given."""
        ...

    def recall(self, u: Tensor, multipliers: Tensor, usable: Tensor) -> Warm | None:
        """Return the warm start at another projector's result: fields (b, *shape), multipliers (b, m)."""
        ...

    def adjoint(self, solved: Solution, params: Params, gradient: Tensor, in_params: bool) -> Adjoints:
        """Solve the transposed KKT system at an answer; see solve.gradient. `in_params`: with what they need on kinks."""
        ...


@dataclass(frozen=True)
class Warm:
    """Where iterations ended, in a method's own unknowns: a warm start. float64, (b, …) each."""

    place: Values  # the unknowns that iterations move
    multipliers: Values  # (b, m)
    usable: Mask  # samples that converged; the others start from their input
    owner: object  # the method, which alone can read it

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a result travels without its warm start: its owner stays behind

    def part(self, piece: slice) -> Warm:
        """Return that of some samples."""
        return Warm(self.place[piece], self.multipliers[piece], self.usable[piece], self.owner)

    @classmethod
    def joined(cls, parts: Sequence[Warm]) -> Warm:
        """Put those of consecutive samples together."""
        place, multipliers, usable = zip(*((one.place, one.multipliers, one.usable) for one in parts))
        return cls(np.concatenate(place), np.concatenate(multipliers), np.concatenate(usable), parts[0].owner)


@dataclass(frozen=True)
class Moved:
    """The nearest feasible fields without a certificate: all that a flow step before the last needs."""

    u: Tensor
    """Fields (b, *shape), in the dtype and on the device of the input."""
    warm: Warm | None

    def __repr__(self) -> str:
        return f"Moved({fields_text(self.u)})"


PER_SAMPLE = (
    "u", "status", "violation", "stationarity", "iterations", "distance", "rounding", "second_order", "generalized",
)  # fmt: skip
"""Fields of a Projection with one entry per sample; those by law (`multipliers`, `by_law`) are apart."""


@dataclass(frozen=True)
class Projection:
    """Feasible fields near the input, each a local optimum, and for each sample the certificate.

    `violation` and `by_law` describe the tensor `u` that is returned. In float32 it is the float64 answer, rounded:
    CONVERGED then means that the answer obeys to the tolerance, and `rounding` says what its rounding to float32 costs, so
    that violation ≤ tolerance + rounding. In float64 nothing is rounded. A law that computes in float32, as networks do, is
    projected onto in float64 in the same way: CONVERGED refers to the law without its rounding, `violation` to the law as
    written, and `rounding` holds the difference.
    """

    u: Tensor
    """Fields (b, *shape), in the dtype and on the device of the input; differentiable in the input and in the params."""
    status: Tensor
    """Outcome of each sample: (b,) int8, values of Status."""
    violation: Tensor
    """Largest |h|, max(g, 0) or excess over a bound, in the law's own units: (b,)."""
    stationarity: Tensor
    """‖u − û + Jᵀλ‖∞ with multipliers λ of the right sign: (b,). Zero where no lawful direction leads nearer."""
    iterations: Tensor
    """Iterations over all attempts: (b,) int64."""
    distance: Tensor
    """‖u − û‖₂: (b,)."""
    multipliers: dict[str, Tensor]
    """The multipliers λ of each law by its name: (b, rows)."""
    by_law: dict[str, Tensor]
    """The violation of each law by its name: (b,)."""
    tolerance: float
    """The largest violation that counts as obeyed."""
    rounding: Tensor
    """Largest change of a row by rounding, of u and inside float32 laws, in the law's own units: (b,)."""
    second_order: Tensor
    """Curvature along the laws, (b,) int8: 1 nowhere negative, so u is nearer than its neighbors; 0 a saddle; -1 not known."""
    generalized: Tensor
    """Samples that lie on kinks of their laws: (b,) bool.

    For these, stationarity holds for an element of the generalized (Clarke) gradient: each kink's two slopes with a weight in
    [0, 1]. For the others, the slopes are those of torch.
    """
    warm: Warm | None = field(default=None, repr=False, compare=False)  # for project(…, warm=…)

    @property
    def converged(self) -> Tensor:
        """Which samples obey their laws and are nearest, to the tolerance: (b,) bool."""
        return self.status == Status.CONVERGED

    def raise_for_status(self, first: int = 0) -> Projection:
        """Raise ProjectionFailed unless every sample converged; return the projection for chaining.

        `first` is the number of the first sample in messages, for a batch that is a part of more.
        """
        if bool(self.converged.all()):
            return self
        raise ProjectionFailed(self._complaint(first))

    @property
    def statuses(self) -> dict[str, int]:
        """From the name of a status to its number of samples, if any."""
        found = torch.bincount(self.status.long(), minlength=len(Status)).tolist()
        return {status.name: found[status] for status in Status if found[status]}

    def __repr__(self) -> str:
        return f"Projection({self._title()}; violation at most {largest_text(self.violation)})"

    def __str__(self) -> str:
        return self.sheet().text()

    def _repr_html_(self) -> str:
        return self.sheet().html()

    def _title(self) -> str:
        ended = ", ".join(f"{number} {name}" for name, number in self.statuses.items())
        return f"{fields_text(self.u)}: {ended or 'no samples'}"

    def sheet(self) -> Sheet:
        """Show the violation of each law over all samples, and the rest of the certificates."""
        spent, way = self.iterations, self.distance
        lines = [f"tolerance {self.tolerance:g}; stationarity at most {largest_text(self.stationarity)}"]
        if len(spent):
            lines.append(
                f"iterations {int(spent.min())} to {int(spent.max())}; distance ‖u − û‖ {float(way.min()):.3g} to "
                f"{float(way.max()):.3g}"
            )
        if bool((self.rounding > 0).any()):
            lines.append(
                f"rounding to {dtype_text(self.u)} accounts for at most {largest_text(self.rounding)} of the violation"
            )
        return violations_sheet(f"Projection of {self._title()}", self.by_law, lines)

    def _complaint(self, first: int) -> str:
        failed = torch.nonzero(~self.converged).flatten().tolist()
        lines = [f"expected {plural(len(self.status), 'converged sample')}; {len(failed)} failed:"]
        lines += self.failures(failed, first)
        lines.append(
            "To go on with the samples that did converge take result.u[result.converged]; snapfm.sample and the command line "
            "return the others too, marked, with on_failure='keep' (--keep-failed)."
        )
        return "\n".join(lines)

    def failures(self, failed: Sequence[int], first: int = 0) -> list[str]:
        """Describe samples that failed, each in a line, and then the advice for each status among them, once.

        `first` is added to their numbers.
        """
        statuses = [Status(int(self.status[sample])) for sample in failed]
        named = list(zip(failed, statuses))[:_LISTED]
        lines = [f"  sample {first + sample}: {status.name}, {self._worst(sample)}" for sample, status in named]
        if len(failed) > _LISTED:
            lines.append(f"  … and {len(failed) - _LISTED} more")
        return lines + [f"{status.name}: {status.advice}." for status in sorted(set(statuses))]

    def _worst(self, sample: int) -> str:
        """Name the law that is broken most; NaN counts as the largest."""
        sizes = {name: float(value[sample]) for name, value in self.by_law.items()}
        if not sizes:
            return "no law"
        name = max(sizes, key=lambda key: sizes[key] if sizes[key] == sizes[key] else float("inf"))
        return f"law '{name}' is off by {sizes[name]:.1e} (tolerance {self.tolerance:.0e})"


def violations_sheet(title: str, by_law: Mapping[str, Tensor], lines: Sequence[str] = ()) -> Sheet:
    """Show the largest and the median violation of each law, and sentences below."""
    rows = [(name, largest_text(value), _typical(value)) for name, value in by_law.items()]
    return Sheet(title, ("law", "largest violation", "median"), rows, lines)


def fields_text(u: Tensor) -> str:
    """Write how many fields of which shape and dtype a batch holds."""
    return f"{plural(len(u), 'field')} of {extents(u.shape[1:])}, {dtype_text(u)}"


def dtype_text(u: Tensor) -> str:
    """Write a dtype without the name of its package."""
    return str(u.dtype).removeprefix("torch.")


def largest_text(values: Tensor) -> str:
    """Write the largest of some sizes; 0 where there are none."""
    return scientific(float(values.max())) if len(values) else "0"


def _typical(values: Tensor) -> str:
    return scientific(float(values.nanmedian())) if len(values) else "0"


@dataclass(frozen=True)
class Limits:
    """Lower and upper limit of every unknown, infinite where there is none, and the names of the Bounds."""

    lower: Values
    upper: Values
    names: tuple[str, ...] = ()

    @cached_property
    def bounded(self) -> Mask:
        """Which unknowns have any limit."""
        return np.isfinite(self.lower) | np.isfinite(self.upper)


def limits_of(laws: Sequence[Law], shape: tuple[int, ...]) -> Limits:
    """Combine the Bounds among the laws: the tightest limits hold."""
    lower, upper = np.full(shape, -np.inf), np.full(shape, np.inf)
    names = []
    for law in laws:
        if isinstance(law, Bounds):
            names.append(law.name)
            if law.lower is not None:
                lower = np.maximum(lower, _spread(law.name, law.lower, shape))
            if law.upper is not None:
                upper = np.minimum(upper, _spread(law.name, law.upper, shape))
    if not (lower <= upper).all():
        raise ShapeError(
            f"laws expects bounds that leave room; {names} together have a lower limit above an upper one. Correct one of them."
        )
    return Limits(lower.ravel(), upper.ravel(), tuple(names))


def _spread(name: str, limit: float | torch.Tensor, shape: tuple[int, ...]) -> Values:
    value = torch.as_tensor(limit, dtype=torch.float64).detach().cpu().numpy()
    try:
        spread: Values = np.broadcast_to(value, shape)
    except ValueError as cause:
        raise ShapeError(
            f"Bounds '{name}' expects limits that broadcast to a field of shape {shape}; got shape {value.shape}. Give a number, "
            "or a tensor of the field's shape."
        ) from cause
    return spread
