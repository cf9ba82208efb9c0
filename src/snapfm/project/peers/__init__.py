"""Peers: other people's methods on the same laws, from the same inputs, to the same tolerance, for comparison only.

Each holds compiled laws and its Limits and gives a `Solution` as our own methods do, so one judge scores all; `catalog` has all
of them by name. Nothing of snapfm but its benchmark imports this package.
"""

from snapfm.project.peers.gauss_newton import GaussNewton
from snapfm.project.peers.ipopt import Ipopt
from snapfm.project.peers.rootfinder import Rootfinder

__all__ = ["GaussNewton", "Ipopt", "Rootfinder"]
