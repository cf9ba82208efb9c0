"""Levels: sparse LDLᵀ in plain torch, for any device. Columns of one height in the elimination tree are done together.

Everything is gather, multiply, add and scatter to places that are all different, so that the bits are the same on every
call and for every lane, on a GPU too: `index_add_` adds in any order there. Contributions that meet in one place are
added in pairs, in a fixed tree. Correct first: on a CPU, Lanes is far faster.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from snapfm.kernels.ordering import best
from snapfm.kernels.symbolic import columns, permuted, tree
from snapfm.linear.base import Index, PivotRule
from snapfm.linear.pivots import Tally, scales
from snapfm.linear.whole import Whole
from snapfm.structure.pattern import Pattern


@dataclass(frozen=True)
class Levels:
    """Settings: what to do about weak pivots, and how often to refine a solution against the matrix itself."""

    pivots: PivotRule = field(default_factory=PivotRule)
    refinements: int = 0

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> PreparedLevels:
        """Order the unknowns, list the products of every level."""
        return PreparedLevels(self.pivots, self.refinements, pattern, signs)


class Meeting:
    """Contributions to places: a fixed tree that adds those of one place, and the place each sum belongs to."""

    def __init__(self, place: Index) -> None:
        order = np.argsort(place, kind="stable")
        ordered = place[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
        self.rounds: list[tuple[Tensor, Tensor]] = []
        step = 1
        while step <= int(rank.max(initial=0)):
            giver = np.flatnonzero(rank % (2 * step) == step)
            self.rounds.append((torch.from_numpy(order[giver - step]), torch.from_numpy(order[giver])))
            step *= 2
        self.first, self.place = torch.from_numpy(order[starts]), torch.from_numpy(ordered[starts])

    def subtract(self, parts: Tensor, target: Tensor) -> None:
        """Subtract every part from its place in the target; the parts are overwritten."""
        for taker, giver in self.rounds:
            parts[taker] = parts[taker] + parts[giver]
        target[self.place] = target[self.place] - parts[self.first]

    def to(self, device: torch.device) -> None:
        """Move to the device."""
        self.rounds = [(taker.to(device), giver.to(device)) for taker, giver in self.rounds]
        self.first, self.place = self.first.to(device), self.place.to(device)


@dataclass
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


class PreparedLevels(Whole):
    """The workspace of one pattern. The factor is (entries + n, lanes): X = L D below the diagonal, then D."""

    def __init__(self, rule: PivotRule, refinements: int, pattern: Pattern, signs: Index | None) -> None:
        super().__init__(rule, refinements, pattern, signs)
        self.order = best(pattern.indptr, pattern.indices, signs)
        indptr, lower, source = permuted(pattern.indptr, pattern.indices, self.order.perm)
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
        self._entries = len(rows)
        self._place = torch.from_numpy(place)
        self._perm = torch.from_numpy(self.order.perm)
        self._row, self._column = torch.from_numpy(row), torch.from_numpy(lower)
        self._source = torch.from_numpy(source)
        off = np.flatnonzero(~diagonal)
        self._both = torch.from_numpy(np.concatenate([np.arange(len(row)), off]))
        self._seen = torch.from_numpy(np.concatenate([lower, row[off]]))
        self._sums = Meeting(np.concatenate([row, lower[off]]))
        self._levels = [
            _level(np.flatnonzero(height == h), pointers, rows, key, pattern.rows) for h in range(int(height.max()) + 1)
        ]
        self._device = torch.device("cpu")

    @property
    def fill(self) -> int:
        """Entries of the factor, the diagonal included."""
        return self.order.fill

    def _factorize(self, values: Tensor, tally: Tally) -> None:
        self._move(values.device)
        signs = self.signs.to(values)[self._perm].unsqueeze(1)
        scale = scales(self._row, self._column, values[self._source], self.pattern.rows, self.signed)
        factor = values.new_zeros(self._entries + self.pattern.rows, values.shape[1])
        factor[self._place] = values
        self._inverse = torch.empty_like(scale)
        for level in self._levels:
            at = level.columns
            self._inverse[at] = tally.invert(factor[self._entries + at], scale[at], signs[at])
            scaled = factor[level.right] * self._inverse[level.pair_column]
            level.updates.subtract(factor[level.left] * scaled, factor)
        self._factor = factor

    def _substitute(self, x: Tensor) -> Tensor:
        x = x[self._perm]
        for level in self._levels:
            scaled = x[level.entry_column] * self._inverse[level.entry_column]
            level.down.subtract(self._factor[level.entries] * scaled, x)
        x = x * self._inverse
        for level in reversed(self._levels):
            parts = self._factor[level.entries] * x[level.entry_row]
            level.up.subtract(parts * self._inverse[level.entry_column], x)
        out = torch.empty_like(x)
        out[self._perm] = x
        return out

    def _residual(self, b: Tensor, x: Tensor) -> Tensor:
        left, x = b[self._perm], x[self._perm]
        self._sums.subtract(self._values[self._source][self._both] * x[self._seen], left)
        out = torch.empty_like(left)
        out[self._perm] = left
        return out

    def _move(self, device: torch.device) -> None:
        if device == self._device:
            return
        for name, part in vars(self).items():
            if isinstance(part, Tensor):
                setattr(self, name, part.to(device))
        self._sums.to(device)
        for level in self._levels:
            for name, part in vars(level).items():
                if isinstance(part, Meeting):
                    part.to(device)
                else:
                    setattr(level, name, part.to(device))
        self._device = device


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
    return Level(Meeting(place), Meeting(rows[entries]), Meeting(column), *index)
