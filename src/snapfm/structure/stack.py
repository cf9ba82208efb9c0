"""Structure: the plans of all laws stacked into one system of rows, evaluated for whole batches.

The value that joins laws and projectors, and a tool of its own: sparse Jacobians and curvature of plain torch functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, eye_array, tril
from torch import Tensor

from snapfm.errors import LawError
from snapfm.kernels.ordering import best
from snapfm.laws import Bounds, Equality, Inequality, Law, Params
from snapfm.structure.curvature import RowKind
from snapfm.structure.describe import describe
from snapfm.structure.exclusive import jvp
from snapfm.structure.pattern import Pattern
from snapfm.structure.plan import LawPlan, plan_law
from snapfm.structure.presolve import SEARCH_LIMIT, Presolve, presolve
from snapfm.structure.trace import coarsest

# Agreement asked of two independent ways to a derivative, relative to its largest entry: rounding of long sums.
_AGREE = 1e-9
_ROUNDINGS = 1e3  # of a law that passes through a coarser dtype than float64


@dataclass(frozen=True)
class Structure:
    """All rows of a list of laws on fields of one shape, in the order the laws were given."""

    shape: tuple[int, ...]
    plans: tuple[LawPlan, ...]
    example: tuple[Tensor, dict[str, Tensor]]  # the float64 sample it was found at: one field, its params
    note: str = ""  # what a projector has to say of it, a last line when it is told

    @property
    def unknowns(self) -> int:
        """Number of unknowns of one field."""
        return int(np.prod(self.shape))

    @property
    def rows(self) -> int:
        """Number of rows of all laws."""
        return sum(plan.rows for plan in self.plans)

    @property
    def nnz(self) -> int:
        """Number of entries of the stacked Jacobian that may be non-zero."""
        return sum(plan.pattern.nnz for plan in self.plans)

    @cached_property
    def pattern(self) -> Pattern:
        """Where the stacked Jacobian may be non-zero; its values are those of the laws, one after the other."""
        starts = np.cumsum([0, *(plan.pattern.nnz for plan in self.plans)])
        indptr = np.concatenate([[0], *(plan.pattern.indptr[1:] + start for plan, start in zip(self.plans, starts))])
        indices = np.concatenate([np.zeros(0, np.int64), *(plan.pattern.indices for plan in self.plans)])
        return Pattern(self.rows, self.unknowns, indptr.astype(np.int64), indices)

    @cached_property
    def kinds(self) -> npt.NDArray[np.int64]:
        """Kind of every row."""
        return np.concatenate([np.zeros(0, np.int64), *(plan.curvature.kinds for plan in self.plans)])

    @cached_property
    def constants(self) -> npt.NDArray[np.float64]:
        """Jacobian values of the rows whose slopes never change; zero for all others."""
        return np.concatenate([np.zeros(0), *(plan.constants for plan in self.plans)])

    @cached_property
    def equality_rows(self) -> npt.NDArray[np.bool_]:
        """Which rows must vanish (the others must not be positive)."""
        return np.concatenate([np.zeros(0, bool), *(np.full(p.rows, p.kind == "equality") for p in self.plans)])

    @cached_property
    def presolve(self) -> Presolve:
        """Fixed unknowns and redundant rows, found at first use."""
        constant = (self.kinds == RowKind.AFFINE) & self.equality_rows
        return presolve(self.pattern, self.constants, constant)

    @cached_property
    def fill(self) -> int | None:
        """Entries of the factor of JJᵀ over the rows left and the unknowns not fixed; None when too many to look at."""
        found = self.presolve
        if not 0 < len(found.kept) <= SEARCH_LIMIT:
            return 0 if len(found.kept) == 0 else None
        rows = self.pattern.take(found.kept)
        free = ~np.isin(rows.indices, found.fixed)
        matrix = csr_array((free.astype(float), rows.indices, rows.indptr), shape=(rows.rows, rows.columns))
        matrix.eliminate_zeros()
        gram = csr_array(tril(matrix @ matrix.T + eye_array(rows.rows)))
        gram.sort_indices()
        return best(gram.indptr.astype(np.int64), gram.indices.astype(np.int64)).fill

    @property
    def affine(self) -> bool:
        """Whether every row is affine with slopes that never change."""
        return bool((self.kinds == RowKind.AFFINE).all())

    def where(self, row: int) -> tuple[LawPlan, int]:
        """Say which law a stacked row belongs to, and which of its rows it is."""
        for plan in self.plans:
            if row < plan.rows:
                return plan, row
            row -= plan.rows
        raise IndexError(row)

    def slices(self) -> dict[str, slice]:
        """Give the stacked rows of each law by its name."""
        return self._slices

    @cached_property
    def _slices(self) -> dict[str, slice]:
        starts = np.cumsum([0, *(plan.rows for plan in self.plans)])
        return {plan.name: slice(int(a), int(b)) for plan, a, b in zip(self.plans, starts, starts[1:])}

    def residual(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate all rows on a batch: (b, *shape) to (b, m)."""
        return torch.cat([u.new_zeros(len(u), 0), *(plan.residual(u, params) for plan in self.plans)], dim=1)

    def residual_alone(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate all rows sample by sample: slower, with bits that do not depend on the batch."""
        return torch.cat([u.new_zeros(len(u), 0), *(plan.batched.alone(u, params) for plan in self.plans)], dim=1)

    def jacobian(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate the stacked Jacobian's values on a batch: (b, nnz), in the order of `pattern`."""
        return torch.cat([u.new_zeros(len(u), 0), *(plan.jacobian(u, params) for plan in self.plans)], dim=1)

    def hessian(self, u: Tensor, params: Params, weight: Tensor) -> list[csr_array]:
        """Evaluate Σλ∇²h of all rows, one sparse matrix (n, n) per sample; weight is λ (b, m)."""
        total = [csr_array((self.unknowns, self.unknowns)) for _ in range(len(u))]
        for plan, rows in zip(self.plans, self.slices().values()):
            pattern = plan.curvature.pattern
            if pattern is not None and pattern.nnz == 0:
                continue
            values = plan.hessian(u, params, weight[:, rows]).cpu().numpy()
            assert pattern is not None  # plan.hessian has refused it otherwise
            total = [csr_array(one + pattern.csr(value)) for one, value in zip(total, values)]
        return total

    def check(self, u: Tensor, params: Params) -> None:
        """Compare the sparse Jacobian with one random product per law: cheap enough for every first use.

        Raises LawError when an entry is missing; `u` is one field with a batch axis of 1.
        """
        sample = {name: value[0] for name, value in params.items()}
        for plan in self.plans:
            product, truth, place = _products(plan, plan.jacobian(u[:1], params)[0], u[0], sample)
            if not torch.isfinite(truth).all():
                continue  # the example point lies outside the law's domain; the judge will see it at run time
            scale = float(truth.abs().max()) if truth.numel() else 0.0
            off = (product - truth).abs().nan_to_num(nan=torch.inf)
            if truth.numel() and float(off.max()) > _agreement(plan) * max(scale, 1.0):
                raise LawError(
                    f"law '{plan.name}' expects a pattern with every entry that can be non-zero; {place} "
                    f"{int(off.argmax())} lacks some (its slope is off by {float(off.max()):.1e}). Correct the pattern "
                    "given, or leave it out."
                )

    def verify(self, u: Tensor, params: Params) -> None:
        """Compare Jacobian and curvature with dense ones at a batch of fields; slow, for tests and small fields.

        Raises LawError naming the law and the worst entry.
        """
        for plan in self.plans:
            _verify(plan, u, params)

    def __str__(self) -> str:
        told = describe(self.shape, self.plans, self.presolve, self.where, self.fill)
        return f"{told}\n{self.note}" if self.note else told


def analyze(laws: Sequence[Law], shape: tuple[int, ...], params: Params | None = None) -> Structure:
    """Find the structure of laws on fields of one shape; `params` are an example with a leading batch axis.

    Bounds have no rows and are left out. Raises LawError for laws that cannot be used as written.
    """
    sample = {name: value[0].detach().cpu() for name, value in (params or {}).items()}
    sample = {name: value.double() if value.is_floating_point() else value for name, value in sample.items()}
    generator = torch.Generator().manual_seed(0)
    # Uniform in (0.1, 0.9): inside the domain of roots and logarithms, away from the kinks at 0 and 1.
    u = 0.1 + 0.8 * torch.rand(tuple(shape), generator=generator, dtype=torch.float64)
    plans: list[LawPlan] = []
    for law in laws:
        if isinstance(law, Bounds):
            continue
        if not isinstance(law, (Equality, Inequality)):
            raise LawError(
                f"laws expects Equality, Inequality and Bounds; got {type(law).__name__}. Wrap a function: "
                "snapfm.Equality('name', function)."
            )
        plans.append(plan_law(law, u, sample))
    return Structure(tuple(shape), tuple(plans), (u, sample))


def _agreement(plan: LawPlan) -> float:
    return max(_AGREE, _ROUNDINGS * coarsest(plan.graph))


def _products(plan: LawPlan, values: Tensor, u: Tensor, params: Params) -> tuple[Tensor, Tensor, str]:
    """Multiply the sparse Jacobian and the true one with a random vector; say what the elements of the products are."""
    generator = torch.Generator().manual_seed(0)
    sparse = plan.pattern.csr(values.cpu().numpy())

    def residual(x: Tensor) -> Tensor:
        value: Tensor = plan.graph(x, dict(params))
        return value

    try:
        direction = torch.randn(u.shape, generator=generator, dtype=u.dtype).to(u.device)
        truth = jvp(residual, u, direction)
        return torch.from_numpy(sparse @ direction.flatten().cpu().numpy()), truth.cpu(), "row"
    except (NotImplementedError, RuntimeError):  # an operator without a forward derivative: multiply from the left
        value, pull = torch.func.vjp(residual, u)[:2]
        weight = torch.randn(plan.rows, generator=generator, dtype=u.dtype).to(u.device)
        truth = pull(weight.to(value.dtype))[0].flatten()
        return torch.from_numpy(sparse.T @ weight.cpu().numpy()), truth.cpu(), "unknown"


def _verify(plan: LawPlan, u: Tensor, params: Params) -> None:
    unknowns = u.shape[1:].numel()
    if plan.rows * unknowns == 0:
        return
    weight = torch.randn(len(u), plan.rows, generator=torch.Generator().manual_seed(1), dtype=u.dtype)
    jacobian = plan.jacobian(u, params)
    hessian = plan.hessian(u, params, weight) if plan.hessian_passes is not None else None
    for i in range(len(u)):
        sample = {name: value[i] for name, value in params.items()}

        def residual(x: Tensor, sample: Params = sample) -> Tensor:
            value: Tensor = plan.graph(x, dict(sample))
            return value

        dense = torch.func.jacrev(residual)(u[i]).reshape(plan.rows, unknowns)
        _compare(plan, "Jacobian", plan.pattern, jacobian[i], dense)
        if hessian is None or plan.hessian_passes is None:
            continue

        def total(x: Tensor, weight: Tensor = weight[i], sample: Params = sample) -> Tensor:
            return (weight * residual(x, sample)).sum()

        dense = torch.func.jacrev(torch.func.grad(total))(u[i]).reshape(unknowns, unknowns)
        _compare(plan, "curvature", plan.hessian_passes.pattern, hessian[i], dense)


def _compare(plan: LawPlan, what: str, pattern: Pattern, values: Tensor, dense: Tensor) -> None:
    sparse = torch.from_numpy(pattern.csr(values.numpy()).toarray())
    off = torch.where(dense.isfinite(), (sparse - dense).abs().nan_to_num(nan=torch.inf), 0.0)
    scale = max(1.0, float(dense.abs().nan_to_num().max())) if dense.numel() else 1.0
    if off.numel() and float(off.max()) > _agreement(plan) * scale:
        row, column = divmod(int(off.argmax()), dense.shape[1])
        raise LawError(
            f"law '{plan.name}': {what} entry ({row}, {column}) expects {float(dense[row, column]):.6e}; the sparse one is "
            f"{float(sparse[row, column]):.6e}. Give the pattern by hand and report the law."
        )
