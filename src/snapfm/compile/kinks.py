"""Kinks: operations whose slope jumps where a switch s crosses zero, written as smooth pieces that a caller chooses.

max(a, b) = b + r(a − b), min(a, b) = b − r(b − a) and |a| = 2r(a) − a hold one ramp r(s) = max(s, 0) each; where(p > q, f, g) is
g + (f − g) times a step of s = p − q. Ramps and steps read a cell that no law defines, the kink's state, which says which
piece they are: a side, a weight between the sides, or a smoothing (kernels.operators). With every state given, laws are
smooth. A further row s·gate = 0 for each kink lets a caller hold a point on it (math.md, "Kinks").

Consumes a tape, returns frozen values. Knows nothing of solvers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import coo_array, csr_array, diags_array, vstack

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.lower.order import ordered
from snapfm.compile.lower.tape import ONE, Block, Tape, moved_columns, ratio, reads, units, widened
from snapfm.kernels.operators import Op

_PAIRED = (Op.MAX, Op.MIN)
_KINKED = (Op.RELU, Op.ABS, *_PAIRED)
_COMPARED = (Op.GT, Op.GE)


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
    if not any(block.op in (*_KINKED, Op.SELECT) for block in tape.blocks):
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
        self._changed: list[tuple[Index, Index, Values]] = []  # entries of `forms` beside the identity
        self._forms = csr_array((tape.cells, tape.cells))
        self._stale = True
        self._live = np.zeros(tape.cells, bool)  # cells with a slope in the field
        self._live[tape.unknown_cells] = True
        self._block = np.full(tape.cells, -1, np.int64)  # number of the block that computes a cell
        for number, block in enumerate(tape.blocks):
            self._block[block.first : block.first + block.size] = number
        self._chosen = np.full(tape.cells, -1, np.int64)  # cells of `where` to lines of the forms below
        self._choices: list[tuple[csr_array, csr_array, csr_array]] = []  # s, f, g
        self._choice_count = 0
        self.switches: list[tuple[csr_array, csr_array, Index, Index, Index, Index]] = []

    def done(self) -> Kinks:
        """Return the result."""
        cells, params = self._new.cells, self._old.params
        switch, jump = (csr_array(vstack([widened(one[i], cells) for one in self.switches])) for i in (0, 1))
        result, state, gate, hold = (np.concatenate([one[i] for one in self.switches]) for i in range(2, 6))
        tape, place = ordered(self._new, np.concatenate([1 + np.arange(params), state, gate]))
        forms, switch, jump = (moved_columns(rows, place, cells) for rows in (self._over(), switch, jump))
        return Kinks(tape, params, forms, switch, jump, place[result], place[state], place[gate], place[hold])

    def take(self, block: Block) -> None:
        """Rewrite one block."""
        cells = slice(block.first, block.first + block.size)
        live = reads(block.a, self._live)
        if block.b is not None:
            live = live | reads(block.b, self._live)
        self._live[cells] = live & (not block.op.zero_gradient)
        if block.op in _KINKED and live.any():
            self._split(block, live, self._ramp)
        elif block.op == Op.SELECT:
            self._select(block)
        elif block.op == Op.MUL:
            self._multiply(block)
        else:
            self._copy(block)

    def _copy(self, block: Block) -> None:
        self._new.blocks.append(block.mapped(self._written, block.first))

    def _split(self, block: Block, chosen: Mask, rewrite: object) -> None:
        """Rewrite the chosen elements of a block and copy the others, in runs of either kind."""
        edges = np.flatnonzero(np.diff(chosen)) + 1
        for run in np.split(np.arange(block.size), edges):
            part = _elements(block, run)
            (rewrite if chosen[run[0]] else self._copy)(part)  # type: ignore[operator]

    def _ramp(self, block: Block) -> None:
        """Write a maximum, a minimum, an absolute value or a relu with one ramp, in the same cells."""
        a = self._written(block.a)
        b = None if block.b is None else self._written(block.b)
        switch = a if b is None else csr_array(a - b if block.op == Op.MAX else b - a)
        cells = np.arange(block.first, block.first + block.size)
        self._ramps(switch, cells)
        if block.op == Op.MAX:
            self._rewritten(cells, 1.0, b)
        elif block.op == Op.MIN:
            self._rewritten(cells, -1.0, b)
        elif block.op == Op.ABS:
            self._rewritten(cells, 2.0, csr_array(-a))

    def _ramps(self, switch: csr_array, cells: Index) -> None:
        """Add ramps of `switch` with results in `cells`, which are consecutive."""
        state, gate = self._inputs(len(cells)), self._inputs(len(cells))
        switch = widened(switch, self._new.cells)
        self._new.blocks.append(Block(Op.RAMP, int(cells[0]), switch, units(state, self._new.cells)))
        hold = self._hold(switch, gate)
        self.switches.append((switch, switch, cells, state, gate, hold))

    def _hold(self, switch: csr_array, gate: Index) -> Index:
        hold = self._inputs(len(gate))
        cells = self._new.cells
        self._new.blocks.append(Block(Op.MUL, int(hold[0]), widened(switch, cells), units(gate, cells)))
        return hold

    def _select(self, block: Block) -> None:
        """Write `where` with a step, if its condition is one comparison of numbers that have slopes."""
        switch, found = self._condition(block)
        if not found.any():
            self._copy(block)
            return
        edges = np.flatnonzero(np.diff(found)) + 1
        for run in np.split(np.arange(block.size), edges):
            part = _elements(block, run)
            if found[run[0]]:
                self._step(part, csr_array(switch[run]))
            else:
                self._copy(part)

    def _step(self, block: Block, switch: csr_array) -> None:
        yes, no = self._written(block.a), self._written(block.b)
        cells = np.arange(block.first, block.first + block.size)
        self._chosen[cells] = self._choice_count + np.arange(block.size)
        self._choices.append((switch, yes, no))
        self._choice_count += block.size
        step, state, gate = (self._inputs(block.size) for _ in range(3))
        wide, jump = widened(switch, self._new.cells), widened(csr_array(yes - no), self._new.cells)
        self._new.blocks.append(Block(Op.STEP, int(step[0]), wide, units(state, self._new.cells)))
        self._new.blocks.append(Block(Op.MUL, block.first, jump, units(step, self._new.cells)))
        hold = self._hold(switch, gate)
        self.switches.append((wide, jump, cells, state, gate, hold))
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
            written = widened(csr_array(self._written(factor)[element]), self._new.cells)
            scale, same = ratio(written, switch)
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
        left = csr_array((data, other.indices.copy(), other.indptr.copy()), shape=other.shape)
        left.eliminate_zeros()
        rest = self._written(left)
        pick = csr_array((other.data[at], (element, np.arange(len(at)))), shape=(block.size, len(at)))
        cells = self._new.cells
        base = csr_array(widened(rest, cells) + csr_array(pick @ widened(no, cells)))
        self._new.blocks.append(Block(Op.MUL, block.first, widened(self._written(factor), cells), base))
        ramp, product = self._inputs(len(at)), self._inputs(len(at))
        self._ramps(switch, ramp)
        cells = self._new.cells
        jump = widened(csr_array(yes - no), cells)
        self._new.blocks.append(Block(Op.MUL, int(product[0]), jump, units(ramp, cells)))
        self._changed.append((block.first + element, product, weight))
        self._stale = True

    def _choice(self, which: int, line: Index) -> csr_array:
        cells = self._new.cells
        forms = csr_array(vstack([widened(choice[which], cells) for choice in self._choices], format="csr"))
        return csr_array(forms[line])

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
        number = self._block[cell]
        found &= number >= 0
        parts, places = [], []
        for one in np.unique(number[found]):
            compared, mine = self._old.blocks[one], np.flatnonzero(found & (number == one))
            if compared.op not in _COMPARED:
                found[mine] = False
                continue
            line = cell[mine] - compared.first
            assert compared.b is not None
            form = csr_array(csr_array(compared.a[line]) - csr_array(compared.b[line]))
            found[mine[~reads(form, self._live)]] = False
            parts.append(csr_array(diags_array(sign[mine]) @ self._written(form)))
            places.append(mine)
        if not parts:
            return csr_array((block.size, self._new.cells)), found
        joined = csr_array(vstack([widened(part, self._new.cells) for part in parts], format="csr"))
        place = np.concatenate(places)
        pick = csr_array((np.ones(len(place)), (place, np.arange(len(place)))), shape=(block.size, len(place)))
        return csr_array(pick @ joined), found

    def _inputs(self, count: int) -> Index:
        """Number new cells."""
        first = self._new.cells
        self._new.cells += count
        return first + np.arange(count)

    def _written(self, form: csr_array) -> csr_array:
        """Write rows over the old cells over the new ones."""
        over = self._over()
        wide = csr_array((form.data, form.indices, form.indptr), shape=(form.shape[0], self._old.cells))
        return csr_array(wide @ over)

    def _over(self) -> csr_array:
        old, new = self._old.cells, self._new.cells
        if self._stale or self._forms.shape[1] != new:
            rows = [np.arange(old), *(row for row, _, _ in self._changed)]
            columns = [np.arange(old), *(column for _, column, _ in self._changed)]
            values = [np.ones(old), *(weight for _, _, weight in self._changed)]
            made = coo_array(
                (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(old, new)
            )
            self._forms, self._stale = csr_array(made), False
            self._forms.eliminate_zeros()
        return self._forms

    def _rewritten(self, cells: Index, own: float, more: csr_array | None) -> None:
        """Say that old cells are now `own` times the new cells of the same numbers, plus `more`."""
        self._changed.append((cells, cells, np.full(len(cells), own - 1.0)))
        if more is not None:
            entries = coo_array(more)
            self._changed.append((cells[entries.coords[0]], entries.coords[1].astype(np.int64), entries.data))
        self._stale = True


def _elements(block: Block, run: Index) -> Block:
    if len(run) == block.size:
        return block
    return block.mapped(lambda operand: csr_array(operand[run]), int(block.first + run[0]))
