"""The methods of a benchmark by name, ours included: each built from a Projector, all with one interface.

A method that cannot be used raises when it is built: MissingDependency if its package is absent, UnsupportedLaw if it does not
support the laws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

from torch import Tensor

from snapfm.errors import UnknownName
from snapfm.laws import Params
from snapfm.project.base import Limits, Solution
from snapfm.project.peers.gauss_newton import GaussNewton
from snapfm.project.peers.ipopt import Ipopt
from snapfm.project.peers.ipopt_fused import IpoptFused
from snapfm.project.peers.ipopt_processes import IpoptProcesses
from snapfm.project.peers.lbfgs import Lbfgs
from snapfm.project.peers.madnlp import MadNlp
from snapfm.project.peers.ours import Ours
from snapfm.project.peers.ours_gpu import OursGpu
from snapfm.project.peers.pounce import Pounce
from snapfm.project.peers.rootfinder import Rootfinder
from snapfm.project.peers.sqp import Sqp
from snapfm.project.peers.trust_constr import TrustConstr
from snapfm.project.projector import Projector
from snapfm.structure import CompiledLaws


class Solver(Protocol):
    """A method prepared for one structure; fields are float64 (b, *shape), params have b samples."""

    def prepare(self, tolerance: float, count: int) -> object:
        """Do the cold work for a batch size: symbolic models, processes."""

    def run(self, start: Tensor, params: Params, tolerance: float) -> object:
        """Solve without what is not timed."""

    def solve(self, start: Tensor, params: Params, tolerance: float) -> Solution:
        """Solve, with multipliers, residual and status."""

    def limited(self, start: Tensor, params: Params, tolerance: float, iterations: int, /) -> Solution:
        """Solve with so many iterations at most; the first call of a limit may build a solver for it."""


@dataclass(frozen=True)
class Method:
    """One row of the catalog."""

    name: str  # safe in a file's name
    title: str
    about: str  # one sentence: what it is and how tolerances map
    published: str | None  # the column of the published tables it stands for
    curve: bool  # whether `limited` counts iterations that mean something
    build: Callable[[Projector], Solver]  # raises MissingDependency or UnsupportedLaw


Peer: TypeAlias = Callable[[CompiledLaws, Limits], Solver]


def _peer(make: Peer) -> Callable[[Projector], Solver]:
    return lambda project: make(project.sparse("another method"), project.limits)


_INTERIOR = "violation at the tolerance, stationarity and nearness to bounds at the judge's"

_ALL = (
    Method(
        "ours", "snapfm", "Newton on the reduced system; violation at the tolerance, certificate included.", None, True,
        Ours,
    ),
    Method(
        "ours-gpu", "snapfm, fields on a GPU", "The same on a GPU; the CPU does what the GPU leaves open.", None, False,
        OursGpu,
    ),
    Method(
        "rootfinder-1", "casadi Newton", "Newton on the optimality system, every element at half the tolerance.", None,
        True, _peer(Rootfinder),
    ),
    Method(
        "rootfinder-2", "casadi Newton, 2 threads", "The same, a batch mapped over two threads.", None, False,
        _peer(partial(Rootfinder, threads=2)),
    ),
    Method(
        "ipopt", "Ipopt", f"Ipopt with its default options; {_INTERIOR}.", "JuMP+Ipopt", True,
        _peer(partial(Ipopt, tuned=False)),
    ),
    Method(
        "ipopt-tuned", "Ipopt, tuned", f"Ipopt presolved, with the fastest options found; {_INTERIOR}.", None, True,
        _peer(Ipopt),
    ),
    Method(
        "ipopt-2", "Ipopt, tuned, 2 processes", f"The same, a batch divided between two processes; {_INTERIOR}.", None, False,
        _peer(IpoptProcesses),
    ),
    Method(
        "ipopt-fused", "Ipopt, tuned, one problem", f"The whole batch as one problem with one status; {_INTERIOR}.", None,
        True, _peer(IpoptFused),
    ),
    Method(
        "sqp-piqp", "SQP with PIQP", "casadi's SQP; violation at the tolerance, stationarity at the judge's.", None, True,
        _peer(Sqp),
    ),
    Method(
        "madnlp", "MadNLP", "MadNLP through casadi; all of its errors at the tolerance.", "JuMP+MadNLP", True,
        _peer(MadNlp),
    ),
    Method(
        "trust-constr", "SciPy trust-constr",
        "SciPy's trust region with sparse derivatives; violation at the tolerance, stationarity at the judge's.",
        "IPNewton", True, _peer(TrustConstr),
    ),
    Method(
        "lbfgs", "L-BFGS, penalties",
        "L-BFGS-B on a penalty that rises until the violation is at the tolerance; stationarity at the judge's.",
        "L-BFGS", True, _peer(Lbfgs),
    ),
    Method(
        "gauss-newton", "Gauss–Newton, dense", "Dense and without curvature; stops where our own iteration does.", None,
        True, _peer(GaussNewton),
    ),
    Method("pounce", "POUNCE", f"Ipopt in Rust, a batch on all threads; {_INTERIOR}.", None, True, _peer(Pounce)),
)  # fmt: skip

METHODS: dict[str, Method] = {one.name: one for one in _ALL}


def method(name: str) -> Method:
    """Find a method by its name."""
    if name not in METHODS:
        raise UnknownName(f"method(name=…) expects one of {', '.join(METHODS)}; got {name!r}. Choose one of these.")
    return METHODS[name]
