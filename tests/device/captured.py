"""What kernels of iterations are given by real projections, and what the CPU's kernels make of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import snapfm
from snapfm.kernels import layout
from snapfm.kernels.interior import interior_tiles
from snapfm.kernels.newton import solve_tiles
from snapfm.kernels.operations import LANES
from snapfm.kernels.restoration import restore_tiles
from snapfm.solve.system import Loops

# Kernels of iterations by their entry: each has settings, then limits, a stop and live lanes, and memory.
KERNELS = {"newton": solve_tiles, "interior": interior_tiles, "restore": restore_tiles}


@dataclass(frozen=True)
class Call:
    """One call of a kernel of iterations: structure, settings, memory before and after (lane by lane), and how lanes ended."""

    entry: str
    read: tuple[Any, ...]  # Code, Frame, Schedule
    at: np.ndarray  # where sections begin, of one lane
    settings: tuple[float, ...]
    limits: np.ndarray
    before: np.ndarray
    after: np.ndarray
    status: np.ndarray
    iterations: np.ndarray
    second: np.ndarray  # Newton's method alone

    def given(self, before: np.ndarray | None = None, **settings: float) -> Call:
        """The same call of Newton's method with other memory or settings, solved by the CPU's kernel."""
        assert isinstance(self.settings, layout.Settings)
        chosen = self.settings._replace(**settings)
        return self.of("newton", chosen, before)

    def of(self, entry: str, settings: tuple[float, ...], before: np.ndarray | None = None) -> Call:
        """The call of another kernel on the same memory, or on other memory, solved by the CPU's kernel."""
        before, lanes = self.before if before is None else before, len(self.before)
        tiles = -(-lanes // LANES)
        space, at = by_tile(before), self.at * LANES
        limits, live = np.zeros(tiles * LANES, np.int64), np.zeros(tiles * LANES, bool)
        limits[:lanes], live[:lanes] = self.limits, True
        written = [np.zeros((tiles, LANES), np.int64) for _ in range(3)]
        KERNELS[entry](
            *self.read, *([settings] if entry == "newton" else settings), limits.reshape(tiles, LANES), np.zeros(1, np.int64),
            live.reshape(tiles, LANES), space, at, np.zeros(int(at[-1])), *written[: 3 if entry == "newton" else 2],
        )  # fmt: skip
        ended = [one.ravel()[:lanes] for one in written]
        return Call(entry, self.read, self.at, settings, self.limits, before, by_lane(space)[:lanes], *ended)

    def only(self, i: int) -> Call:
        """The call with one lane alone."""
        one = slice(i, i + 1)
        names = ("limits", "before", "after", "status", "iterations", "second")
        return replace(self, **{name: getattr(self, name)[one] for name in names})

    def section(self, memory: np.ndarray, number: int) -> np.ndarray:
        return memory[:, self.at[number] : self.at[number + 1]]


def newton_calls(project: snapfm.Projector, u_hat: Tensor, params: dict[str, Tensor]) -> list[Call]:
    """Project, and keep every call of Newton's kernel."""
    kept: list[Call] = []
    real = Loops.run

    def run(self, kernel, given, tiles, written):
        before = tiles.space.copy()
        real(self, kernel, given, tiles, written)
        if kernel is solve_tiles and len(before):  # the first call, on no tiles, compiles
            settings, limits, _, live = given
            lanes = int(live.sum())
            kept.append(
                Call(
                    "newton", self._read, tiles.at // LANES, settings, limits.ravel()[:lanes].copy(), by_lane(before)[:lanes],
                    by_lane(tiles.space)[:lanes], *(one.ravel()[:lanes].copy() for one in written),
                )
            )  # fmt: skip

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loops, "run", run)
        with torch.no_grad():
            project(u_hat, params)
    return kept


def by_lane(space: np.ndarray) -> np.ndarray:
    """Rearrange tiles (tiles, packs · LANES) to one line a lane."""
    tiles, width = space.shape
    packs = space.reshape(tiles, width // LANES, LANES).transpose(0, 2, 1)
    return np.ascontiguousarray(packs.reshape(tiles * LANES, width // LANES))


def by_tile(lanes: np.ndarray) -> np.ndarray:
    """Arrange lines of lanes as tiles; copies of the last lane fill the last tile."""
    filled = lanes[np.minimum(np.arange(-(-len(lanes) // LANES) * LANES), len(lanes) - 1)]
    tiles = filled.reshape(-1, LANES, lanes.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(tiles.reshape(len(tiles), -1))
