"""Coordinates: between fields as given and the unknowns of a reduction, for a piece of a batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from snapfm.kernels.coordinates import condense, expand, turn
from snapfm.kernels.runs import join
from snapfm.project.rows import Values
from snapfm.structure.reduce import Reduction


class Coordinates:
    """Prepared for one reduction. `same`: its unknowns are those of the field; `wider`: it has more of them."""

    def __init__(self, reduction: Reduction, unknowns: int) -> None:
        self.turns, self.groups = reduction.turns, reduction.groups
        self.unknowns = unknowns
        self.same = not (len(self.turns) or len(self.groups))
        self.wider = reduction.listing.unknowns > unknowns
        sizes = np.diff(self.groups.ptr)
        self.runs = join(
            self.groups.members, np.repeat(np.arange(len(sizes)), sizes), np.ones(len(self.groups.members))
        )

    def enter(self, given: npt.NDArray[np.float32] | npt.NDArray[np.float64], start: Values) -> None:
        """Write fields (b, n) over the reduction's unknowns. Written: start."""
        turns, groups = self.turns, self.groups
        start[:, : self.unknowns] = given
        if len(turns):
            turn(turns.first, turns.second, turns.cos, turns.sin, start)
        if len(groups):
            condense(self.runs, groups.ptr, groups.first, start)

    def leave(self, start: Values, u: Values) -> None:
        """Give u the members of its groups, along `start`, and turn it back. Written: u."""
        groups = self.groups
        if len(groups):
            expand(self.runs, groups.ptr, groups.members, groups.first, start, u)
        self.turn_back(u)

    def turn_back(self, u: Values) -> None:
        """Undo the turns alone. Written: u."""
        turns = self.turns
        if len(turns):
            turn(turns.first, turns.second, turns.cos, -turns.sin, u)
