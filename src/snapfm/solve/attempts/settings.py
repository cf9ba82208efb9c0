"""Settings of attempts, on the CPU and on devices: shares of iterations, trials of steps, penalties. Must not import attempts."""

from __future__ import annotations

from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.solve.budget import Stopping

# Iterations of one attempt, as shares of a sample's limit.
NEWTON, SCATTERED, BARRIER, REGULARIZED = 0.2, 0.1, 0.3, 0.4
# Iterations of the first attempt: benchmark inputs need 2 to 12, and one that takes longer rarely converges.
FIRST = 30
# Iterations of a barrier before a falling penalty is tried: one that converges takes 15 to 40.
BRIEF = 0.1
# Of Newton's method after it: 3 to 6 where the barrier has found the active set, and none are enough where it has not.
SETTLED = 0.04
# Of a barrier along which equalities harden: a gas from far takes 20 to 200 of the 500.
SOFTLY = 0.4
FIRM, SOFT = 0, 1  # see kernels.interior
LONGEST = max(NEWTON, BARRIER, SOFTLY)  # of one call of a compiled loop
SETS_CYCLE = 8  # iterations with inequalities or bounds after which active sets count as cycling
# Trials of a step. Towards a wrong active set no step length helps, and near an answer full steps find the active set in fewer
# iterations than a line search.
MANY, SOME, FEW, NONE = 50, 24, 4, 0
# Short or rejected steps in a row after which the first attempt leaves a lane without inequalities to the others: a merit
# function whose penalty has grown with the multipliers rarely recovers. Damping has then grown from none to the size of W.
PATIENCE, ENDLESS = 4, 0
# Rows of sizes from this to one over it are not scaled at first. Scaling all rows takes more iterations where it is not needed
# (Heat-2 from noise), and fewer where it is (a total and an energy of a field of size 1e-3).
ORDINARY, ALL = 1e-3, 1.0
# δ of a penalty, relative to the rows' size squared, and the share of iterations for each. Few values whose minimum is found
# lead to near answers; many, with few iterations each, to an answer more often.
PENALTIES, PENALIZED = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-6), 0.02
FINER_PENALTIES, FINELY = tuple(10.0 ** (-k / 4) for k in range(25)), 0.006
LOOSE = Stopping(1e-4, 1e-2, 1.0)  # a minimum known this well is a start for the next one
FINER = 1024.0  # times smaller than the field: the unit of a barrier where the field's own unit is one
TENTHS = 6  # times that the regularization is divided by ten
OPEN = (int(Status.STALLED), int(Status.ITERATION_LIMIT))  # statuses of lanes that another attempt may help


def first_attempt(stopping: Stopping, inequalities: bool, near: bool, limit: int) -> tuple[core.Settings, int]:
    """Return settings and iterations of the first attempt, here and on devices. `near`: see attempt."""
    if inequalities:
        return core.Settings(*stopping, ORDINARY, NONE if near else FEW, 0, ENDLESS), min(SETS_CYCLE, limit)
    return core.Settings(*stopping, ORDINARY, SOME, 0, PATIENCE), min(FIRST, limit)
