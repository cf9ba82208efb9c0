"""Reduction: the part of a list of laws that remains to be solved after everything that structure alone decides.

1. Unknowns that rows determine one after the other are substituted (cascade), after pairs tied by a row were rotated.
   Unknowns that blocks of rows determine together are solved for block by block (march).
2. Rows that others imply are dropped, to be judged with the answer.
3. Unknowns that enter all rows in the same way are aggregated: two stand for each such group.
4. The rest splits into parts that share no unknown. Parts that are affine equalities are solved in closed form, those of a few
   sums over the points of a large field by their multipliers (totals).
5. In the others, unknowns that enter no operation are eliminated through their multipliers: u = û − Aᵀλ holds for them
   exactly, so they appear only as the constant matrix `gram` = AAᵀ. Parts with the same structure (the slices of a field)
   share one System and are solved side by side.

Consumes a tape and returns frozen values. Knows nothing of solvers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from snapfm.arrays import Index, Mask
from snapfm.compile.lower.subtape import cut, hashed
from snapfm.compile.lower.tape import Tape, without
from snapfm.compile.lower.transform import Transform
from snapfm.compile.presolve import SEARCH_LIMIT, dependent_rows
from snapfm.compile.program import Program, program_of
from snapfm.compile.sparsity.pattern import gram
from snapfm.compile.sparsity.reads import Reads, reads
from snapfm.reduce.aggregate import Aggregates, aggregated, find_aggregates
from snapfm.reduce.blocks import quadratic_rows
from snapfm.reduce.cascade import Cascade, cascade
from snapfm.reduce.march import March, find_march
from snapfm.reduce.rotate import Rotations, find_rotations, rotated
from snapfm.reduce.totals import Totals, find_totals

# Above this many separate parts they are solved as one: looking at each alone would cost more than it saves.
_PART_LIMIT = 512
_TOTALS = 16  # parts that are looked at for totals of a large field


@dataclass(frozen=True)
class System:
    """Parts with the same structure. Arrays of indices have one line per part; `program` and the matrices are shared.

    `program` evaluates the rows over the part's inputs, without the eliminated unknowns; their share of the rows is
    shift − gram·λ, where shift = linear·û.
    """

    program: Program
    rows: Index  # (parts, m) rows of the stack
    unknowns: Index  # (parts, v) unknowns that are iterated on
    inputs: Index  # (parts, …) unknowns the program reads
    params: Index  # (parts, …) params the program reads
    eliminated: Index  # (parts, s) unknowns that follow from the multipliers
    linear: csr_array  # (m, s)
    gram: csr_array  # (m, m)
    equality: Mask  # (m,)
    opaque: bool = False  # rows are evaluated by callback: those of `program` only name the cells
    quadratic: bool = False  # whether all rows are at most quadratic in the unknowns

    @classmethod
    def of(
        cls, program: Program, rows: Index, unknowns: Index, equality: Mask, *, eliminated: Index | None = None,
        linear: csr_array | None = None, opaque: bool = False,
    ) -> System:  # fmt: skip
        """Make one part: its rows of the stack, `unknowns` that are iterated on, and those eliminated, with their columns."""
        linear = csr_array((len(rows), 0)) if linear is None else linear
        nothing = np.zeros(0, np.int64)
        return cls(
            program=program, rows=rows[None], unknowns=unknowns[None], inputs=program.unknowns[None],
            params=program.params[None], eliminated=(nothing if eliminated is None else eliminated)[None], linear=linear,
            gram=gram(linear), equality=equality, opaque=opaque,
        )  # fmt: skip

    @classmethod
    def from_program(cls, program: Program, unknowns: Index) -> System:
        """Take a program as equalities in the inputs that `unknowns` lists; rows, inputs and params are numbered from zero."""
        m = program.pattern.rows
        here = replace(program, unknowns=np.arange(len(program.unknowns)), params=np.arange(len(program.params)))
        return cls.of(here, np.arange(m), unknowns, np.ones(m, bool))

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.rows)

    @cached_property
    def places(self) -> Index:
        """Cells of the program that are unknowns iterated on."""
        place: Index = 1 + self.params.shape[1] + np.searchsorted(self.inputs[0], self.unknowns[0])
        return place


@dataclass(frozen=True)
class Reduction:
    """The rows of all laws, sorted by how they are dealt with.

    All of it is over the new unknowns: those of the field, rotated, and the coordinates of the aggregates behind them.
    """

    tape: Tape
    transform: Transform | None  # whose coefficients the unknowns of the field are
    rotations: Rotations
    aggregates: Aggregates
    rows: csr_array  # (m, cells)
    cascade: Cascade
    substitutions: tuple[Program, ...]  # one per level of the cascade: its rows, values only
    march: March  # after the cascade: what blocks of rows determine
    dropped: Index  # rows that others repeat, once the cascade's unknowns are known
    affine: Index  # rows solved in closed form
    systems: tuple[System, ...]
    totals: tuple[Totals, ...] = ()

    @property
    def implied(self) -> Index:
        """Rows that hold if the others do, unless the laws contradict each other."""
        return np.union1d(self.cascade.implied, self.dropped).astype(np.int64)

    @classmethod
    def opaque(cls, tape: Tape, program: Program, rows: Index, dropped: Index, equality: Mask) -> Reduction:
        """Leave everything to one System: for laws whose rows cannot be looked into."""
        n, nothing = tape.unknowns, np.zeros(0, np.int64)
        return cls(
            tape=tape, transform=None, rotations=Rotations.none(), aggregates=Aggregates.none(n), rows=csr_array((0, tape.cells)),
            cascade=Cascade((), nothing, np.ones(n, bool)), substitutions=(), march=March(), dropped=dropped, affine=nothing,
            systems=(System.of(program, rows, np.arange(n), equality, opaque=True),),
        )  # fmt: skip


def reduce(
    tape: Tape, rows: csr_array, equality: Mask, constant: Mask, bounded: Mask, redundant: Index,
    transform: Transform | None = None,
) -> Reduction:  # fmt: skip
    """Sort all rows over the cells of a tape.

    `constant` marks affine rows, `bounded` the unknowns with limits; `redundant` rows are known to follow from others.
    """
    bounded = bounded if transform is None else np.zeros(tape.unknowns, bool)
    usable_rows = equality.copy()
    usable_rows[redundant] = False
    tape, rows, found, fixed, march, rotations = _fixed(tape, rows, usable_rows, constant, bounded)
    open_rows = _open(rows.shape[0], fixed, march)
    open_rows[redundant] = False
    dropped = redundant
    if len(fixed.levels) > 1 or len(march) or len(rotations):  # rows may have become dependent that were not
        later = _dependent(_direct(tape, rows, fixed.free), np.flatnonzero(open_rows & equality & constant))
        open_rows[later] = False
        dropped = np.union1d(dropped, later)

    usable = fixed.free & ~bounded
    aggregates, quadratic = find_aggregates(tape, rows, np.flatnonzero(open_rows), usable)
    if len(aggregates):
        tape, rows = aggregated(tape, rows, np.flatnonzero(open_rows), aggregates, quadratic)
        found = reads(tape, rows)
        free = np.concatenate([fixed.free, np.ones(2 * len(aggregates), bool)])
        free[aggregates.members] = False  # carried by their coordinates
        fixed = Cascade(fixed.levels, fixed.implied, free)
        bounded = np.concatenate([bounded, np.zeros(2 * len(aggregates), bool)])
    del quadratic
    direct = _direct(tape, rows, fixed.free)
    parts = cut(tape, csr_array(rows[fixed.pinned_rows()]), [len(level.rows) for level in fixed.levels])
    substitutions = tuple(program_of(part, np.zeros(0, np.int64)) for part in parts)
    iterated = _nonlinear(found, open_rows, tape.unknowns) | bounded
    labels = _parts(found, np.flatnonzero(open_rows), fixed.free, tape.unknowns)
    curved = np.zeros(labels.max(initial=0) + 1, bool)
    row_label = labels[: rows.shape[0]]
    unknown_label = labels[rows.shape[0] :]
    touched = np.flatnonzero(fixed.free & iterated & (unknown_label >= 0))
    curved[unknown_label[touched]] = True
    curved[row_label[open_rows & ~equality]] = True
    affine = np.flatnonzero(open_rows & ~curved[np.maximum(row_label, 0)])

    def solved(parts: Mask) -> tuple[System, ...]:
        moving = iterated & fixed.free
        return _systems(tape, rows, direct, row_label, unknown_label, parts, moving, open_rows, equality)

    totals = list[Totals]()
    for part in np.flatnonzero(curved)[:_TOTALS]:
        own, alone = np.flatnonzero((row_label == part) & open_rows), np.arange(len(curved)) == part
        one = find_totals(tape, rows, own, fixed.free, equality, partial(solved, alone))
        if one is not None:
            curved &= ~alone
            totals.append(one)
    return Reduction(
        tape, transform, rotations, aggregates, rows, fixed, substitutions, march, dropped, affine, solved(curved),
        tuple(totals),
    )  # fmt: skip


def _fixed(
    tape: Tape, rows: csr_array, usable: Mask, constant: Mask, bounded: Mask
) -> tuple[Tape, csr_array, Reads, Cascade, March, Rotations]:
    """Find what cascade and march determine, rotating pairs where that lets them continue."""
    found = reads(tape, rows)
    fixed, march = determined(tape, rows, found, usable)
    open_rows = _open(rows.shape[0], fixed, march)
    nonlinear = _nonlinear(found, open_rows, tape.unknowns)
    rotations = find_rotations(tape, rows, found, fixed.free, bounded, open_rows & usable & constant, nonlinear)
    if len(rotations):
        tape, rows = rotated(tape, rows, rotations)
        found = reads(tape, rows)
        fixed, march = determined(tape, rows, found, usable)
    return tape, rows, found, fixed, march, rotations


def determined(tape: Tape, rows: csr_array, found: Reads, usable: Mask) -> tuple[Cascade, March]:
    """Find what single rows determine, then what blocks of rows do. Rows that read nothing else are implied."""
    fixed = cascade(tape, rows, found, usable)
    left = usable.copy()
    left[fixed.pinned_rows()] = False
    march = find_march(tape, rows, found.all, left, fixed.free)
    if not len(march):
        return fixed, march
    free = fixed.free.copy()
    free[march.unknowns()] = False
    unused = _open(rows.shape[0], fixed, march)
    unused[fixed.implied] = True
    unused[found.all.rows()[free[found.all.indices]]] = False
    return Cascade(fixed.levels, np.flatnonzero(unused), free), march


def _open(rows: int, fixed: Cascade, march: March) -> Mask:
    """Mark the rows that cascade and march have no use for."""
    left = np.ones(rows, bool)
    for used in (fixed.pinned_rows(), march.rows(), fixed.implied):
        left[used] = False
    return left


def _direct(tape: Tape, rows: csr_array, free: Mask) -> csr_array:
    """The rows' constant coefficients over free unknowns."""
    return without(csr_array(rows[:, tape.unknown_cells]), ~free)


