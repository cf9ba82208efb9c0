"""A System with its kinks written as smooth pieces (compile.kinks), and a further row to hold each of them.

Consumes Kinks and a System of the reduction. Returns frozen values for solve.kinks.search. Knows nothing of solvers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array, diags_array, vstack

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.kinks import Kinks
from snapfm.compile.lower.tape import Tape, units
from snapfm.compile.program import Program, build_program
from snapfm.reduce.reduce import System


@dataclass(frozen=True)
class KinkedSystem:
    """A System with its kinks written as smooth pieces. Its rows are those of the System, then one to hold each kink.

    States and gates of kinks stand behind the cells of params, a pair for each kink of a plan, and the rows that hold them
    behind the rows of all laws: see `KinkedRows.columns`.
    """

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

    @property
    def holds(self) -> Index:
        """The rows that hold kinks."""
        return self.rows + np.arange(len(self.state))


@dataclass(frozen=True)
class KinkedRows:
    """The rows of a System over a tape without kinks, and which kinks they depend on. Programs are built when needed."""

    kinks: Kinks
    system: System
    rows: csr_array
    mine: Index
    behind: int  # number of all laws' rows
    columns: Index  # (parts, kinks) where the kinks of each part are among those of a plan

    @property
    def count(self) -> int:
        """Number of kinks of one part."""
        return len(self.mine)


def kinked_rows(
    kinks: Kinks, rows: csr_array, system: System, lower: Values, upper: Values, first: int
) -> KinkedRows | None:
    """Write the rows of a System (over all laws' `rows`) with its kinks as smooth pieces; None if it has none.

    `first` counts the kinks of earlier Systems.

    Kinks that no field within the bounds crosses are none: a logarithm of u.clamp(min=ε) beside u ≥ ε, a relu beside u ≥ 0.
    """
    own = csr_array(rows[system.rows[0]])
    keep = np.ones(own.shape[1])
    keep[system.eliminated[0]] = 0.0
    own = csr_array(csr_array(own @ diags_array(keep)) @ kinks.forms)
    own.eliminate_zeros()
    mine = np.flatnonzero(_needed(kinks.tape, own)[kinks.result])
    alike = all((limits[system.unknowns] == limits[system.unknowns[:1]]).all() for limits in (lower, upper))
    if not len(mine) or (alike and _one_sided(kinks, mine, lower, upper).all()):
        return None
    columns = first + np.arange(system.parts * len(mine)).reshape(system.parts, len(mine))
    return KinkedRows(kinks, system, own, mine, rows.shape[0], columns)


def _one_sided(kinks: Kinks, mine: Index, lower: Values, upper: Values) -> Mask:
    """Mark the kinks whose switch is an affine form of unknowns that keeps its sign within their bounds."""
    switch, unknowns = csr_array(kinks.switch[mine]), kinks.tape.unknowns
    # The cell behind the unknowns is the constant 1; what other cells may be is not known here.
    least = np.concatenate([lower, [1.0], np.full(kinks.tape.cells - unknowns - 1, -np.inf)])
    most = np.concatenate([upper, [1.0], np.full(kinks.tape.cells - unknowns - 1, np.inf)])
    value, column = switch.data, switch.indices
    ends = np.sort(np.stack([value * least[column], value * most[column]]), axis=0)
    row = np.repeat(np.arange(len(mine)), np.diff(switch.indptr))
    low, high = (np.bincount(row, end, minlength=len(mine)) for end in ends)
    settled: Mask = (low >= 0.0) | (high <= 0.0)
    return settled


def kinked_system(found: KinkedRows) -> KinkedSystem:
    """Build the programs of a System with its kinks as smooth pieces."""
    kinks, system, own, mine = found.kinks, found.system, found.rows, found.mine
    cells = kinks.tape.cells
    whole = csr_array(vstack([own, units(kinks.hold[mine], cells)], format="csr"))
    moving = system.unknowns[0]
    program = build_program(kinks.tape, whole, moving)
    forms = csr_array(vstack([kinks.switch[mine], kinks.jump[mine]], format="csr"))
    switches = build_program(kinks.tape, forms, moving, second=False)
    order, m = _operations(kinks.tape, _needed(kinks.tape, whole)), own.shape[0]
    inside = np.concatenate([program.unknowns, program.externals])
    ordinary = program.externals < min(kinks.state.min(), kinks.gate.min())
    place = {int(cell): i for i, cell in enumerate(np.concatenate([system.inputs[0], system.externals[0]]))}
    count = len(program.unknowns)
    inputs = np.array([place[int(cell)] for cell in inside[: count + int(ordinary.sum())]], np.int64)
    at = {int(cell): i for i, cell in enumerate(inside)}
    state, gate = (
        np.array([at[int(cell)] for cell in cells_of[mine]], np.int64) for cells_of in (kinks.state, kinks.gate)
    )
    externals = np.empty((system.parts, len(program.externals)), np.int64)
    externals[:, : len(inputs) - count] = system.externals[:, inputs[count:] - system.inputs.shape[1]]
    externals[:, state - count] = kinks.forms.shape[0] + 2 * found.columns
    externals[:, gate - count] = kinks.forms.shape[0] + 2 * found.columns + 1
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
        program, np.concatenate([system.rows, found.behind + found.columns], axis=1), system.unknowns,
        system.inputs[:, inputs[:count]], externals, system.eliminated, linear, wide,
        np.concatenate([system.equality, np.ones(len(mine), bool)]),
    )  # fmt: skip
    return KinkedSystem(
        made, switches, inputs, np.array([at[int(cell)] for cell in read], np.int64), 1 + state, 1 + gate,
        order[kinks.result[mine]],
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
