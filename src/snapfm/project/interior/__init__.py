"""One sample by a primal-dual interior point: Newton on the optimality system, a filter line search, restoration.

min ½‖u − û‖² subject to h(u) = 0, g(u) + s = 0, s ≥ 0, lower ≤ u ≤ upper (math.md, "Iteration"). Without inequalities and
bounds there is no barrier, and this is Newton's method. Steps are second-order corrected and made from matrices of the
right inertia; where no step is acceptable the violation alone is reduced, and where that is stationary a sample is
STALLED. The method is that of Wächter and Biegler (2006), with an active set taken up at the end, which puts
unknowns on their bounds exactly. Every iteration, of a restoration too, is counted on an account, which ends them.

account, point, filter ← problem ← steps ← search, restoration, polish, curvature ← iterations: each imports only what stands
before it.
"""

from snapfm.project.interior.account import Account
from snapfm.project.interior.curvature import Curving, curving
from snapfm.project.interior.iterations import Interior
from snapfm.project.interior.point import Arrived

__all__ = ["Account", "Arrived", "Curving", "Interior", "curving"]
