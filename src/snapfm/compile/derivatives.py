"""Derivatives of lowered laws: Jacobian and Hessian values of whole batches from one scalar program.

For gradients through a projection, certificates of peers and checks. The projection itself has smaller programs of its own.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.fx import GraphModule

from snapfm.arrays import Index, Values
from snapfm.compile.lower.tape import Tape, Unlowerable
from snapfm.compile.program import Program, build_program
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.compile.trace.batched import Batched, each
from snapfm.kernels.batches import derivatives, pull
from snapfm.laws import Params

_ENTRIES_A_PIECE = 2_000_000  # of the rows of one program that is not kept: some hundred megabytes while it is built


def evaluate_externals(tape: Tape, example: Tensor, params: Params, count: int) -> Values:
    """Evaluate what depends on params only, with torch: (b, cells of params), numbered as in the tape."""
    first = tape.unknowns + 1
    out = np.zeros((count, tape.cells - first))
    # Sample by sample, each param in memory of its own: compiled laws keep their bits in any batch.
    samples = [{name: value[i].clone() for name, value in params.items()} for i in range(count)]
    for cell, graph, size in tape.externals:

        def one(i: int, graph: GraphModule = graph) -> Tensor:
            value: Tensor = graph(example, samples[i])
            return value

        out[:, cell - first : cell - first + size] = each(one, count).reshape(count, size).double().numpy()
    return out


def differentiable_externals(tape: Tape, example: Tensor, params: Params, count: int) -> tuple[Index, Tensor]:
    """Return the same for torch to differentiate, all samples at once: which of these numbers, and their values."""
    places = [cell - tape.unknowns - 1 + np.arange(size) for cell, _, size in tape.externals]
    which = np.concatenate([np.zeros(0, np.int64), *places])

    def values(u: Tensor, own: Params) -> Tensor:
        found = [graph(u, own).reshape(-1).to(torch.float64) for _, graph, _ in tape.externals]
        return torch.cat([u.new_zeros(0, dtype=torch.float64), *found])

    return which, Batched(values, len(which))(example.expand(count, *example.shape), params)


class Scalar:
    """The rows of all lowered laws over all unknowns. Programs are built at first use."""

    def __init__(self, tape: Tape, rows: csr_array, example: Tensor) -> None:
        self.tape, self.rows, self.example = tape, rows, example

    def pull(self, u: Tensor, params: Params, rows: slice, multipliers: Values) -> Values:
        """Evaluate Jᵀλ of some rows on a batch (b, *shape) with multipliers (b, m): (b, n).

        With a program for a few rows at a time, which is not kept: for checks, not for iterations.
        """
        out = np.zeros((len(u), self.tape.unknowns))
        ends = self.rows.indptr[rows.start : rows.stop + 1]
        pieces = max(1, int(ends[-1] - ends[0]) // _ENTRIES_A_PIECE)
        for index in np.array_split(np.arange(rows.start, rows.stop), pieces):
            program = build_program(self.tape, csr_array(self.rows[index]), np.zeros(0, np.int64))
            field, externals, outside = self._inputs(program, u, params)
            if len(program.unknowns):
                read = (program.code, program.cells, program.unknowns[None], outside, externals)
                pull(*read, (index - rows.start)[None], multipliers, field, out)
        return out

    def jacobian(self, u: Tensor, params: Params) -> Values:
        """Evaluate the Jacobian's values on a batch: (b, nnz), in the order of `program.pattern`."""
        return self._derivatives(u, params, np.zeros((len(u), 0)))[0]

    def hessian(self, u: Tensor, params: Params, multipliers: Values) -> Values:
        """Evaluate Σλ∇²h on a batch with multipliers (b, m): (b, entries of hessian_pattern, which there has to be)."""
        lower = self._derivatives(u, params, multipliers)[1]
        return lower[:, self._hessian[1]]

    @property
    def hessian_pattern(self) -> Pattern | None:
        """Where Σλ∇²h may be non-zero, both triangles; None where that is too much to write out."""
        return self._hessian[0] if self._programs[1] else None

    @property
    def program(self) -> Program:
        """The program with the derivatives of all rows by all unknowns; the second ones only if there is a Hessian."""
        return self._programs[0]

    @cached_property
    def _programs(self) -> tuple[Program, bool]:
        """The program, and whether it has second derivatives."""
        by = np.arange(self.tape.unknowns)
        try:
            return build_program(self.tape, self.rows, by), True
        except Unlowerable:
            return build_program(self.tape, self.rows, by, second=False), False

    @cached_property
    def _hessian(self) -> tuple[Pattern, Index]:
        """The symmetric pattern, and the entry of the lower triangle that each of its entries equals."""
        return self.program.hessian.mirrored()

    def _derivatives(self, u: Tensor, params: Params, multipliers: Values) -> tuple[Values, Values]:
        program, (field, externals, outside) = self.program, self._inputs(self.program, u, params)
        entries = np.tile(program.constants, (len(u), 1))
        curvature = np.empty((len(u), program.hessian.nnz if multipliers.shape[1] else 0))
        read = (program.code, program.cells, program.slots, program.unknowns[None], outside, externals)
        derivatives(*read, field, multipliers, entries, curvature)
        return entries, curvature

    def _inputs(self, program: Program, u: Tensor, params: Params) -> tuple[Values, Values, Index]:
        field = np.ascontiguousarray(u.detach().reshape(len(u), self.tape.unknowns).cpu().numpy(), np.float64)
        externals = evaluate_externals(self.tape, self.example, params, len(u))
        return field, externals, program.externals[None] - (self.tape.unknowns + 1)
