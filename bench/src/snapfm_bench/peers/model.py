"""Laws as casadi expressions, translated once from the scalar operations that our own method runs: exactly the same rows.

A `CasadiModel` of compiled laws writes the rows over any casadi symbols and evaluates what depends on params with torch. The one
place that imports casadi. Must not import a solver.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csc_array, csr_array

from snapfm.arrays import Values
from snapfm.compile import CompiledLaws
from snapfm.compile.derivatives import evaluate_params
from snapfm.compile.lower import Block, Tape
from snapfm.compile.lower.tape import ONE
from snapfm.errors import UnsupportedLaw, require
from snapfm.laws import Params
from snapfm.solve.base import Limits
from snapfm_bench.peers.casadi_operators import written
from snapfm_bench.peers.presolved import Presolved

Symbol: TypeAlias = Any  # casadi.SX or casadi.MX; casadi ships no types


def casadi() -> ModuleType:
    """Import casadi, or say how to install it."""
    return require("casadi", "the peers that solve laws as casadi expressions", "peers", of="snapfm-bench")


class CasadiModel(Presolved):
    """All kept rows of compiled laws, ready to be written over symbols."""

    def __init__(self, structure: CompiledLaws, limits: Limits, presolve: bool) -> None:
        super().__init__(structure, limits, presolve)
        for law in structure.opaque.values():
            raise UnsupportedLaw(
                "a casadi peer expects laws made of arithmetic, powers, roots, exp, log, sin, cos, tanh, min, max, where, "
                f"sums and products with constants; got '{law.reason}'. Rewrite the law with those."
            )
        self.tape: Tape = structure.scalar.tape
        self._inputs: tuple[Params, Values, Values] | None = None

    @property
    def knowns(self) -> int:
        """Number of cells that params define."""
        return self.tape.params

    def inputs(self, params: Params, count: int) -> tuple[Values, Values]:
        """Evaluate `known` and `pinned`; kept while params stay the same, as they do at every flow step."""
        if self._inputs is None or self._inputs[0] is not params or len(self._inputs[1]) != count:
            self._inputs = (params, self.known(params, count), self.pinned(params, count))
        return self._inputs[1:]

    def known(self, params: Params, count: int) -> Values:
        """Evaluate what depends on params only, with torch: (b, knowns)."""
        return evaluate_params(self.tape, self.structure.example[0], params, count)

    def rows(self, u: Symbol, known: Symbol) -> Symbol:
        """Write the kept rows over symbols of the unknowns (n, 1) and of what params define (knowns, 1)."""
        ca = casadi()
        tape, transform = self.tape, self.structure.scalar.transform
        if transform is not None:
            u = ca.DM(transform.matrix) @ u
        cells: list[tuple[int, int, Symbol]] = [
            (ONE, 1, ca.DM.ones(1, 1)), (1, tape.params, known), (tape.first_unknown, tape.unknowns, u)
        ]  # fmt: skip
        for block in tape.blocks:
            cells.append((block.first, block.size, _applied(ca, block, cells)))
        return _form(ca, csr_array(self.structure.scalar.rows[self.kept]), cells)


def _form(ca: ModuleType, matrix: csr_array, cells: list[tuple[int, int, Symbol]]) -> Symbol:
    """Multiply a linear form with the groups of cells that it reads; zeros if it reads none."""
    columns = csc_array(matrix)
    columns.eliminate_zeros()
    total: Symbol = ca.DM.zeros(matrix.shape[0], 1)
    for first, size, symbol in cells:
        last = min(first + size, columns.shape[1])
        part = columns[:, first:last] if first < last else None
        if part is not None and part.nnz:
            total = total + _product(ca, part, symbol)
    return total


def _product(ca: ModuleType, part: csc_array, symbol: Symbol) -> Symbol:
    by_row = csr_array(part)
    if part.shape[1] > 1 and (by_row.data == 1.0).all() and (np.diff(by_row.indptr) == 1).all():
        return symbol[by_row.indices.tolist()]  # each element is one cell: a copy, not a product
    pattern = ca.Sparsity(*part.shape, part.indptr.tolist(), part.indices.tolist())
    return ca.densify(ca.mtimes(ca.DM(pattern, part.data), symbol))


def _applied(ca: ModuleType, block: Block, cells: list[tuple[int, int, Symbol]]) -> Symbol:
    operands = [_form(ca, part, cells) for part in (block.a, block.b, block.c) if part is not None]
    if block.op.parameter and block.b is not None:
        # A parameter with one constant value: as a number, casadi does not differentiate by it (for powers, a logarithm).
        column = block.b[:, [ONE]].toarray()
        if block.b.nnz == np.count_nonzero(column) and (column == column[:1]).all() and len(column):
            operands[1] = float(column[0, 0])
    return written(block.op, ca, *operands)
