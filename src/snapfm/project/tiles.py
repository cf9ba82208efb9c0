"""Tiles: the memory of some lanes of one system, eight to a tile, by sections (kernels.layout)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from snapfm.kernels.operations import LANES

Values = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

_GOLDEN = 0.6180339887498949


def tiles_for(lanes: int) -> int:
    """Count the tiles that so many lanes fill."""
    return (lanes + LANES - 1) // LANES


class Tiles:
    """The first `lanes` lanes of a space (tiles, numbers); `at` says where each section of a tile begins."""

    def __init__(self, space: Values, at: Index, lanes: int) -> None:
        self.space, self.at, self.lanes = space, at, lanes

    def section(self, number: int) -> Values:
        """See a section of all tiles: (tiles, packs · LANES)."""
        return self.space[:, self.at[number] : self.at[number + 1]]

    def by_lane(self, number: int) -> Values:
        """See a section as (lanes, packs)."""
        part = self.section(number)
        packs = part.shape[1] // LANES
        lanes = part.reshape(len(part), packs, LANES).transpose(0, 2, 1).reshape(len(part) * LANES, packs)
        return lanes[: self.lanes]

    def take(self, which: Index) -> Tiles:
        """Copy chosen lanes into tiles of their own."""
        return Tiles(taken(self.space, which), self.at, len(which))

    def put(self, to: Index, source: Tiles, come: Index) -> None:
        """Copy lanes `come` of other tiles to lanes `to` of these."""
        width = self.space.shape[1] // LANES
        whole = self.space.reshape(len(self.space), width, LANES)
        part = source.space.reshape(len(source.space), width, LANES)
        whole[to // LANES, :, to % LANES] = part[come // LANES, :, come % LANES]

    def scatter(self, number: int) -> None:
        """Move a section off a point where rows are flat or parallel: a fixed scatter, a hundredth of the field's size."""
        x = self.section(number)
        unknowns = x.shape[1] // LANES
        scatter = np.modf(np.arange(1, unknowns + 1) * _GOLDEN)[0] * 2.0 - 1.0
        lanes = x.reshape(len(x), unknowns, LANES)
        size = np.maximum(np.abs(lanes).max(axis=1, keepdims=True, initial=0.0), 1.0)
        x += (1e-2 * size * scatter[:, None]).reshape(x.shape)


def taken(space: Values, which: Index) -> Values:
    """Copy chosen lanes; the last tile is filled up with copies of its last lane."""
    filled = np.concatenate([which, np.repeat(which[-1:], -len(which) % LANES)])
    tiles, width = len(filled) // LANES, space.shape[1] // LANES
    lanes = space.reshape(len(space), width, LANES)[filled // LANES, :, filled % LANES]
    return np.ascontiguousarray(lanes.reshape(tiles, LANES, width).transpose(0, 2, 1)).reshape(tiles, width * LANES)