def _dependent(direct: csr_array, candidates: Index) -> Index:
    if not len(candidates) or len(candidates) > SEARCH_LIMIT:
        return np.zeros(0, np.int64)
    return candidates[dependent_rows(csr_array(direct[candidates]))]


def _nonlinear(found: Reads, open_rows: Mask, unknowns: int) -> Mask:
    """Unknowns that enter an operation of an open row."""
    nonlinear = np.zeros(unknowns, bool)
    nonlinear[found.nonlinear.indices[open_rows[found.nonlinear.rows()]]] = True
    return nonlinear


def _parts(found: Reads, open_rows: Index, free: Mask, unknowns: int) -> Index:
    """Label rows and unknowns by the part they belong to; -1 where they belong to none."""
    height = found.all.size
    row, column = found.all.rows(), found.all.indices
    is_open = np.zeros(height, bool)
    is_open[open_rows] = True
    live = is_open[row] & free[column]
    graph = csr_array(
        (np.ones(int(live.sum()), bool), (row[live], height + column[live])),
        shape=(height + unknowns, height + unknowns),
    )
    _, labels = connected_components(graph, directed=False)
    used = np.zeros(height + unknowns, bool)
    used[open_rows] = True
    used[height + column[live]] = True
    labels = np.where(used, labels, -1)
    _, dense = np.unique(labels[used], return_inverse=True)
    labels[used] = dense
    return labels.astype(np.int64)


