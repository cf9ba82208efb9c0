"""Results of projections: Projection with a certificate per sample, Moved without, and which samples a result holds.

Must not import a method or a projector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeAlias, TypeVar

import torch
from torch import Tensor

from snapfm.arrays import Index
from snapfm.display import Sheet
from snapfm.errors import ParamsError, ProjectionFailed, Status
from snapfm.solve.base import Warm
from snapfm.text import extents, plural, scientific

_LISTED = 8  # failed samples named in a message; the rest are counted
# What `scatter` writes where it has no sample; in all other fields NaN, or 0.
_MISSING = {"status": int(Status.NONFINITE), "second_order": -1}

Chosen: TypeAlias = Tensor | Index | slice | Sequence[int] | int
Path: TypeAlias = tuple[str, ...]  # of a tensor in a result: its field, and under it its law
Result = TypeVar("Result")


def tensors(result: Any) -> dict[Path, Tensor]:
    """List the tensors of a result, in the order of its fields: one entry per sample each."""
    found: dict[Path, Tensor] = {}
    for one in fields(result):
        value = getattr(result, one.name)
        if isinstance(value, Tensor):
            found[one.name,] = value
        elif isinstance(value, dict):
            found |= {(one.name, law): rows for law, rows in value.items() if isinstance(rows, Tensor)}
    return found


def with_tensors(result: Result, values: Mapping[Path, Tensor], **others: Any) -> Result:
    """Return a result with these tensors, and with `others` of its fields."""
    for (name, *law), value in values.items():
        if law:
            others.setdefault(name, {})[law[0]] = value
        else:
            others[name] = value
    return replace(result, **others)  # type: ignore[type-var]


class PerSample:
    """A result whose tensors have one entry per sample. Its methods are differentiable."""

    warm: Warm | None

    def select(self, samples: Chosen) -> Self:
        """Return the result of some samples, in their order: numbers (k,), one number, a mask (b,) or a slice. Keeps `warm`."""
        index = _index(samples)
        warm = self.warm and self.warm.part(index if isinstance(index, slice) else index.numpy())
        return with_tensors(self, {path: one[index] for path, one in tensors(self).items()}, warm=warm)

    def scatter(self, samples: Chosen, count: int) -> Self:
        """Return a result of `count` samples that has these (b,) at `samples`; the others are NaN and NONFINITE. Drops `warm`."""
        index, found = _index(samples), {}
        for path, one in tensors(self).items():
            missing = _MISSING.get(path[0], torch.nan if one.is_floating_point() else 0)
            found[path] = one.new_full((count, *one.shape[1:]), missing)
            found[path][index] = one
        return with_tensors(self, found, warm=None)

    def where(self, mask: Tensor, other: Self) -> Self:
        """Return these samples where `mask` (b,), and those of another result of the same batch elsewhere. Drops `warm`."""
        _check_alike("where(mask, other)", (self, other), 0)
        found, others = {}, tensors(other)
        for path, one in tensors(self).items():
            found[path] = torch.where(mask.to(one.device).view(-1, *[1] * (one.ndim - 1)), one, others[path])
        return with_tensors(self, found, warm=None)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Self:
        """Return the result on a device, with the fields `u` in another dtype. Keeps `warm`, which is the method's.

        Certificates keep their dtype and speak of the fields before rounding; Projector.check judges those after it.
        """
        found = {path: one.to(device, dtype if path == ("u",) else None) for path, one in tensors(self).items()}
        return with_tensors(self, found)

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Join results of batches, in their order. Keeps `warm` if all parts have one of the same method."""
        if not parts:
            raise ParamsError(
                "concat(parts) expects at least one result; got none. Join those of a batch that has samples."
            )
        _check_alike("concat(parts)", parts, 1)
        values, warm = [tensors(one) for one in parts], [one.warm for one in parts if one.warm is not None]
        kept = len(warm) == len(parts) and all(one.owner is warm[0].owner for one in warm)
        return with_tensors(
            parts[0], {path: torch.cat([one[path] for one in values]) for path in values[0]},
            warm=Warm.joined(warm) if kept else None,
        )  # fmt: skip


def _index(samples: Chosen) -> Tensor | slice:
    """Return numbers or a mask of samples as an index on the CPU."""
    if isinstance(samples, slice):
        return samples
    index = torch.as_tensor(samples).detach().cpu()
    index = index if index.ndim else index[None]
    if index.ndim > 1 or (len(index) and index.dtype.is_floating_point):  # an empty list is one of floats
        raise ParamsError(
            f"samples expects numbers (k,), a mask (b,) or a slice; got {index.dtype} of shape {tuple(index.shape)}. Write "
            "result.select(result.converged), or result.select([0, 2])."
        )
    return index if index.dtype == torch.bool else index.long()


def _check_alike(call: str, results: Sequence[Any], axis: int) -> None:
    """Refuse results of other laws, at another tolerance, or whose shapes differ from this axis on."""
    first, *others = (
        {
            ("tolerance", str(getattr(one, "tolerance", None))),
            *((" of ".join(reversed(path)), tuple(value.shape[axis:])) for path, value in tensors(one).items()),
        }
        for one in results
    )
    for other in others:
        if other != first:
            came, wanted = (", ".join(sorted(f"{a} {b}" for a, b in one)) for one in (other - first, first - other))
            raise ParamsError(
                f"{call} expects results of the same laws, shapes and tolerance; got {came or 'none'} beside {wanted or 'none'}. "
                "Make them with one projector, at one tolerance."
            )


@dataclass(frozen=True)
class Moved(PerSample):
    """The nearest feasible fields without a certificate: all that a flow step before the last needs."""

    u: Tensor
    """Fields (b, *shape), in the dtype and on the device of the input."""
    warm: Warm | None

    def __repr__(self) -> str:
        return f"Moved({fields_text(self.u)})"


@dataclass(frozen=True)
class Projection(PerSample):
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
    tolerance: float | dict[str, float]
    """The largest violation that counts as obeyed, in the law's own units; that of every law by its name if they differ."""
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
        lines = [f"tolerance {tolerance_text(self.tolerance)}; stationarity at most {largest_text(self.stationarity)}"]
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
        """Name the law that is broken most, measured by its tolerance; NaN counts as the largest."""
        sizes = {name: float(value[sample]) for name, value in self.by_law.items()}
        if not sizes:
            return "no law"
        own = self.tolerance if isinstance(self.tolerance, dict) else dict.fromkeys(sizes, self.tolerance)
        name = max(sizes, key=lambda key: sizes[key] / own[key] if sizes[key] == sizes[key] else float("inf"))
        return f"law '{name}' is off by {sizes[name]:.1e} (tolerance {own[name]:.0e})"


def tolerance_text(tolerance: float | Mapping[str, float]) -> str:
    """Write a tolerance, or those of laws."""
    if isinstance(tolerance, Mapping):
        return ", ".join(f"{name} {value:g}" for name, value in tolerance.items())
    return f"{tolerance:g}"


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
