"""Levels: sparse LDLᵀ in plain torch, for any device. Columns of one height in the elimination tree are done together.

Everything is gather, multiply, add and scatter to places that are all different, so that the bits are the same on every
call and for every lane, on a GPU too: `index_add_` adds in any order there. Contributions that meet in one place are
added in pairs, in a fixed tree. Correct first: on a CPU, Lanes is far faster.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
import torch
from torch import Tensor

from snapfm.kernels.ordering import Order, best
from snapfm.kernels.symbolic import columns, permuted, tree
from snapfm.linear.base import Index, PivotRule
from snapfm.linear.pivots import Tally, scales
from snapfm.linear.whole import Task, Whole, task
from snapfm.structure.pattern import Pattern


@dataclass(frozen=True)
class Levels:
    """Settings: what to do about weak pivots, and how often to refine a solution against the matrix itself."""

    pivots: PivotRule = field(default_factory=PivotRule)
    refinements: int = 0

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> PreparedLevels:
        """Order the unknowns, list the products of every level."""
        given = task(self.pivots, self.refinements, pattern, signs)
        order = best(pattern.indptr, pattern.indices, signs)
        return PreparedLevels(given, order, _layout(pattern, order))


@dataclass(frozen=True)
class Meeting:
    """Contributions to places: a fixed tree that adds those of one place, and the place each sum belongs to."""

    rounds: tuple[tuple[Tensor, Tensor], ...]
    first: Tensor
    place: Tensor

    @classmethod
    def at(cls, place: Index) -> Meeting:
        """Plan the sums of contributions to the given places."""
        order = np.argsort(place, kind="stable")
        ordered = place[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
        rounds: list[tuple[Tensor, Tensor]] = []
        step = 1
        while step <= int(rank.max(initial=0)):
            giver = np.flatnonzero(rank % (2 * step) == step)
            rounds.append((torch.from_numpy(order[giver - step]), torch.from_numpy(order[giver])))
            step *= 2
        return cls(tuple(rounds), torch.from_numpy(order[starts]), torch.from_numpy(ordered[starts]))

    def subtract(self, parts: Tensor, target: Tensor) -> None:
        """Subtract every part from its place in the target; the parts are overwritten."""
        for taker, giver in self.rounds:
            parts[taker] = parts[taker] + parts[giver]
        target[self.place] = target[self.place] - parts[self.first]

    def to(self, device: torch.device) -> Meeting:
        """Give the same on a device."""
        rounds = tuple((taker.to(device), giver.to(device)) for taker, giver in self.rounds)
        return Meeting(rounds, self.first.to(device), self.place.to(device))


@dataclass(frozen=True)
class Level:
    """Columns of one height: their entries in the factor, and what they give to places above."""

    updates: Meeting  # of the pairs, in entries and diagonals of later columns
    down: Meeting  # of the entries, in their rows
    up: Meeting  # of the entries, in their columns
    columns: Tensor
    entries: Tensor  # of these columns, in the factor
    entry_column: Tensor
    entry_row: Tensor
    left: Tensor  # pairs of entries of one column
    right: Tensor
    pair_column: Tensor

    def to(self, device: torch.device) -> Level:
        """Give the same on a device."""
        return Level(*(getattr(self, one.name).to(device) for one in fields(self)))


@dataclass(frozen=True)
class Layout:
    """Where entries are in the factor, and its levels, on one device."""

    levels: tuple[Level, ...]
    sums: Meeting  # of the entries of both triangles, in their rows
    place: Tensor  # (nnz,) in the factor
    perm: Tensor
    row: Tensor  # of the permuted matrix's entries
    column: Tensor
    source: Tensor  # their place among the values
    both: Tensor  # entries of both triangles,
    seen: Tensor  # and the unknowns they are multiplied with

    @property
    def entries(self) -> int:
        """Entries of the factor below the diagonal."""
        return sum(len(level.entries) for level in self.levels)

    def to(self, device: torch.device) -> Layout:
        """Give the same on a device."""
        if self.perm.device == device:
            return self
        tensors = (self.place, self.perm, self.row, self.column, self.source, self.both, self.seen)
        levels = tuple(level.to(device) for level in self.levels)
        return Layout(levels, self.sums.to(device), *(one.to(device) for one in tensors))


@dataclass(frozen=True)
class PreparedLevels:
    """The order and the levels of one pattern."""

    task: Task
    order: Order
    layout: Layout

    @property
    def pattern(self) -> Pattern:
        """The lower triangle it was prepared for."""
        return self.task.pattern

    @property
    def fill(self) -> int:
        """Entries of the factor, the diagonal included."""
        return self.order.fill

    def workspace(self) -> LevelsWorkspace:
        """Give room for factors of its own, for one call at a time."""
        return LevelsWorkspace(self.task, self.layout)


class LevelsWorkspace(Whole):
    """The factor is (entries + n, lanes): X = L D below the diagonal, then D."""

    def __init__(self, task: Task, layout: Layout) -> None:
        super().__init__(task)
        self._layout = layout

    def _factorize(self, values: Tensor, tally: Tally) -> None:
        self._layout = layout = self._layout.to(values.device)
        size, entries = self.task.pattern.rows, layout.entries
        signs = self.task.signs.to(values)[layout.perm].unsqueeze(1)
        scale = scales(layout.row, layout.column, values[layout.source], size, self.task.signed)
        factor = values.new_zeros(entries + size, values.shape[1])
        factor[layout.place] = values
        self._inverse = torch.empty_like(scale)
        for level in layout.levels:
            at = level.columns
            self._inverse[at] = tally.invert(factor[entries + at], scale[at], signs[at])
            scaled = factor[level.right] * self._inverse[level.pair_column]
            level.updates.subtract(factor[level.left] * scaled, factor)
        self._factor = factor

    def _substitute(self, x: Tensor) -> Tensor:
        layout = self._layout
        x = x[layout.perm]
        for level in layout.levels:
            scaled = x[level.entry_column] * self._inverse[level.entry_column]
            level.down.subtract(self._factor[level.entries] * scaled, x)
        x = x * self._inverse
        for level in reversed(layout.levels):
            parts = self._factor[level.entries] * x[level.entry_row]
            level.up.subtract(parts * self._inverse[level.entry_column], x)
        out = torch.empty_like(x)
        out[layout.perm] = x
        return out

    def _residual(self, b: Tensor, x: Tensor) -> Tensor:
        layout = self._layout
        left, x = b[layout.perm], x[layout.perm]
        layout.sums.subtract(self._values[layout.source][layout.both] * x[layout.seen], left)
        out = torch.empty_like(left)
        out[layout.perm] = left
        return out


def _layout(pattern: Pattern, order: Order) -> Layout:
    indptr, lower, source = permuted(pattern.indptr, pattern.indices, order.perm)
    found = tree(indptr, lower)
    assert found is not None
    pointers, rows = columns(indptr, lower, found)
    column = np.repeat(np.arange(pattern.rows), found.counts)
    key = column * pattern.rows + rows  # ascending: entries are sorted by column, then row
    height = _heights(found.parent)

    row = np.repeat(np.arange(pattern.rows), np.diff(indptr))
    diagonal = row == lower
    place = np.empty(pattern.nnz, np.int64)
    place[source] = np.where(diagonal, len(rows) + row, np.searchsorted(key, lower * pattern.rows + row))
    off = np.flatnonzero(~diagonal)
    both, seen = np.concatenate([np.arange(len(row)), off]), np.concatenate([lower, row[off]])
    levels = tuple(
        _level(np.flatnonzero(height == h), pointers, rows, key, pattern.rows) for h in range(int(height.max()) + 1)
    )
    tensors = (torch.from_numpy(a) for a in (place, order.perm, row, lower, source, both, seen))
    return Layout(levels, Meeting.at(np.concatenate([row, lower[off]])), *tensors)


def _heights(parent: Index) -> Index:
    """Give each column of the elimination tree its height above the lowest leaf below it."""
    height = np.zeros(len(parent), np.int64)
    for j, above in enumerate(parent):
        if above >= 0:
            height[above] = max(height[above], height[j] + 1)
    return height


def _level(own: Index, pointers: Index, rows: Index, key: Index, size: int) -> Level:
    """List what the columns `own` hold, and the pairs of their entries with the place each product belongs to."""
    counts = pointers[own + 1] - pointers[own]
    entries = np.concatenate([np.arange(pointers[j], pointers[j + 1]) for j in own])
    column = np.repeat(own, counts)
    lower = [np.tril_indices(count) for count in counts]
    left = np.concatenate([pointers[j] + pair[0] for j, pair in zip(own, lower)])
    right = np.concatenate([pointers[j] + pair[1] for j, pair in zip(own, lower)])
    pair_column = np.repeat(own, counts * (counts + 1) // 2)
    place = np.where(left == right, len(key) + rows[right], np.searchsorted(key, rows[right] * size + rows[left]))
    index = (torch.from_numpy(a) for a in (own, entries, column, rows[entries], left, right, pair_column))
    return Level(Meeting.at(place), Meeting.at(rows[entries]), Meeting.at(column), *index)
