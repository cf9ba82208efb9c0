"""Reduction: the part of a list of laws that remains to be solved after everything that structure alone decides.

1. Unknowns that rows determine one after the other are substituted (cascade), after pairs tied by a row were rotated.
   Unknowns that blocks of rows determine together are solved for block by block (march).
2. Rows that others imply are dropped, to be judged with the answer.
3. Unknowns that enter all rows in the same way are aggregated: two stand for each such group.
4. The rest splits into parts that share no unknown. Parts that are affine equalities are solved in closed form.
5. In the others, unknowns that enter no operation are eliminated through their multipliers: u = û − Aᵀλ holds for them
   exactly, so they appear only as the constant matrix `gram` = AAᵀ. Parts with the same structure (the slices of a field)
   share one System and are solved side by side.

Consumes a tape and returns frozen values. Knows nothing of solvers.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import connected_components

from snapfm.arrays import Index, Mask
from snapfm.compile.lower.tape import Tape
from snapfm.compile.presolve import SEARCH_LIMIT, dependent_rows
from snapfm.compile.program import Program, build_program
from snapfm.compile.sparsity.pattern import gram
from snapfm.compile.sparsity.reads import Reads, reads
from snapfm.reduce.aggregate import Aggregates, aggregated, find_aggregates
from snapfm.reduce.blocks import quadratic_rows
from snapfm.reduce.cascade import Cascade, cascade
from snapfm.reduce.levels import level_programs
from snapfm.reduce.march import March, find_march
from snapfm.reduce.rotate import Rotations, find_rotations, rotated

# Above this many separate parts they are solved as one: looking at each alone would cost more than it saves.
_PART_LIMIT = 512


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
    externals: Index  # (parts, …) cells of params the program reads
    eliminated: Index  # (parts, s) unknowns that follow from the multipliers
    linear: csr_array  # (m, s)
    gram: csr_array  # (m, m)
    equality: Mask  # (m,)
    opaque: bool = False  # rows are evaluated by callback: those of `program` only name the cells
    quadratic: bool = False  # whether all rows are at most quadratic in the unknowns

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.rows)


@dataclass(frozen=True)
class Reduction:
    """The rows of all laws, sorted by how they are dealt with.

    All of it is over the new unknowns: those of the field, rotated, and the coordinates of the aggregates behind them.
    """

    tape: Tape
    rotations: Rotations
    aggregates: Aggregates
    rows: csr_array  # (m, cells)
    cascade: Cascade
    substitutions: tuple[Program, ...]  # one per level of the cascade: its rows, values only
    march: March  # after the cascade: what blocks of rows determine
    dropped: Index  # rows that others repeat, once the cascade's unknowns are known
    affine: Index  # rows solved in closed form
    systems: tuple[System, ...]

    @property
    def implied(self) -> Index:
        """Rows that hold if the others do, unless the laws contradict each other."""
        return np.union1d(self.cascade.implied, self.dropped).astype(np.int64)


def reduce(tape: Tape, rows: csr_array, equality: Mask, constant: Mask, bounded: Mask, redundant: Index) -> Reduction:
    """Sort all rows over the cells of a tape.

    `constant` marks affine rows, `bounded` the unknowns with limits; `redundant` rows are known to follow from others.
    """
    usable_rows = equality.copy()
    usable_rows[redundant] = False
    tape, rows, found, fixed, march, rotations = _fixed(tape, rows, usable_rows, constant, bounded)
    open_rows = np.ones(rows.shape[0], bool)
    open_rows[fixed.pinned_rows()] = False
    open_rows[march.rows()] = False
    open_rows[fixed.implied] = False
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
    direct = _direct(tape, rows, fixed.free)
    substitutions = level_programs(tape, rows, [level.rows for level in fixed.levels])
    iterated = _nonlinear(found, open_rows, tape.unknowns) | bounded
    labels = _parts(found, np.flatnonzero(open_rows), fixed.free, tape.unknowns)
    curved = np.zeros(labels.max(initial=0) + 1, bool)
    row_label = labels[: rows.shape[0]]
    unknown_label = labels[rows.shape[0] :]
    touched = np.flatnonzero(fixed.free & iterated & (unknown_label >= 0))
    curved[unknown_label[touched]] = True
    curved[row_label[open_rows & ~equality]] = True
    affine = np.flatnonzero(open_rows & ~curved[np.maximum(row_label, 0)])
    systems = _systems(tape, rows, direct, row_label, unknown_label, curved, iterated & fixed.free, open_rows, equality)
    return Reduction(tape, rotations, aggregates, rows, fixed, substitutions, march, dropped, affine, systems)


def _fixed(
    tape: Tape, rows: csr_array, usable: Mask, constant: Mask, bounded: Mask
) -> tuple[Tape, csr_array, Reads, Cascade, March, Rotations]:
    """Find what cascade and march determine, rotating pairs where that lets them continue."""
    found = reads(tape, rows)
    fixed, march = determined(tape, rows, found, usable)
    open_rows = np.ones(rows.shape[0], bool)
    open_rows[fixed.pinned_rows()] = False
    open_rows[march.rows()] = False
    nonlinear = _nonlinear(found, open_rows, tape.unknowns)
    rotations = find_rotations(rows, found, fixed.free, bounded, open_rows & usable & constant, nonlinear)
    if len(rotations):
        tape, rows = rotated(tape, rows, rotations)
        found = reads(tape, rows)
        fixed, march = determined(tape, rows, found, usable)
    return tape, rows, found, fixed, march, rotations


def determined(tape: Tape, rows: csr_array, found: Reads, usable: Mask) -> tuple[Cascade, March]:
    """Find what single rows determine, then what blocks of rows do. Rows that read nothing else are implied."""
    fixed = cascade(rows, found, usable)
    left = usable.copy()
    left[fixed.pinned_rows()] = False
    march = find_march(tape, rows, found.all, left, fixed.free)
    if not len(march):
        return fixed, march
    free = fixed.free.copy()
    free[march.unknowns()] = False
    unused = np.ones(rows.shape[0], bool)
    unused[fixed.pinned_rows()] = False
    unused[march.rows()] = False
    unused[found.all.rows()[free[found.all.indices]]] = False
    return Cascade(fixed.levels, np.flatnonzero(unused), free), march


def _direct(tape: Tape, rows: csr_array, free: Mask) -> csr_array:
    """The rows' constant coefficients over free unknowns."""
    direct = csr_array(csr_array(rows[:, : tape.unknowns]) @ diags_array(free.astype(float)))
    direct.eliminate_zeros()
    return direct


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
    chosen = np.flatnonzero(curved)
    if len(chosen) == 0:
        return ()
    if len(chosen) > _PART_LIMIT:
        row_label = np.where(np.isin(row_label, chosen), chosen[0], row_label)
        unknown_label = np.where(np.isin(unknown_label, chosen), chosen[0], unknown_label)
        chosen = chosen[:1]
    quadratic = quadratic_rows(tape, rows, unknown_label >= 0)
    found: dict[bytes, list[System]] = {}
    alone = len(chosen) == 1  # nothing to compare it with: a large one takes seconds to hash
    for part in chosen:
        mine = np.flatnonzero((row_label == part) & open_rows)
        unknowns = np.flatnonzero(unknown_label == part)
        one = _part(tape, rows, direct, mine, unknowns[iterated[unknowns]], unknowns[~iterated[unknowns]], equality)
        one = replace(one, quadratic=bool(quadratic[mine].all()))
        found.setdefault(b"" if alone else _fingerprint(one), []).append(one)
    return tuple(_joined(same) for same in found.values())


