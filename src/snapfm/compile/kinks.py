"""Kinks: operations whose slope jumps where a switch s crosses zero, written as smooth pieces that a caller chooses.

max(a, b) = b + r(a − b), min(a, b) = b − r(b − a) and |a| = 2r(a) − a hold one ramp r(s) = max(s, 0) each; where(p > q, f, g) is
g + (f − g) times a step of s = p − q. Ramps and steps read a cell that no law defines, the kink's state, which says which
piece they are: a side, a weight between the sides, or a smoothing (kernels.operators). With every state given, laws are
smooth. A further row s·gate = 0 for each kink lets a caller hold a point on it (math.md, "Kinks").

Consumes a tape, returns frozen values. Knows nothing of solvers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import coo_array, csr_array, diags_array, eye_array, vstack

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.lower.tape import ONE, Block, Tape, moved_columns, ordered, ratio, reads, units, widened
from snapfm.kernels.operators import Op

_KINKED = (Op.RELU, Op.ABS, Op.MAX, Op.MIN)
KINKED = (*_KINKED, Op.SELECT)
_COMPARED = (Op.GT, Op.GE)
_NEW = 5  # cells at most for each kink


@dataclass(frozen=True)
class Kinks:
    """A tape without kinks, and for each kink of the tape it was made from where its parts are.

    `forms` writes the cells of that tape over the new ones. With the state θ a kink's result is something smooth plus θ·jump,
    and the jump vanishes with the switch.
    """

    tape: Tape
    params: int  # those of the tape it was made from; behind them come states and gates
    forms: csr_array  # (cells before, cells)
    switch: csr_array  # (kinks, cells) s
    jump: csr_array  # (kinks, cells) difference of the two pieces; s itself for ramps
    result: Index  # cells that hold θ·jump
    state: Index  # cells of params that no law defines
    gate: Index  # the same: 1 where a point is held on the kink, in any unit, 0 elsewhere
    hold: Index  # cells that hold s·gate


def find_kinks(tape: Tape) -> Kinks | None:
    """Write a tape's kinks as smooth pieces; None if it has none."""
    if not any(block.op in KINKED for block in tape.blocks):
        return None
    rewriting = _Rewriting(tape)
    for block in tape.blocks:
        rewriting.take(block)
    return rewriting.done() if rewriting.switches else None


