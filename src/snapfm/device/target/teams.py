"""Teams of threads: in place of kernels.teams. A team is a row of a block, of 32 threads or of one.

`blockDim.x` says how many, and `blockDim.y` how many teams a block has. Threads of a team of 32 are one warp and meet at its
barriers, which order their accesses to memory; a team of one meets nobody. Sums are taken in one order, by halves of the warp, so
that a sample's bits depend on nothing but the size of its team.
"""

from __future__ import annotations

from numba import cuda

from snapfm.kernels.numba.compiling import compiled

_ALL = 0xFFFFFFFF


@compiled(forceinline=True)
def team(count):
    """Return the passes of a loop that are this thread's."""
    return range(cuda.threadIdx.x, count, cuda.blockDim.x)


@compiled(forceinline=True)
def team_between(first, last):
    """Return the passes first … last − 1 that are this thread's."""
    return range(first + cuda.threadIdx.x, last, cuda.blockDim.x)


@compiled(forceinline=True)
def join():
    """Wait for the whole team. Without a branch, for which the compiler made two copies of the loops around it."""
    cuda.syncwarp(_ALL if cuda.blockDim.x > 1 else 1 << cuda.laneid)


@compiled(forceinline=True)
def leads():
    """Whether this is the first thread."""
    return cuda.threadIdx.x == 0


@compiled()
def added(value):
    """Sum up, by pairs, fours, eights …: the same order, and so the same bits, in all threads."""
    if cuda.blockDim.x > 1:
        for far in (1, 2, 4, 8, 16):
            value = value + cuda.shfl_xor_sync(_ALL, value, far)
    return value


@compiled()
def greatest(value):
    """Return the largest; NaN if one is."""
    if cuda.blockDim.x > 1:
        for far in (1, 2, 4, 8, 16):
            other = cuda.shfl_xor_sync(_ALL, value, far)
            value = other if not (other <= value or value != value) else value
    return value
