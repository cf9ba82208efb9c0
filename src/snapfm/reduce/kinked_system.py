"""A System with its kinks written as smooth pieces (compile.kinks), and a further row to hold each of them.

Consumes Kinks and a System of the reduction. Returns frozen values for solve.kinks.search. Knows nothing of solvers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import block_diag, csr_array, eye_array, vstack

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.kinks import Kinks
from snapfm.compile.lower.subtape import cut
from snapfm.compile.lower.tape import ONE, units, without
from snapfm.compile.program import Program, build_program, program_of
from snapfm.reduce.reduce import System


@dataclass(frozen=True)
class KinkedSystem:
    """A System with its kinks written as smooth pieces. Its rows are those of the System, then one to hold each kink.

    States and gates of kinks stand behind the cells of params, a pair for each kink of a plan, and the rows that hold them
    behind the rows of all laws: see `KinkedRows.columns`.
    """

    system: System
    switches: Program  # rows s, then jumps, by the unknowns that are iterated on
    params: (
        Index  # which of its own program's params `system.program` reads, before states and gates; and which unknowns
    )
    unknowns: Index
    switch_params: Index  # cells of `system.program` that are those of `switches`
    switch_unknowns: Index
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
    gone = np.zeros(own.shape[1], bool)
    gone[1 + kinks.params + system.eliminated[0]] = True
    own = csr_array(without(own, gone) @ kinks.forms)
    own.eliminate_zeros()
    mine = np.flatnonzero(np.isin(kinks.result, cut(kinks.tape, own, [own.shape[0]])[0].operations))
    alike = all((limits[system.unknowns] == limits[system.unknowns[:1]]).all() for limits in (lower, upper))
    if not len(mine) or (alike and _one_sided(kinks, mine, lower, upper).all()):
        return None
    columns = first + np.arange(system.parts * len(mine)).reshape(system.parts, len(mine))
    return KinkedRows(kinks, system, own, mine, rows.shape[0], columns)


def _one_sided(kinks: Kinks, mine: Index, lower: Values, upper: Values) -> Mask:
    """Mark the kinks whose switch is an affine form of unknowns that keeps its sign within their bounds."""
    switch, tape = csr_array(kinks.switch[mine]), kinks.tape
    least = np.full(tape.cells, -np.inf)  # what cells of params and of operations may be is not known here
    most = -least
    least[ONE] = most[ONE] = 1.0
    least[tape.unknown_cells], most[tape.unknown_cells] = lower, upper
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
    part = cut(kinks.tape, whole, [whole.shape[0]])[0]
    program = program_of(part, moving)
    forms = csr_array(vstack([kinks.switch[mine], kinks.jump[mine]], format="csr"))
    switches = build_program(kinks.tape, forms, moving, second=False)
    m, first = own.shape[0] + len(mine), 1 + len(program.params)
    linear = system.linear.copy()
    linear.resize((m, linear.shape[1]))
    equality = np.concatenate([system.equality, np.ones(len(mine), bool)])
    made = System.of(program, np.arange(m), moving, equality, linear=linear)
    ordinary = program.params[program.params < kinks.params]  # those behind them are states and gates
    own_params, own_unknowns = (
        np.searchsorted(system.params[0], ordinary),
        np.searchsorted(system.inputs[0], program.unknowns),
    )
    state, gate = (np.searchsorted(program.params, cells[mine] - 1) for cells in (kinks.state, kinks.gate))
    params = np.empty((system.parts, len(program.params)), np.int64)
    params[:, : len(ordinary)] = system.params[:, own_params]
    params[:, state] = kinks.params + 2 * found.columns
    params[:, gate] = kinks.params + 2 * found.columns + 1
    made = replace(
        made, rows=np.concatenate([system.rows, found.behind + found.columns], axis=1), unknowns=system.unknowns,
        inputs=system.inputs[:, own_unknowns], params=params, eliminated=system.eliminated,
        gram=csr_array(block_diag([system.gram, eye_array(len(mine))], format="csr")),
    )  # fmt: skip
    return KinkedSystem(
        system=made, switches=switches, params=own_params, unknowns=own_unknowns,
        switch_params=1 + np.searchsorted(program.params, switches.params),
        switch_unknowns=first + np.searchsorted(program.unknowns, switches.unknowns),
        state=1 + state, gate=1 + gate, result=np.searchsorted(part.operations, kinks.result[mine]),
    )  # fmt: skip
