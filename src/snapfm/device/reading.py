"""Read descriptors: the structures of kernels, from the integers that device.structures has written; and the samples of a team.

Compiled by device.build, for device.entries and device.systems.
"""

from __future__ import annotations

from numba import cuda

from snapfm.kernels.layout import Frame
from snapfm.kernels.lu import Elimination
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.sections import index_at, index_grid_at, table_at, values_at  # type: ignore[attr-defined]
from snapfm.kernels.panels import Schedule
from snapfm.kernels.program import Code
from snapfm.kernels.run_length import Runs

WIDEST = 64  # integers of the longest descriptor


@compiled()
def index_of(spec, k):
    """Read the address and length of integers."""
    return index_at(spec[k], spec[k + 1])


@compiled()
def values_of(spec, k):
    """Read the address and length of numbers."""
    return values_at(spec[k], spec[k + 1])


@compiled()
def code_of(spec, k):
    """Read a program."""
    return Code(
        spec[k],
        table_at(spec[k + 1], spec[k + 2]),
        index_of(spec, k + 3),
        values_of(spec, k + 5),
        index_of(spec, k + 7),
        0,
    )


@compiled()
def frame_of(spec, k):
    """Read the structure of a system."""
    return Frame(
        table_at(spec[k], spec[k + 1]), index_of(spec, k + 2), values_of(spec, k + 4), index_of(spec, k + 6), spec[k + 8],
        spec[k + 9], spec[k + 10], spec[k + 11], spec[k + 12], 0,
    )  # fmt: skip


@compiled()
def schedule_of(spec, k):
    """Read the schedule of a factorization."""
    return Schedule(
        index_of(spec, k), index_of(spec, k + 2), index_of(spec, k + 4), index_of(spec, k + 6), index_of(spec, k + 8),
        index_of(spec, k + 10), index_of(spec, k + 12), index_grid_at(spec[k + 14], spec[k + 15], spec[k + 16]),
        index_of(spec, k + 17), index_of(spec, k + 19), index_of(spec, k + 21), index_of(spec, k + 23), index_of(spec, k + 25),
        index_of(spec, k + 27),
    )  # fmt: skip


@compiled()
def runs_of(spec, k):
    """Read the runs of a fixed matrix."""
    return Runs(
        index_of(spec, k), index_of(spec, k + 2), index_of(spec, k + 4), index_of(spec, k + 6), values_of(spec, k + 8)
    )


@compiled()
def elimination_of(spec, k):
    """Read the elimination of a stage."""
    return Elimination(
        index_of(spec, k), index_of(spec, k + 2), index_of(spec, k + 4), index_of(spec, k + 6), index_of(spec, k + 8),
        index_of(spec, k + 10), index_of(spec, k + 12), index_of(spec, k + 14),
    )  # fmt: skip


@compiled()
def samples_of_team(count):
    """Return the samples of this team."""
    return range(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y, count, cuda.gridDim.x * cuda.blockDim.y)


@compiled()
def team_number():
    """Return the number of this team."""
    return cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