def _systems(
    tape: Tape, rows: csr_array, direct: csr_array, row_label: Index, unknown_label: Index, curved: Mask,
    iterated: Mask, open_rows: Mask, equality: Mask,
) -> tuple[System, ...]:  # fmt: skip
    """Make Systems of the `curved` parts; those with the same structure share one, and its program."""
    chosen = np.flatnonzero(curved)
    if len(chosen) == 0:
        return ()
    if len(chosen) > _PART_LIMIT:
        row_label = np.where(np.isin(row_label, chosen), chosen[0], row_label)
        unknown_label = np.where(np.isin(unknown_label, chosen), chosen[0], unknown_label)
        chosen = chosen[:1]
    quadratic = quadratic_rows(tape, rows, unknown_label >= 0)
    gone = np.zeros(tape.cells, bool)
    gone[tape.unknown_cells] = (unknown_label >= 0) & ~iterated
    mine = [np.flatnonzero((row_label == part) & open_rows) for part in chosen]
    parts = cut(tape, without(csr_array(rows[np.concatenate(mine)]), gone), [len(own) for own in mine])
    systems: list[System] = []
    found: dict[bytes, list[dict[str, Any]]] = {}  # of each System, what its parts do not share
    for number, own, part in zip(chosen, mine, parts, strict=True):
        unknowns = np.flatnonzero(unknown_label == number)
        moving, eliminated = unknowns[iterated[unknowns]], unknowns[~iterated[unknowns]]
        linear = csr_array(csr_array(direct[own])[:, eliminated])
        key = b""
        if len(chosen) > 1:  # or there is nothing to compare it with: a large one takes seconds to hash
            key = part.fingerprint(np.searchsorted(part.unknowns, moving))
            key += hashed([linear.indptr, linear.indices, linear.data, equality[own]])
        if key not in found:
            one = System.of(program_of(part, moving), own, moving, equality[own], eliminated=eliminated, linear=linear)
            systems.append(replace(one, quadratic=bool(quadratic[own].all())))
        found.setdefault(key, []).append(
            {"rows": own, "unknowns": moving, "inputs": part.unknowns, "params": part.params, "eliminated": eliminated}
        )
    stacked: list[dict[str, Any]] = [
        {name: np.stack([line[name] for line in lines]) for name in lines[0]} for lines in found.values()
    ]
    return tuple(replace(system, **lines) for system, lines in zip(systems, stacked, strict=True))
