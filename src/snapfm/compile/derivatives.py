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
from snapfm.compile.sparsity.pattern import Pattern, refuse_entries
from snapfm.compile.sparsity.reads import row_slopes
from snapfm.compile.trace.batched import Batched, each
from snapfm.compile.units import Units
from snapfm.kernels import batches
from snapfm.laws import Params

_ENTRIES_A_PIECE = 60_000  # of the rows of one program that is not kept: tens of megabytes while it is built and run
_NUMBERS_AT_ONCE = 2_000_000  # of dense slopes


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
    """The rows of all lowered laws over all unknowns. Programs are built at first use.

    `tape` and `rows` are over the coefficients of a `transform` of x, and x is u in `units`; slopes and curvature are those of
    the laws by u.
    """

    def __init__(
        self, tape: Tape, rows: csr_array, example: Tensor, transform: Transform | None = None, units: Units | None = None
    ) -> None:  # fmt: skip
        self.tape, self.rows, self.example, self.transform, self.units = tape, rows, example, transform, units

    @cached_property
    def own(self) -> Pattern:
        """Where the Jacobian by the unknowns of the tape may be non-zero: those of the field, or coefficients."""
        return Pattern.from_sets(row_slopes(self.tape, self.rows), self.tape.unknowns)

    @cached_property
    def pattern(self) -> Pattern:
        """Where the Jacobian by the unknowns of the field may be non-zero."""
        own = self.own
        if self.transform is None:
            return own
        width, reading = self.example.numel(), own.counts > 0
        refuse_entries(width * int(reading.sum()))
        whole = Pattern.full(int(reading.sum()), width)
        return Pattern(own.rows, width, np.concatenate([[0], width * np.cumsum(reading)]), whole.indices)

    def pull(self, u: Tensor, params: Params, rows: slice, multipliers: Values) -> Values:
        """Evaluate Jᵀλ of some rows on a batch (b, *shape) with multipliers (b, m): (b, n).

        With a program for a few rows at a time, which is not kept: for checks, not for iterations.
        """
        out = np.zeros((len(u), self.tape.unknowns))
        weighted = multipliers if self.units is None else multipliers / self.units.rows[rows]
        ends = self.rows.indptr[rows.start : rows.stop + 1].astype(np.int64)
        # Cut within rows, too: a row adds up its entries.
        for first in range(ends[0], ends[-1], _ENTRIES_A_PIECE):
            inside = np.clip(ends, first, first + _ENTRIES_A_PIECE)
            index = np.flatnonzero(np.diff(inside))
            own, lines = slice(inside[0], inside[-1]), np.append(inside[index], inside[-1]) - inside[0]
            piece = csr_array((self.rows.data[own], self.rows.indices[own], lines), shape=(len(index), self.tape.cells))
            program = build_program(self.tape, piece, np.zeros(0, np.int64))
            Rows.of(program).pull(index[None], *self._inputs(u, params), weighted, out)
        out = out if self.transform is None else self.transform.back(out)
        return out if self.units is None else out / self.units.unknowns

    def jacobian(self, u: Tensor, params: Params) -> Values:
        """Evaluate the Jacobian's values on a batch: (b, nnz), in the order of `pattern`."""
        entries = Rows.of(self.program).slopes(*self._inputs(u, params))
        if self.transform is not None:
            own = self.program.pattern
            some = np.flatnonzero(own.counts)
            back = (self.transform.back(csr_array(own.csr(one)[some]).toarray()).ravel() for one in entries)
            entries = np.stack(list(back))
        return entries if self.units is None else entries / self.units.slopes(self.pattern)

    def transpose_abs_product(self, u: Tensor, params: Params, sizes: Values) -> Values:
        """Return |J|ᵀ sizes (n,) by the unknowns of a field at a batch of one, with a transform: some rows at a time."""
        assert self.transform is not None
        slopes = self.program.pattern.csr(Rows.of(self.program).slopes(*self._inputs(u, params))[0])
        pieces = 1 + slopes.shape[0] * self.example.numel() // _NUMBERS_AT_ONCE
        parts = np.array_split(np.arange(slopes.shape[0]), pieces)
        weighted = sizes if self.units is None else sizes / self.units.rows
        found: Values = np.sum(
            [weighted[rows] @ abs(self.transform.back(slopes[rows].toarray())) for rows in parts], axis=0
        )
        return found if self.units is None else found / self.units.unknowns

    def hessian(self, u: Tensor, params: Params, multipliers: Values) -> Values:
        """Evaluate Σλ∇²h on a batch with multipliers (b, m): (b, entries of hessian_pattern, which there has to be)."""
        weighted = multipliers if self.units is None else multipliers / self.units.rows
        lower = Rows.of(self.program).derivatives(*self._inputs(u, params), weighted)[1]
        pattern, entry = self._hessian
        values: Values = lower[:, entry]
        if self.transform is not None and pattern.nnz:
            half = (self.transform.back(pattern.csr(one).toarray()) for one in values)
            values = np.stack([self.transform.back(np.ascontiguousarray(one.T)).ravel() for one in half])
        whole = self.hessian_pattern
        return values if self.units is None or whole is None else values / self.units.curvature(whole)

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
        field = field if self.units is None else field / self.units.unknowns
        if self.transform is not None:
            field = self.transform.forward(field)
        return field, evaluate_params(self.tape, self.example, params, len(u))
