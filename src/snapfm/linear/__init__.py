"""HOW a batch of symmetric systems on one pattern is solved: settings, prepare, workspace, factorize, solve."""

from snapfm.linear.automatic import Automatic
from snapfm.linear.base import Outcome, Pivots, Prepared, Solver, Workspace
from snapfm.linear.fronts import Fronts
from snapfm.linear.lanes import Lanes

__all__ = [
    "Automatic",
    "Fronts",
    "Lanes",
    "Outcome",
    "Pivots",
    "Prepared",
    "Solver",
    "Workspace",
]