class _Rewriting:
    """A tape that is being rewritten, block by block."""

    def __init__(self, tape: Tape) -> None:
        self._old = tape
        self._new = replace(tape, blocks=[])  # its number of cells is that of an empty tape
        self._new.cells = tape.cells
        self._live = np.zeros(tape.cells, bool)  # cells with a slope in the field
        self._live[tape.unknown_cells] = True
        chosen, self._compared = np.zeros(tape.cells, bool), csr_array((tape.cells, tape.cells))  # a − b of comparisons
        for block in tape.blocks:
            cells = np.arange(block.first, block.first + block.size)
            chosen[cells] = block.op == Op.SELECT
            if block.op in _COMPARED:
                pick = csr_array((np.ones(block.size), (cells, cells - block.first)), shape=(tape.cells, block.size))
                self._compared = csr_array(self._compared + pick @ widened(csr_array(block.a - block.b), tape.cells))
        most = sum(block.size for block in tape.blocks if block.op in KINKED)
        most += sum(
            int(chosen[part.indices].sum()) for block in tape.blocks if block.op == Op.MUL for part in block.operands
        )
        self._width = tape.cells + _NEW * most  # no fewer cells than there will be: all forms have so many columns
        self._forms = csr_array(eye_array(tape.cells, self._width, format="csr"))
        self._chosen = np.full(tape.cells, -1, np.int64)  # cells of `where` to lines of the forms below
        self._choices: list[tuple[csr_array, csr_array, csr_array]] = []  # s, f, g
        self._choice_count = 0
        self.switches: list[tuple[csr_array, csr_array, Index, Index, Index, Index]] = []

    def done(self) -> Kinks:
        """Return the result."""
        cells, params = self._new.cells, self._old.params
        switch, jump = (csr_array(vstack([one[i] for one in self.switches])) for i in (0, 1))
        result, state, gate, hold = (np.concatenate([one[i] for one in self.switches]) for i in range(2, 6))
        tape, place = ordered(self._new, np.concatenate([1 + np.arange(params), state, gate]))
        forms, switch, jump = (moved_columns(rows, place, cells) for rows in (self._forms, switch, jump))
        return Kinks(tape, params, forms, switch, jump, place[result], place[state], place[gate], place[hold])

    def take(self, block: Block) -> None:
        """Rewrite one block."""
        cells = slice(block.first, block.first + block.size)
        live = reads(block.a, self._live)
        if block.b is not None:
            live = live | reads(block.b, self._live)
        self._live[cells] = live & (not block.op.zero_gradient)
        if block.op in _KINKED:
            self._split(block, live, lambda part, run: self._ramp(part))
        elif block.op == Op.SELECT:
            switch, found = self._condition(block)
            self._split(block, found, lambda part, run: self._step(part, csr_array(switch[run])))
        elif block.op == Op.MUL:
            self._multiply(block)
        else:
            self._copy(block)

    def _copy(self, block: Block) -> None:
        self._new.blocks.append(block.mapped(self._written, block.first))

    def _add(self, op: Op, first: int, a: csr_array, b: csr_array) -> None:
        self._new.blocks.append(Block(op, int(first), a, b))

    def _split(self, block: Block, chosen: Mask, rewrite: Callable[[Block, Index], None]) -> None:
        """Rewrite the chosen elements of a block and copy the others, in runs of either kind."""
        if not chosen.any():
            self._copy(block)
            return
        for run in np.split(np.arange(block.size), np.flatnonzero(np.diff(chosen)) + 1):
            part = _elements(block, run)
            if chosen[run[0]]:
                rewrite(part, run)
            else:
                self._copy(part)

    def _ramp(self, block: Block) -> None:
        """Write a maximum, a minimum, an absolute value or a relu with one ramp, in the same cells."""
        a = self._written(block.a)
        b = None if block.b is None else self._written(block.b)
        switch = a if b is None else csr_array(a - b if block.op == Op.MAX else b - a)
        cells = np.arange(block.first, block.first + block.size)
        self._ramps(switch, cells)
        if block.op != Op.RELU:
            own, more = {Op.MAX: (1.0, b), Op.MIN: (-1.0, b), Op.ABS: (2.0, csr_array(-a))}[block.op]
            self._rewritten(cells, own, more)

    def _ramps(self, switch: csr_array, cells: Index) -> None:
        """Add ramps of `switch` with results in `cells`, which are consecutive."""
        state = self._inputs(len(cells))
        self._add(Op.RAMP, cells[0], switch, units(state, self._width))
        self._switch(switch, switch, cells, state)

    def _switch(self, switch: csr_array, jump: csr_array, result: Index, state: Index) -> None:
        """Add what holds points on kinks."""
        gate, hold = self._inputs(len(state)), self._inputs(len(state))
        self._add(Op.MUL, hold[0], switch, units(gate, self._width))
        self.switches.append((switch, jump, result, state, gate, hold))

    def _step(self, block: Block, switch: csr_array) -> None:
        """Write `where` with a step."""
        yes, no = self._written(block.a), self._written(block.b)
        cells = np.arange(block.first, block.first + block.size)
        self._chosen[cells] = self._choice_count + np.arange(block.size)
        self._choices.append((switch, yes, no))
        self._choice_count += block.size
        step, state, jump = self._inputs(block.size), self._inputs(block.size), csr_array(yes - no)
        self._add(Op.STEP, step[0], switch, units(state, self._width))
        self._add(Op.MUL, block.first, jump, units(step, self._width))
        self._switch(switch, jump, cells, state)
        self._rewritten(cells, 1.0, no)

    def _multiply(self, block: Block) -> None:
        """Write s·where(s > 0, f, g) as s·g + (f − g)·ramp(s): the choice jumps, the product does not."""
        assert block.b is not None
        for factor, other in ((block.a, block.b), (block.b, block.a)):
            picked = self._chosen[other.indices]
            at = np.flatnonzero(picked >= 0)
            if not len(at):
                continue
            element = np.repeat(np.arange(block.size), np.diff(other.indptr))[at]
            switch, yes, no = (self._choice(i, picked[at]) for i in range(3))
            scale, same = ratio(csr_array(self._written(factor)[element]), switch)
            if not same.any():
                continue
            at, element, scale = at[same], element[same], scale[same]
            switch, yes, no = (csr_array(form[np.flatnonzero(same)]) for form in (switch, yes, no))
            self._product(block, factor, other, at, element, scale * other.data[at], switch, yes, no)
            return
        self._copy(block)

    def _product(
        self, block: Block, factor: csr_array, other: csr_array, at: Index, element: Index, weight: Values,
        switch: csr_array, yes: csr_array, no: csr_array,
    ) -> None:  # fmt: skip
        """Write one product; `at` are the entries of `other` that hold a choice, of the elements `element`."""
        data = other.data.copy()
        data[at] = 0.0
        rest = self._written(csr_array((data, other.indices, other.indptr), shape=other.shape))
        pick = csr_array((other.data[at], (element, np.arange(len(at)))), shape=(block.size, len(at)))
        self._add(Op.MUL, block.first, self._written(factor), csr_array(rest + csr_array(pick @ no)))
        ramp, product = self._inputs(len(at)), self._inputs(len(at))
        self._ramps(switch, ramp)
        self._add(Op.MUL, product[0], csr_array(yes - no), units(ramp, self._width))
        self._change(block.first + element, product, weight)

    def _choice(self, which: int, line: Index) -> csr_array:
        return csr_array(csr_array(vstack([choice[which] for choice in self._choices], format="csr"))[line])

    def _condition(self, block: Block) -> tuple[csr_array, Mask]:
        """Return the switch of each element, and where there is one."""
        assert block.c is not None
        element = np.repeat(np.arange(block.size), np.diff(block.c.indptr))
        moving, data = block.c.indices != ONE, block.c.data
        constant = np.bincount(element[~moving], data[~moving], minlength=block.size)
        alone = np.bincount(element[moving], minlength=block.size) == 1
        cell, sign = np.zeros(block.size, np.int64), np.zeros(block.size)
        cell[element[moving]], sign[element[moving]] = block.c.indices[moving], data[moving]
        # A comparison, or one minus it.
        found = alone & (((sign == 1.0) & (constant == 0.0)) | ((sign == -1.0) & (constant == 1.0)))
        compared = csr_array(self._compared[cell])
        found &= reads(compared, self._live)
        return csr_array(diags_array(np.where(found, sign, 0.0)) @ self._written(compared)), found

    def _inputs(self, count: int) -> Index:
        """Number new cells."""
        first = self._new.cells
        self._new.cells += count
        return first + np.arange(count)

    def _written(self, form: csr_array) -> csr_array:
        """Write rows over the old cells over the new ones."""
        written = csr_array(widened(form, self._old.cells) @ self._forms)
        written.eliminate_zeros()
        return written

    def _change(self, cells: Index, columns: Index, weights: Values) -> None:
        """Add weighted new cells to what old cells are."""
        change = csr_array((weights, (cells, columns)), shape=self._forms.shape)
        self._forms = csr_array(self._forms + change)

    def _rewritten(self, cells: Index, own: float, more: csr_array | None) -> None:
        """Say that old cells are now `own` times the new cells of the same numbers, plus `more`."""
        self._change(cells, cells, np.full(len(cells), own - 1.0))
        if more is not None:
            entries = coo_array(more)
            self._change(cells[entries.coords[0]], entries.coords[1], entries.data)


def _elements(block: Block, run: Index) -> Block:
    if len(run) == block.size:
        return block
    return block.mapped(lambda operand: csr_array(operand[run]), block.first + int(run[0]))
