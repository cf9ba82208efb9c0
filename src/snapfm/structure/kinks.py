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
from snapfm.kernels.operators import Op
from snapfm.structure.lowering.tape import Block, Tape
from snapfm.structure.program import Program, build_program
from snapfm.structure.reduce import System

_PAIRED = (Op.MAX, Op.MIN)
_KINKED = (Op.RELU, Op.ABS, *_PAIRED)
_COMPARED = (Op.GT, Op.GE)
_ROUNDING = 1e-12  # forms that differ by less than this share are proportional


@dataclass(frozen=True)
class Kinks:
    """A tape without kinks, and for each kink of the tape it was made from where its parts are.

    `forms` writes the cells of that tape over the new ones. With the state θ a kink's result is something smooth plus θ·jump,
    and the jump vanishes with the switch.
    """

    tape: Tape
    forms: csr_array  # (cells before, cells)
    switch: csr_array  # (kinks, cells) s
    jump: csr_array  # (kinks, cells) difference of the two pieces; s itself for ramps
    result: Index  # cells that hold θ·jump
    state: Index  # cells no law defines
    gate: Index  # the same: 1 where a point is held on the kink, in any unit, 0 elsewhere
    hold: Index  # cells that hold s·gate


@dataclass(frozen=True)
class KinkedSystem:
    """A System with its kinks written as smooth pieces. Its rows are those of the System, then one to hold each kink."""

    system: System
    switches: Program  # rows s, then jumps, by the unknowns that are iterated on
    inputs: Index  # place, among the inputs of the System's own program, of each input but states and gates
    switch_inputs: Index  # place, among the inputs of `system.program`, of each input of `switches`
    state: Index  # cells of `system.program`
    gate: Index
    result: Index  # operations of `system.program`

    @property
    def rows(self) -> int:
        """Number of rows without those that hold kinks."""
        return self.system.program.pattern.rows - len(self.state)


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
        self._live[: tape.unknowns] = True
        self._block = np.full(tape.cells, -1, np.int64)  # number of the block that computes a cell
        for number, block in enumerate(tape.blocks):
            self._block[block.first : block.first + block.size] = number
        self._chosen = np.full(tape.cells, -1, np.int64)  # cells of `where` to lines of the forms below
        self._choices: list[tuple[csr_array, csr_array, csr_array]] = []  # s, f, g
        self._choice_count = 0
        self.switches: list[tuple[csr_array, csr_array, Index, Index, Index, Index]] = []

    def done(self) -> Kinks:
        """Return the result."""
        cells = self._new.cells
        wide = [_widened(part, cells) for part, *_ in self.switches]
        jump = [_widened(part, cells) for _, part, *_ in self.switches]
        rest = [np.concatenate([one[i] for one in self.switches]) for i in range(2, 6)]
        return Kinks(
            self._new,
            self._over(),
            csr_array(vstack(wide)),
            csr_array(vstack(jump)),
            rest[0],
            rest[1],
            rest[2],
            rest[3],
        )

    def take(self, block: Block) -> None:
        """Rewrite one block."""
        cells = slice(block.first, block.first + block.size)
        live = _reads(block.a, self._live)
        if block.b is not None:
            live = live | _reads(block.b, self._live)
        self._live[cells] = live & (not block.op.flat)
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
        switch = _widened(switch, self._new.cells)
        self._new.blocks.append(Block(Op.RAMP, int(cells[0]), switch, _units(state, self._new.cells)))
        hold = self._hold(switch, gate)
        self.switches.append((switch, switch, cells, state, gate, hold))

    def _hold(self, switch: csr_array, gate: Index) -> Index:
        hold = self._inputs(len(gate))
        cells = self._new.cells
        self._new.blocks.append(Block(Op.MUL, int(hold[0]), _widened(switch, cells), _units(gate, cells)))
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
        wide, jump = _widened(switch, self._new.cells), _widened(csr_array(yes - no), self._new.cells)
        self._new.blocks.append(Block(Op.STEP, int(step[0]), wide, _units(state, self._new.cells)))
        self._new.blocks.append(Block(Op.MUL, block.first, jump, _units(step, self._new.cells)))
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
            written = _widened(csr_array(self._written(factor)[element]), self._new.cells)
            scale, same = _ratio(written, switch)
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
        base = csr_array(_widened(rest, cells) + csr_array(pick @ _widened(no, cells)))
        self._new.blocks.append(Block(Op.MUL, block.first, _widened(self._written(factor), cells), base))
        ramp, product = self._inputs(len(at)), self._inputs(len(at))
        self._ramps(switch, ramp)
        cells = self._new.cells
        jump = _widened(csr_array(yes - no), cells)
        self._new.blocks.append(Block(Op.MUL, int(product[0]), jump, _units(ramp, cells)))
        self._changed.append((block.first + element, product, weight))
        self._stale = True

    def _choice(self, which: int, line: Index) -> csr_array:
        cells = self._new.cells
        forms = csr_array(vstack([_widened(choice[which], cells) for choice in self._choices], format="csr"))
        return csr_array(forms[line])

    def _condition(self, block: Block) -> tuple[csr_array, Mask]:
        """Return the switch of each element, and where there is one."""
        assert block.c is not None
        element = np.repeat(np.arange(block.size), np.diff(block.c.indptr))
        moving, data = block.c.indices != self._old.one, block.c.data
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
            found[mine[~_reads(form, self._live)]] = False
            parts.append(csr_array(diags_array(sign[mine]) @ self._written(form)))
            places.append(mine)
        if not parts:
            return csr_array((block.size, self._new.cells)), found
        joined = csr_array(vstack([_widened(part, self._new.cells) for part in parts], format="csr"))
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


