"""Substitute: set unknowns that rows determine one after the other; Clip: bounds of unknowns that no row moves.

What rows determine does not move with û: its w is zero, and its ν makes it stationary on the way back. Must not import other
stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from snapfm.arrays import Index, Values
from snapfm.compile.derivatives import Rows
from snapfm.kernels import batches
from snapfm.reduce.cascade import Level
from snapfm.solve.stage import Determined, Ended, LinearState, Stage, State
from snapfm.text import plural


@dataclass(frozen=True)
class Substitute(Stage):
    """One level of a cascade: unknowns that its rows determine at the same time."""

    number: int
    level: Level
    rows: Rows

    @property
    def determined(self) -> Sequence[Determined]:
        """Its unknowns."""
        return (Determined(self.level.rows, self.level.unknowns, False),)

    def solve(self, state: State, ended: Ended) -> None:
        """Set the unknowns. Written: state's u."""
        pinned = state.known[self.number]
        if pinned is None:
            self._substitute(state.u, state.params)
        else:
            state.u[:, self.level.unknowns] = pinned

    def _substitute(self, u: Values, params: Values) -> None:
        program, level = self.rows.program, self.level
        batches.substitute(
            program.code,
            program.cells,
            self.rows.inputs,
            self.rows.outside,
            params,
            level.unknowns,
            level.weights,
            u,
        )

    def pull(self, state: State, rest: Values) -> None:
        """Find the multipliers that make the unknowns stationary. Written: state's multipliers, rest."""
        level = self.level
        batches.determine(rest, level.unknowns, level.weights, level.rows, state.multipliers)
        self.rows.pull(level.rows[None], state.u, state.params, state.multipliers, rest)

    def linear(self, at: LinearState) -> None:
        """Hold the unknowns. Written: w."""
        at.w[:, self.level.unknowns] = 0.0

    def pull_linear(self, at: LinearState) -> None:
        """Find the ν that make the unknowns stationary. Written: ν, rest, by_params."""
        level = self.level
        batches.determine(at.rest, level.unknowns, level.weights, level.rows, at.nu)
        at.pull(self.rows, level.rows[None])

    def from_params(self, u: Values, params: Values) -> Values | None:
        """Return the unknowns if params alone determine them, as they do in the first level. Written: u."""
        if not len(self.pinned):
            return None
        self._substitute(u, params)
        return u[:, self.level.unknowns]

    @cached_property
    def pinned(self) -> Index:
        """The unknowns, if params alone determine them."""
        first = self.number == 0 and set(self.rows.inputs[0]) <= set(self.level.unknowns)
        return self.level.unknowns if first else self.level.unknowns[:0]

    def describe(self) -> str:
        """Say how many unknowns it sets."""
        return f"substitute {plural(len(self.level.unknowns), 'unknown')}"


@dataclass(frozen=True)
class Clip(Stage):
    """Unknowns with limits that no row moves."""

    number: int
    unknowns: Index
    lower: Values
    upper: Values

    def solve(self, state: State, ended: Ended) -> None:
        """Clip. Written: state's u."""
        state.u[:, self.unknowns] = np.clip(state.u[:, self.unknowns], self.lower, self.upper)

    def linear(self, at: LinearState) -> None:
        """Hold what is at a limit. Written: w."""
        here = at.u[:, self.unknowns]
        held = (here >= self.upper) | (here <= self.lower)
        at.w[:, self.unknowns] = np.where(held, 0.0, at.w[:, self.unknowns])

    def describe(self) -> str:
        """Say how many unknowns it clips."""
        return f"clip {plural(len(self.unknowns), 'unknown')} that no row reads"
