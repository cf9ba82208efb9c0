"""Peers: other methods on the same laws, from the same inputs, to the same tolerance, for comparison only.

Each is prepared for compiled laws and Limits and returns a `Solution` as our own method does, so one judge scores all.
`catalog` lists them by name. Only the benchmarks import this package.
"""

from snapfm_bench.peers.gauss_newton import GaussNewton
from snapfm_bench.peers.ipopt import Ipopt
from snapfm_bench.peers.rootfinder import Rootfinder

__all__ = ["GaussNewton", "Ipopt", "Rootfinder"]
