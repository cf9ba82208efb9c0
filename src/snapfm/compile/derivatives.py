"""Derivatives of lowered laws: Jacobian and Hessian values of whole batches from one scalar program.

For gradients through a projection, certificates of peers and checks. The projection itself has smaller programs of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.fx import GraphModule

from snapfm.arrays import Index, Values
from snapfm.compile import program as planning
from snapfm.compile.lower.tape import Tape, Unlowerable
from snapfm.compile.lower.transform import Transform
from snapfm.compile.program import Program, build_program
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.compile.sparsity.reads import row_slopes
from snapfm.compile.trace.batched import Batched, each
from snapfm.kernels import batches
from snapfm.laws import Params

_ENTRIES_A_PIECE = 60_000  # of the rows of one program that is not kept: tens of megabytes while it is built and run


def evaluate_params(tape: Tape, example: Tensor, params: Params, count: int) -> Values:
    """Evaluate the cells of params with torch: (b, tape.params)."""
    out = np.zeros((count, tape.params))
    # Sample by sample, each param in memory of its own: compiled laws keep their bits in any batch.
    samples = [{name: value[i].clone() for name, value in params.items()} for i in range(count)]
    for cell, graph, size in tape.graphs:

        def one(i: int, graph: GraphModule = graph) -> Tensor:
            value: Tensor = graph(example, samples[i])
            return value

        out[:, cell - 1 : cell - 1 + size] = each(one, count).reshape(count, size).double().numpy()
    return out


def differentiable_params(tape: Tape, example: Tensor, params: Params, count: int) -> Tensor:
    """Return the same for torch to differentiate, all samples at once."""

    def values(u: Tensor, own: Params) -> Tensor:
        found = [graph(u, own).reshape(-1).to(torch.float64) for _, graph, _ in tape.graphs]
        return torch.cat([u.new_zeros(0, dtype=torch.float64), *found])

    return Batched(values, tape.params)(example.expand(count, *example.shape), params)


@dataclass(frozen=True)
class Rows:
    """A program on batches: one line per part, the unknowns and the params that it reads."""

    program: Program
    inputs: Index
    outside: Index

    @classmethod
    def of(cls, program: Program) -> Rows:
        """Take a program of one part."""
        return cls(program, program.unknowns[None], program.params[None])

    def part(self, number: int) -> Rows:
        """Return those of one part."""
        return Rows(self.program, self.inputs[number : number + 1], self.outside[number : number + 1])

    def evaluate(self, u: Values, params: Values) -> Values:
        """Evaluate the rows of one part (b, rows) at unknowns u (b, …) and cells of params (b, …)."""
        out = np.empty((len(u), self.program.pattern.rows))
        batches.evaluate(*self.program.run, self.inputs, self.outside, params, u, out)
        return out

    def slopes(self, u: Values, params: Values) -> Values:
        """Evaluate the Jacobian's values (b, nnz) of one part."""
        return self.derivatives(u, params, np.empty((len(u), 0)))[0]

    def derivatives(self, u: Values, params: Values, multipliers: Values) -> tuple[Values, Values]:
        """Evaluate the Jacobian's values and, with multipliers (b, m), those of Σλ∇²row (b, lower entries), of one part."""
        program = self.program
        entries = np.tile(program.constants, (len(u), 1))
        curvature = np.empty((len(u), program.hessian.nnz if multipliers.shape[1] else 0))
        if len(program.varying) or curvature.size:
            read = (*program.run, program.slots, self.inputs, self.outside, params)
            batches.derivatives(*read, u, multipliers, entries, curvature)
        return entries, curvature

    def pull(self, index: Index, u: Values, params: Values, multipliers: Values, rest: Values) -> None:
        """Add Jᵀλ to `rest`, with λ = multipliers[:, index]. Written: rest."""
        if self.inputs.shape[1]:
            batches.pull(*self.program.run, self.inputs, self.outside, params, index, multipliers, u, rest)


class Scalar:
    """The rows of all lowered laws over all unknowns. Programs are built at first use."""

    def __init__(self, tape: Tape, rows: csr_array, example: Tensor, transform: Transform | None = None) -> None:
        self.tape, self.rows, self.example, self.transform = tape, rows, example, transform

    @cached_property
    def pattern(self) -> Pattern:
        """Where the Jacobian by the unknowns of the field may be non-zero."""
        own = Pattern.from_sets(row_slopes(self.tape, self.rows), self.tape.unknowns)
        if self.transform is None:
            return own
        width, reading = self.example.numel(), own.counts > 0
        whole = Pattern.full(int(reading.sum()), width)
        return Pattern(own.rows, width, np.concatenate([[0], width * np.cumsum(reading)]), whole.indices)

    def pull(self, u: Tensor, params: Params, rows: slice, multipliers: Values) -> Values:
        """Evaluate Jᵀλ of some rows on a batch (b, *shape) with multipliers (b, m): (b, n).

        With a program for a few rows at a time, which is not kept: for checks, not for iterations.
        """
        out = np.zeros((len(u), self.tape.unknowns))
        ends = self.rows.indptr[rows.start : rows.stop + 1].astype(np.int64)
        # Cut within rows, too: a row adds up its entries.
        for first in range(ends[0], ends[-1], _ENTRIES_A_PIECE):
            inside = np.clip(ends, first, first + _ENTRIES_A_PIECE)
            index = np.flatnonzero(np.diff(inside))
            own, lines = slice(inside[0], inside[-1]), np.append(inside[index], inside[-1]) - inside[0]
            piece = csr_array((self.rows.data[own], self.rows.indices[own], lines), shape=(len(index), self.tape.cells))
            program = build_program(self.tape, piece, np.zeros(0, np.int64))
            Rows.of(program).pull(index[None], *self._inputs(u, params), multipliers, out)
        return out if self.transform is None else self.transform.back(out)

    def jacobian(self, u: Tensor, params: Params) -> Values:
        """Evaluate the Jacobian's values on a batch: (b, nnz), in the order of `pattern`."""
        entries = Rows.of(self.program).slopes(*self._inputs(u, params))
        if self.transform is None:
            return entries
        own = self.program.pattern
        some = np.flatnonzero(own.counts)
        return np.stack([self.transform.of_fields(csr_array(own.csr(one)[some])) for one in entries])

    def hessian(self, u: Tensor, params: Params, multipliers: Values) -> Values:
        """Evaluate Σλ∇²h on a batch with multipliers (b, m): (b, entries of hessian_pattern, which there has to be)."""
        lower = Rows.of(self.program).derivatives(*self._inputs(u, params), multipliers)[1]
        pattern, entry = self._hessian
        if self.transform is None or not pattern.nnz:
            return lower[:, entry]
        return np.stack([self.transform.curvature(pattern.csr(one[entry])) for one in lower])

    @property
    def hessian_pattern(self) -> Pattern | None:
        """Where Σλ∇²h may be non-zero, both triangles; None where that is too much to write out."""
        if not self._programs[1]:
            return None
        own = self._hessian[0]
        if self.transform is None or not own.nnz:
            return own
        n = self.example.numel()
        return Pattern.full(n, n) if n * n <= planning.PAIR_LIMIT else None

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

    def _inputs(self, u: Tensor, params: Params) -> tuple[Values, Values]:
        """Return the unknowns of the tape (b, n) and the cells of params, as kernels read them."""
        field = np.ascontiguousarray(u.detach().reshape(len(u), self.example.numel()).cpu().numpy(), np.float64)
        if self.transform is not None:
            field = self.transform.forward(field)
        return field, evaluate_params(self.tape, self.example, params, len(u))
