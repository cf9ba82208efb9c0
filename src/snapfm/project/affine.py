"""Affine laws, closed form: u = û − Aᵀ(AAᵀ)⁻¹(Aû − b), one factorisation for all samples and steps (math.md, eq. affine).

Rows that pin one unknown set it directly and leave the system; redundant rows are dropped and judged with the others.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csc_array, csr_array
from scipy.sparse.linalg import SuperLU, splu
from torch import Tensor

from snapfm.errors import Status
from snapfm.kernels.runs import add_batch, join, products, step_back
from snapfm.kernels.sparse import multiply
from snapfm.kernels.threads import Turn, cut, run, workers
from snapfm.laws import Params
from snapfm.project.base import Solution, Warm
from snapfm.project.budget import Budget
from snapfm.structure import Structure

Values = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

# One solve is exact up to the condition of AAᵀ; each further one squares the error away. More never helped.
_SOLVES = 3
_WORTH_SHARING = 8e-3  # seconds of work that make it worth to wake another thread
_NEAR = 16  # samples moved at once without a certificate: few, so that the second pass over them finds them in a cache


class Affine:
    """The prepared closed form: factors and index arrays of one Structure whose rows are all affine and constant."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        found = structure.presolve
        self.fixed, self.pins, self.kept = found.fixed, found.pins, found.kept
        matrix = structure.pattern.csr(structure.constants)
        self.pin_values = matrix[self.pins, self.fixed] if len(self.pins) else np.zeros(0)
        free = np.ones(structure.unknowns, bool)
        free[self.fixed] = False
        kept = csr_array(matrix[self.kept])
        self.kept_on_fixed = csr_array(kept[:, self.fixed])
        self.kept_on_free = csr_array(kept @ _diagonal(free))
        self.kept_on_free.eliminate_zeros()
        self.solver = Gram(self.kept_on_free)
        # Aᵀ of the rows in use, by unknown: pins and kept rows keep their place in the stack of all rows.
        used = np.zeros(structure.rows, bool)
        used[self.pins] = used[self.kept] = True
        by_column = csc_array(_diagonal(used) @ matrix)
        by_column.eliminate_zeros()
        entries = by_column.tocoo()
        self.runs = join(entries.col.astype(np.int64), entries.row.astype(np.int64), entries.data)
        self.matrix = csr_array(matrix)
        self.dropped = torch.from_numpy(found.dropped)
        self._constant: tuple[Params, Values] | None = None  # params and their offset; swapped whole, read once
        self._pace = 0.0  # processor seconds a sample took at the last call

    @property
    def fill(self) -> int:
        """Non-zeros of the factor of AAᵀ."""
        return self.solver.fill

    def solve(self, start: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget) -> Solution:
        """Project a float64 batch (b, *shape); repeat the step for samples whose rounding exceeds the tolerance.

        `warm` is of no use to a closed form.
        """
        count = len(start)
        field = start.reshape(count, self.structure.unknowns).numpy()
        offset, total = self._offset(start, params), np.zeros((count, self.structure.rows))
        u, gap, distance = np.empty_like(field), np.empty(count), np.empty(count)
        iterations, status = np.zeros(count, np.int64), np.full(count, Status.ITERATION_LIMIT, np.int8)
        live = np.ones(count, bool)

        def work(piece: slice, turn: Turn) -> bool:
            if not live[piece].any() or turn.over:
                if not iterations[piece].any():
                    u[piece], gap[piece], distance[piece] = field[piece], 0.0, 0.0
                return not turn.over
            # Own products, not the law's: the order of torch's sums, and so the last bits of u, may depend on the batch size.
            residual = offset[piece].copy()
            products(self.runs, u[piece] if iterations[piece].any() else field[piece], residual)
            total[piece] += np.where(live[piece, None], self.multipliers(residual), 0.0)
            step_back(self.runs, total[piece], field[piece], u[piece], gap[piece], distance[piece])
            iterations[piece] += live[piece]
            status[piece] = Status.CONVERGED
            return True

        for left in reversed(range(_SOLVES)):
            threads = workers() if self._pace * count > _WORTH_SHARING else 1
            spent = run(work, cut(count, 1, -(-count // _NEAR)), budget.clock, threads)
            self._pace = spent / max(count, 1)
            judged = self.structure.residual(torch.from_numpy(u).reshape(start.shape), params)
            live = self._broken(judged, tolerance) & (status == Status.CONVERGED)
            if left == 0 or not live.any():
                break
        return Solution(
            torch.from_numpy(u), torch.from_numpy(total), torch.from_numpy(iterations), judged, torch.from_numpy(gap),
            torch.from_numpy(distance), torch.from_numpy(status),
        )  # fmt: skip

    def move(
        self, given: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget
    ) -> tuple[Tensor, None]:
        """Do the same without a certificate, in the dtype given; two solves where the factor's condition calls for it."""
        field, offset = given.reshape(len(given), self.structure.unknowns).numpy(), self._offset(given, params)
        out, memory = np.empty_like(field), np.empty((_NEAR, self.structure.unknowns))
        for piece in cut(len(field), 1, -(-len(field) // _NEAR)):
            u = memory[: piece.stop - piece.start]
            u[:] = field[piece]
            for _ in range(0 if budget.over else 1 if self.solver.factor is None else 2):
                residual = offset[piece].copy()
                products(self.runs, u, residual)
                add_batch(self.runs, -self.multipliers(residual), u)
            out[piece] = u
        return torch.from_numpy(out).reshape(given.shape), None

    def recall(self, u: Tensor, multipliers: Tensor, usable: Tensor) -> None:
        """Begin nowhere: a closed form has no use for an earlier answer."""

    def _offset(self, start: Tensor, params: Params) -> Values:
        """What the params contribute to the rows; kept while the same params come again, as they do in every flow step."""
        kept = self._constant
        if kept is not None and kept[0] is params:  # one batch's params are one object: see Projector
            return kept[1]
        zero = torch.zeros((), dtype=torch.float64).expand(start.shape)
        offset: Values = self.structure.residual_alone(zero, params).numpy()
        self._constant = (params, offset)
        return offset

    def _broken(self, residual: Tensor, tolerance: float) -> npt.NDArray[np.bool_]:
        """Samples with a row in use above the tolerance; NaN counts as nothing to mend."""
        if residual.shape[1] == 0:
            return np.zeros(len(residual), bool)
        worst = residual.abs()
        if len(self.dropped):
            worst[:, self.dropped] = 0.0
        return (worst.amax(dim=1) > tolerance).numpy()

    def multipliers(self, residual: Values) -> Values:
        """Solve for λ (b, m) such that û − Aᵀλ has residual zero, given the residual of û."""
        out = np.zeros_like(residual)
        shift = residual[:, self.pins] / self.pin_values  # how far each fixed unknown moves
        reduced = residual[:, self.kept]
        if self.kept_on_fixed.nnz:
            moved = np.empty_like(reduced)
            multiply(*_arrays(self.kept_on_fixed), shift, moved)
            reduced = reduced - moved
        weights = self.solver.solve(reduced)
        out[:, self.kept] = weights
        # A fixed unknown moves by `shift` in all: what the kept rows already contribute comes off its own row's share.
        if self.kept_on_fixed.nnz:
            pulled = np.empty((len(residual), len(self.fixed)))
            multiply(*_arrays(self._fixed_by_kept()), np.ascontiguousarray(weights), pulled)
            shift = shift - pulled
        out[:, self.pins] = shift / self.pin_values
        return out

    def adjoint(self, solved: Solution, params: Params, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Solve the optimality system's transpose, the same wherever the answer is: w = gradient − Aᵀν with A w = 0."""
        flat = np.ascontiguousarray(gradient.reshape(len(gradient), self.structure.unknowns).numpy())
        image = np.empty((len(flat), self.structure.rows))
        multiply(*_arrays(self.matrix), flat, image)
        weight = self.multipliers(image)
        out, gap, distance = np.empty_like(flat), np.empty(len(flat)), np.empty(len(flat))
        step_back(self.runs, weight, flat, out, gap, distance)
        return torch.from_numpy(out), torch.from_numpy(weight)

    def _fixed_by_kept(self) -> csr_array:
        return csr_array(self.kept_on_fixed.T)


class Gram:
    """The factor of AAᵀ for one sparse A; a diagonal one, such as totals over disjoint slices give, is only divided by."""

    def __init__(self, matrix: csr_array) -> None:
        gram = csc_array(matrix @ matrix.T)
        self.size = gram.shape[0]
        self.diagonal: Values | None = None
        self.factor: SuperLU | None = None
        if gram.nnz == np.count_nonzero(gram.diagonal()):
            self.diagonal = gram.diagonal()
        else:
            self.factor = splu(gram, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})

    @property
    def fill(self) -> int:
        """Non-zeros of the factor."""
        return self.size if self.factor is None else int(self.factor.L.nnz)

    def solve(self, right: Values) -> Values:
        """Solve for every sample (b, m) alone: a solve of many columns at once may round differently than of one."""
        if self.diagonal is not None:
            return right / self.diagonal
        assert self.factor is not None
        out = np.empty_like(right)
        for i, row in enumerate(right):
            out[i] = self.factor.solve(row) if np.isfinite(row).all() else np.nan
        return out


def _diagonal(mask: npt.NDArray[np.bool_]) -> csr_array:
    place = np.flatnonzero(mask)
    return csr_array((np.ones(len(place)), (place, place)), shape=(len(mask), len(mask)))


def _arrays(matrix: csr_array) -> tuple[Index, Index, Values]:
    return matrix.indptr, matrix.indices, matrix.data
