"""Nothing can be called back from a device: in place of kernels.callback."""

from __future__ import annotations

from snapfm.kernels.numba.compiling import compiled

NO_CALLBACK = 0


@compiled()
def call_back(address, task, memory):
    """Do nothing; programs and frames on a device have no callback."""
    return 0
