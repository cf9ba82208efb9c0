"""What launches need besides fields: memory of the stages of a march, and factors that samples share.

Numbers here are those of one sample, or of one team of threads, where kernels for the CPU have packs. Imports kernels only.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, tril

from snapfm.arrays import Values
from snapfm.kernels.ldl import TALLY, factorize
from snapfm.kernels.march import Structure, stage_packs
from snapfm.kernels.numba.packs import WIDTH
from snapfm.kernels.ordering import best
from snapfm.kernels.panels import Schedule, schedule
from snapfm.kernels.run_length import Runs

_TINY = 64 * float(np.finfo(np.float64).eps)  # a pivot below this share of its scale belongs to a dependent row


def stage_numbers(one: Structure) -> int:
    """Count the numbers that a team needs for stages of one structure, with the adjoints of their cells."""
    return int(sum(stage_packs(one))) + one.cells


def kept_numbers(one: Structure) -> int:
    """Count the numbers that a sample keeps of one structure: factor, solution two stages before, whether there is a factor."""
    return one.plan.packs + len(one.before) + 1


def shared_factor(runs: Runs, rows: int) -> tuple[Schedule, Values, Values]:
    """Factorize AAᵀ of a fixed matrix A of so many rows; return how, the factor, and the inverse pivots."""
    offset = np.arange(runs.length.sum()) - np.repeat(np.cumsum(runs.length) - runs.length, runs.length)
    place, row, step, value = (np.repeat(one, runs.length) for one in (runs.place, runs.row, runs.step, runs.value))
    matrix = csr_array(
        (value, (row + step * offset, place + offset)), shape=(rows, int((runs.place + runs.length).max()))
    )
    lower = csr_array(tril(matrix @ matrix.T))
    lower.sort_indices()
    indptr, indices = lower.indptr.astype(np.int64), lower.indices.astype(np.int64)
    plan = schedule(indptr, indices, best(indptr, indices).perm)
    factor, inverse, scale = (np.zeros((1, packs * WIDTH)) for packs in (plan.packs, plan.slots, plan.slots))
    found = np.zeros(1, np.int8), np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1)
    factorize(plan, lower.data, 1, False, _TINY, factor, inverse, scale, np.zeros((1, TALLY * WIDTH)), *found)
    return plan, factor.reshape(-1, WIDTH)[:, 0].copy(), inverse.reshape(-1, WIDTH)[:, 0].copy()
