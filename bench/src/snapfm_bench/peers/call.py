"""A casadi function called on numpy memory that it keeps: arguments and results are passed by address.

Passing arrays as casadi matrices costs a millisecond for ten thousand numbers, as much as the fastest peer needs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snapfm.arrays import Values
from snapfm_bench.peers.model import Symbol


class PeerCall:
    """Write `arguments[name][:]`, run, read `results[name]`; both stay the same memory for the life of the call."""

    def __init__(self, function: Symbol) -> None:
        self._buffer, self._run = function.buffer()
        self.arguments: dict[str, Values] = {}
        self.results: dict[str, Values] = {}
        for i in range(function.n_in()):
            self.arguments[function.name_in(i)] = given = np.zeros(function.nnz_in(i))
            self._buffer.set_arg(i, given.data)
        for i in range(function.n_out()):
            self.results[function.name_out(i)] = got = np.zeros(function.nnz_out(i))
            self._buffer.set_res(i, got.data)

    def __call__(self) -> None:
        """Run once. Written: results."""
        self._run()

    def stats(self) -> dict[str, Any]:
        """Return the statistics of the last run; a mapped function has none."""
        said: dict[str, Any] = self._buffer.stats()
        return said
