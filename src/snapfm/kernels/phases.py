"""The steps of a Newton iteration, repeated on the tiles of a finished call so that project.phases can time them.

They write what an iteration writes and decide nothing: each repetition costs what it costs inside an iteration.
"""

from __future__ import annotations

import numpy as np

from snapfm.kernels.compiling import compiled
from snapfm.kernels.coupled import newton_direction
from snapfm.kernels.direction import RUNNING, factorize
from snapfm.kernels.layout import Tile
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import choose_sets, derivatives_at, residual_at


@compiled(nogil=True, error_model="numpy")
def repeat_residual(code, frame, space, at, times):  # read: times (tiles,); written: space
    """Evaluate the rows of tile k `times[k]` times."""
    for tile in range(len(space)):
        for _ in range(times[tile]):
            residual_at(code, frame, Tile(space[tile], at))


@compiled(nogil=True, error_model="numpy")
def repeat_derivatives(code, frame, space, at, times):  # read: times (tiles,); written: space
    """Evaluate Jacobian, Hessian and the gradient of the Lagrangian of tile k `times[k]` times."""
    for tile in range(len(space)):
        for _ in range(times[tile]):
            derivatives_at(code, frame, Tile(space[tile], at))
        choose_sets(frame, Tile(space[tile], at))


@compiled(nogil=True, error_model="numpy")
def repeat_factor(frame, plan, space, at, times):  # read: times (tiles,); written: space
    """Assemble and factorize the KKT matrix of tile k `times[k]` times."""
    damping, convex, negative, stop = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES, np.int64), np.zeros(1, np.int64)
    status = np.full(LANES, RUNNING, np.int64)
    for tile in range(len(space)):
        for _ in range(times[tile]):
            damping[:], status[:] = 0.0, RUNNING
            factorize(frame, plan, Tile(space[tile], at), damping, status, convex, negative, stop)


@compiled(nogil=True, error_model="numpy")
def repeat_solve(frame, plan, space, at, times):  # read: times (tiles,); written: space
    """Solve for the step of tile k with its factors `times[k]` times."""
    damping, convex, stop = np.zeros(LANES), np.zeros(LANES), np.zeros(1, np.int64)
    status = np.full(LANES, RUNNING, np.int64)
    for tile in range(len(space)):
        for _ in range(times[tile]):
            newton_direction(frame, plan, Tile(space[tile], at), damping, status, convex, stop)
