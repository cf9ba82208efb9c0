"""The steps of Newton's iterations, each repeated alone on tiles of a finished call, so that it can be timed.

For snapfm_bench.peers.phases; nothing that projects imports it. Imports kernels only.
"""

from __future__ import annotations

import numpy as np

from snapfm.kernels.coupled import newton_direction
from snapfm.kernels.direction import RUNNING, factorize
from snapfm.kernels.layout import load_tile
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import choose_sets, derivatives_at, residual_at


@compiled(nogil=True, error_model="numpy")
def repeat_steps(code, frame, plan, space, at, work, residual, derivatives, factor, solve):
    """Make every step of tile k once, then each as often as its argument (tiles,) says. Written: work."""
    damping, convex, negative, stop = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES, np.int64), np.zeros(1, np.int64)
    status = np.full(LANES, RUNNING, np.int64)
    for k in range(len(space)):
        tile = load_tile(code, frame, space[k], at, work)
        for _ in range(1 + residual[k]):
            residual_at(code, frame, tile)
        for _ in range(1 + derivatives[k]):
            derivatives_at(code, frame, tile)
        choose_sets(frame, tile)
        for _ in range(1 + factor[k]):
            damping[:], status[:] = 0.0, RUNNING
            factorize(frame, plan, tile, damping, status, convex, negative, stop)
        for _ in range(1 + solve[k]):
            newton_direction(frame, plan, tile, damping, status, convex, stop)