def _part(
    tape: Tape, rows: csr_array, direct: csr_array, mine: Index, moving: Index, eliminated: Index, equality: Mask
) -> System:
    linear = csr_array(csr_array(direct[mine])[:, eliminated])
    own = csr_array(rows[mine])
    keep = np.ones(tape.cells)
    keep[eliminated] = 0.0
    own = csr_array(own @ diags_array(keep))
    own.eliminate_zeros()
    program = build_program(tape, own, moving)
    return System(
        program, mine[None], moving[None], program.unknowns[None], program.externals[None], eliminated[None], linear,
        gram(linear), equality[mine],
    )  # fmt: skip


def _fingerprint(system: System) -> bytes:
    """Hash everything that parts with the same structure share: all but their rows and unknowns."""
    digest = hashlib.sha256()
    where = np.searchsorted(system.inputs[0], system.unknowns[0])
    arrays = [*system.program.code, system.program.constants, system.equality, where]
    for matrix in (system.linear, system.gram):
        arrays += [matrix.indptr, matrix.indices, matrix.data]
    for array in arrays:
        digest.update(str(np.shape(array)).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.digest()


def _joined(parts: list[System]) -> System:
    """Put parts with the same structure into one System."""
    names = ("rows", "unknowns", "inputs", "externals", "eliminated")
    lines: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in parts]) for name in names}
    return replace(parts[0], **lines)


def system_from_program(program: Program, unknowns: Index) -> System:
    """Take a program as a system of equalities in the inputs that `unknowns` lists; rows and inputs are numbered from zero."""
    m = program.pattern.rows
    counts = (len(program.unknowns), len(program.externals), 0)
    inputs, externals, nothing = (np.arange(count)[None] for count in counts)
    return System(
        program, np.arange(m)[None], unknowns[None], inputs, externals, nothing, csr_array((m, 0)), csr_array((m, m)),
        np.ones(m, bool),
    )  # fmt: skip


def opaque_system(tape: Tape, program: Program, rows: Index, dropped: Index, equality: Mask) -> Reduction:
    """Leave everything to one system: for laws whose rows cannot be looked into."""
    n, m = tape.unknowns, len(rows)
    nothing = np.zeros(0, np.int64)
    system = System(
        program, rows[None], np.arange(n)[None], program.unknowns[None], program.externals[None], nothing[None],
        csr_array((m, 0)), csr_array((m, m)), equality, opaque=True,
    )  # fmt: skip
    rotations = Rotations(nothing, nothing, nothing, np.zeros(0), np.zeros(0))
    over, fixed = csr_array((0, tape.cells)), Cascade((), nothing, np.ones(n, bool))
    aggregates = Aggregates(np.zeros(1, np.int64), nothing, n, csr_array((0, 0)))
    return Reduction(tape, rotations, aggregates, over, fixed, (), March(), dropped, nothing, (system,))
