"""The methods a suite may name, and what the benchmark asks of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Protocol

from torch import Tensor

from snapfm.errors import UnknownName
from snapfm.laws import Params
from snapfm.project import Projector
from snapfm.project.base import Solution

CATALOG = "snapfm.project.peers.catalog"
OURS = "ours"
OWN = (OURS, "ours-gpu")  # what is no rival of ours


class Solver(Protocol):
    """A method prepared for one structure.

    A method that can be stopped has `limited(u_hat, params, tolerance, iterations)` too, one that can tell where its time
    goes `phases(u_hat, params, tolerance)`.
    """

    def prepare(self, tolerance: float, count: int) -> object:
        """Do what is done once for a batch size."""

    def run(self, u_hat: Tensor, params: Params, tolerance: float) -> object:
        """Solve, as a timing should see it; returns fields, or something whose `u` they are."""

    def solve(self, u_hat: Tensor, params: Params, tolerance: float) -> Solution:
        """Solve, with everything the judge needs."""


class Method(Protocol):
    """An entry of a catalog."""

    @property
    def curve(self) -> bool:
        """Tell whether its solver has `limited`."""

    @property
    def build(self) -> Callable[[Projector], Solver]:
        """Make a solver for the laws of a projector."""


def methods(catalog: str = CATALOG) -> Mapping[str, Method]:
    """Return the methods by name: those of `METHODS` in a module."""
    try:
        found: Mapping[str, Method] = importlib.import_module(catalog).METHODS
    except (ModuleNotFoundError, AttributeError) as cause:
        raise UnknownName(
            f"catalog = {catalog!r} expects a module with METHODS, a table of methods by name; got none ({cause}). Leave "
            f"the key out for {CATALOG!r}, or put the module on PYTHONPATH."
        ) from cause
    return found
