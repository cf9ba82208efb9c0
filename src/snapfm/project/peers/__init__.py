"""Peers: other people's methods on the same laws, from the same inputs, to the same tolerance, for comparison only.

Each holds a Structure and its Limits and gives a `Solution` as our own methods do, so one judge scores all. Nothing in
snapfm outside this package imports it.
"""

from snapfm.project.peers.gauss_newton import GaussNewton
from snapfm.project.peers.ipopt import Ipopt
from snapfm.project.peers.rootfinder import Rootfinder

__all__ = ["GaussNewton", "Ipopt", "Rootfinder"]
