"""MatrixFreeLaws: laws whose matrices are too large to write out, as products with the Jacobian that torch evaluates.

A law through a transform of a whole plane has as many entries as the plane has pairs of points, but costs one transform to
evaluate, and a few to multiply by J, Jᵀ or a Hessian. Nothing is known of its rows but these products: no presolve, no
substitutions, no proof that laws contradict each other. Consumes laws as they are written. Knows nothing of solvers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from snapfm.arrays import Values
from snapfm.compile.stack import LawStack, limits_text
from snapfm.compile.trace.trace import TracedLaw, example_of, trace_law
from snapfm.compile.units import Units
from snapfm.display import Sheet
from snapfm.laws import Bounds, Equality, Inequality, Law, Params
from snapfm.progress import Report, silent
from snapfm.text import counted, one_field, plural

Product = Callable[[Tensor], Tensor]  # of a matrix and a vector


@dataclass(frozen=True, repr=False)
class MatrixFreeLaws(LawStack):
    """All rows of some laws on fields of one shape, without a pattern. `layouts` are the shapes that the laws return."""

    shape: tuple[int, ...]
    laws: tuple[TracedLaw, ...]
    example: tuple[Tensor, dict[str, Tensor]]  # one float64 sample: field, params
    layouts: tuple[tuple[int, ...], ...]
    reason: str  # why no matrix is written out: a clause of the description
    bounds: tuple[Bounds, ...] = ()  # which have no rows
    remarks: list[str] = field(default_factory=list, compare=False)  # of a projector, for the description; written once
    units: Units | None = None

    def in_units(self, units: Units) -> MatrixFreeLaws:
        """Return the laws of x = u/s, with weighted rows: residuals and derivatives take x."""
        return replace(self, units=units)

    def residual(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate all rows on a batch: (b, *shape) to (b, m)."""
        if self.units is None:
            return super().residual(u, params)
        rows = super().residual(u * torch.from_numpy(self.units.unknowns).reshape(self.shape), params)
        return rows * torch.from_numpy(self.units.rows)

    @property
    def nnz(self) -> int:
        """Number of entries of the stacked Jacobian that may be non-zero: all of them, as far as is known."""
        return self.rows * self.unknowns

    @cached_property
    def affine(self) -> bool:
        """Whether all slopes are constant: no derivative reads the field."""
        found = self.linearize(*self.example)
        return found.hessian(torch.ones_like(found.residual)) is None

    def linearize(self, u: Tensor, params: Params) -> Linearization:
        """Return residuals and products with their derivatives at one field and its params, float64."""
        return Linearization(self.laws, u, params, self.units)

    def transpose_abs_product(self, u: Tensor, params: Params, sizes: Values) -> Values:
        """Estimate √((J∘J)ᵀ sizes²) by one product with random signs: how far Jᵀλ is off by rounding, for a unit of it."""
        generator = torch.Generator().manual_seed(0)
        signs = 1.0 - 2.0 * torch.randint(2, (self.rows,), generator=generator, dtype=torch.float64)
        own = {name: value[0] for name, value in params.items()}
        found: Values = self.linearize(u[0], own).pull(signs * torch.from_numpy(sizes)).abs().numpy()
        return found

    def sheet(self) -> Sheet:
        """Describe rows, and why there is no matrix."""
        kind = "affine" if self.affine else "nonlinear"
        title = f"{one_field(self.shape)}: {plural(self.unknowns, 'unknown')}, {plural(self.rows, 'row')}, {kind}"
        rows = [(law.name, law.kind, counted(law.rows)) for law in self.laws]
        lines = [limits_text(one) for one in self.bounds]
        lines.append(
            f"matrix-free: {self.reason}; torch multiplies by the Jacobian, and Krylov iterations solve with it"
        )
        return Sheet(title, ("law", "kind", "rows"), rows, [*lines, *self.remarks], frozenset({0, 1}))


class Linearization:
    """Laws at one field: residual (m,), and products with J, Jᵀ and Σλ∇²h. For one thread."""

    def __init__(self, laws: Sequence[TracedLaw], u: Tensor, params: Params, units: Units | None = None) -> None:
        with torch.enable_grad():
            self._at = u.detach().clone().requires_grad_()
            field = self._at if units is None else self._at * torch.from_numpy(units.unknowns).reshape(u.shape)
            rows = torch.cat([law.graph(field, dict(params)).reshape(-1) for law in laws])
            self._rows = rows if units is None else rows * torch.from_numpy(units.rows)
            # Jᵀy as a function of y, which is linear: its own derivative along d is Jd. No forward derivatives are needed.
            self._weight = torch.zeros_like(self._rows, requires_grad=True)
            (self._slope,) = torch.autograd.grad(self._rows, self._at, self._weight, create_graph=True)
        self.residual = self._rows.detach()

    def push(self, direction: Tensor) -> Tensor:
        """Return Jd (m,) for d (n,)."""
        return _product(self._slope, self._weight, direction)

    def pull(self, multipliers: Tensor) -> Tensor:
        """Return Jᵀλ (n,) for λ (m,)."""
        return _product(self._rows, self._at, multipliers)

    def hessian(self, multipliers: Tensor) -> Product | None:
        """Return the product with Σλ∇²h; None if no slope depends on the field."""
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self._rows, self._at, multipliers, create_graph=True)
        if not slope.requires_grad:
            return None
        read: tuple[Tensor | None, ...] = torch.autograd.grad(
            slope, self._at, torch.ones_like(slope), retain_graph=True, allow_unused=True
        )
        if read[0] is None:
            return None

        def product(direction: Tensor) -> Tensor:
            return _product(slope, self._at, direction)

        return product


def _product(value: Tensor, by: Tensor, weight: Tensor) -> Tensor:
    """Return the derivative of Σ weight·value, flat."""
    (found,) = torch.autograd.grad(value, by, weight.reshape(value.shape), retain_graph=True)
    return found.reshape(-1)


def matrix_free(
    laws: Sequence[Law], shape: tuple[int, ...], params: Params | None, reason: str, report: Report = silent
) -> MatrixFreeLaws:
    """Trace equalities and inequalities on fields of one shape; `params` are an example with a leading batch axis.

    `reason` says why no matrix is written out.
    """
    u, sample = example_of(shape, params)
    traced, layouts = [], []
    for law in laws:
        if isinstance(law, Bounds):
            continue
        assert isinstance(law, (Equality, Inequality))
        report(f"tracing law '{law.name}' without a matrix")
        traced.append(trace_law(law, u, sample))
        with torch.no_grad():
            layouts.append(
                tuple(law.residual(u.clone(), {name: value.clone() for name, value in sample.items()}).shape)
            )
    return MatrixFreeLaws(
        tuple(shape), tuple(traced), (u, sample), tuple(layouts), reason,
        tuple(law for law in laws if isinstance(law, Bounds)),
    )  # fmt: skip
