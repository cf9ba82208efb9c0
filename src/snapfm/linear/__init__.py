"""HOW a batch of symmetric systems on one pattern is solved: frozen settings, prepare, workspace, factorize, solve."""

from snapfm.linear.base import LANES_AT_ONCE, Outcome, PivotRule, Pivots, Prepared, Solver, Workspace, lower_triangle
from snapfm.linear.choose import choose
from snapfm.linear.dense import Dense
from snapfm.linear.lanes import Lanes
from snapfm.linear.levels import Levels
from snapfm.linear.library import Library

__all__ = [
    "LANES_AT_ONCE",
    "Dense",
    "Lanes",
    "Levels",
    "Library",
    "Outcome",
    "PivotRule",
    "Pivots",
    "Prepared",
    "Solver",
    "Workspace",
    "choose",
    "lower_triangle",
]