@dataclass(frozen=True)
class KinkedRows:
    """The rows of a System over a tape without kinks, and which kinks they depend on. Programs are built when needed."""

    kinks: Kinks
    system: System
    rows: csr_array
    mine: Index

    @property
    def count(self) -> int:
        """Number of kinks."""
        return len(self.mine)


def kinked_rows(kinks: Kinks, rows: csr_array, system: System) -> KinkedRows | None:
    """Write the rows of a System (over all laws' `rows`) with its kinks as smooth pieces; None if it has none."""
    own = csr_array(rows[system.rows[0]])
    keep = np.ones(own.shape[1])
    keep[system.eliminated[0]] = 0.0
    own = csr_array(csr_array(own @ diags_array(keep)) @ kinks.forms)
    own.eliminate_zeros()
    mine = np.flatnonzero(_needed(kinks.tape, own)[kinks.result])
    return KinkedRows(kinks, system, own, mine) if len(mine) else None


def kinked_system(found: KinkedRows) -> KinkedSystem:
    """Build the programs of a System with its kinks as smooth pieces."""
    kinks, system, own, mine = found.kinks, found.system, found.rows, found.mine
    cells = kinks.tape.cells
    whole = csr_array(vstack([own, _units(kinks.hold[mine], cells)], format="csr"))
    moving = system.unknowns[0]
    program = build_program(kinks.tape, whole, moving)
    forms = csr_array(vstack([kinks.switch[mine], kinks.jump[mine]], format="csr"))
    switches = build_program(kinks.tape, forms, moving, second=False)
    order, m = _operations(kinks.tape, _needed(kinks.tape, whole)), own.shape[0]
    inside = np.concatenate([program.unknowns, program.externals])
    ordinary = program.externals < min(kinks.state.min(), kinks.gate.min())
    place = {int(cell): i for i, cell in enumerate(np.concatenate([system.inputs[0], system.externals[0]]))}
    inputs = np.array([place[int(cell)] for cell in inside[: len(program.unknowns) + int(ordinary.sum())]], np.int64)
    at = {int(cell): i for i, cell in enumerate(inside)}
    read = np.concatenate([switches.unknowns, switches.externals])
    gram = coo_array(system.gram)
    held = m + np.arange(len(mine))
    wide = csr_array(
        (np.concatenate([gram.data, np.ones(len(mine))]),
         (np.concatenate([gram.coords[0], held]), np.concatenate([gram.coords[1], held]))),
        shape=(m + len(mine), m + len(mine)),
    )  # fmt: skip
    linear = system.linear.copy()
    linear.resize((m + len(mine), linear.shape[1]))
    made = System(
        program, np.arange(m + len(mine))[None], system.unknowns[:1], program.unknowns[None], program.externals[None],
        system.eliminated[:1], linear, wide, np.concatenate([system.equality, np.ones(len(mine), bool)]),
    )  # fmt: skip
    return KinkedSystem(
        made, switches, inputs, np.array([at[int(cell)] for cell in read], np.int64),
        np.array([1 + at[int(cell)] for cell in kinks.state[mine]], np.int64),
        np.array([1 + at[int(cell)] for cell in kinks.gate[mine]], np.int64), order[kinks.result[mine]],
    )  # fmt: skip


def _needed(tape: Tape, rows: csr_array) -> Mask:
    """Mark the cells that rows depend on."""
    needed = np.zeros(tape.cells, bool)
    needed[rows.indices] = True
    for block in reversed(tape.blocks):
        element = np.flatnonzero(needed[block.first : block.first + block.size])
        if len(element):
            for operand in block.operands:
                needed[csr_array(operand[element]).indices] = True
    return needed


def _operations(tape: Tape, needed: Mask) -> Index:
    """Number the cells that a program of the needed ones computes, in its order."""
    order, count = np.full(tape.cells, -1, np.int64), 0
    for block in tape.blocks:
        cells = block.first + np.flatnonzero(needed[block.first : block.first + block.size])
        order[cells] = count + np.arange(len(cells))
        count += len(cells)
    return order


def _elements(block: Block, run: Index) -> Block:
    if len(run) == block.size:
        return block
    return block.mapped(lambda operand: csr_array(operand[run]), int(block.first + run[0]))


def _reads(form: csr_array, marked: Mask) -> Mask:
    """Which rows of a form hold a marked cell."""
    label = np.repeat(np.arange(form.shape[0]), np.diff(form.indptr))
    return np.bincount(label, marked[form.indices], minlength=form.shape[0]) > 0


def _ratio(one: csr_array, other: csr_array) -> tuple[Values, Mask]:
    """Return row by row the factor k with one = k · other, and whether there is one."""
    cells = max(one.shape[1], other.shape[1])
    one, other = _widened(one, cells), _widened(other, cells)
    square = np.asarray(other.multiply(other).sum(axis=1)).ravel()
    scale = np.asarray(one.multiply(other).sum(axis=1)).ravel() / np.where(square > 0.0, square, 1.0)
    off = csr_array(one - csr_array(diags_array(scale) @ other))
    left = np.asarray(off.multiply(off).sum(axis=1)).ravel()
    return scale, (left <= _ROUNDING**2 * scale**2 * square) & (scale != 0.0)


def _widened(form: csr_array, cells: int) -> csr_array:
    return csr_array((form.data, form.indices, form.indptr), shape=(form.shape[0], cells))


def _units(cell: Index, cells: int) -> csr_array:
    return csr_array((np.ones(len(cell)), cell, np.arange(len(cell) + 1)), shape=(len(cell), cells))
