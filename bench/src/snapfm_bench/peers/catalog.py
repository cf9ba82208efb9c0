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

from snapfm.compile import CompiledLaws
from snapfm.errors import MissingDependency, UnknownName
from snapfm.laws import Params
from snapfm.project.projector import Projector
from snapfm.solve.base import Limits, Solution
from snapfm.text import meant
from snapfm_bench.peers.gauss_newton import GaussNewton
from snapfm_bench.peers.ipopt import Ipopt
from snapfm_bench.peers.ipopt_fused import IpoptFused
from snapfm_bench.peers.ipopt_processes import IpoptProcesses
from snapfm_bench.peers.lbfgs import Lbfgs
from snapfm_bench.peers.madnlp import MadNlp
from snapfm_bench.peers.ours import Ours
from snapfm_bench.peers.pinet import Pinet
from snapfm_bench.peers.pounce import Pounce
from snapfm_bench.peers.pounce_layer import PounceLayer
from snapfm_bench.peers.presolve_start import FromPresolve, Startable
from snapfm_bench.peers.rootfinder import Rootfinder
from snapfm_bench.peers.schur_newton import SchurNewton
from snapfm_bench.peers.sqp import Sqp, SqpThreads
from snapfm_bench.peers.torch_sla import TorchSla
from snapfm_bench.peers.trust_constr import TrustConstr


class PeerSolver(Protocol):
    """A method prepared for one structure; fields are float64 (b, *shape), params have b samples.

    One that can begin at the answer to a nearby input has `again(start, params, tolerance, last)` besides, where `last` is what
    `run` or `again` returned; walks use it.
    """

    def prepare(self, tolerance: float, count: int) -> object:
        """Do the cold work for a batch size: symbolic models, processes."""

    def run(self, start: Tensor, params: Params, tolerance: float) -> object:
        """Solve without what is not timed."""

    def solve(self, start: Tensor, params: Params, tolerance: float) -> Solution:
        """Solve, with multipliers, residual and status."""

    def limited(self, start: Tensor, params: Params, tolerance: float, iterations: int, /) -> Solution:
        """Solve with so many iterations at most; the first call of a limit may build a solver for it."""


@dataclass(frozen=True)
class PeerMethod:
    """One row of the catalog."""

    name: str  # safe in a file's name
    title: str
    about: str  # one sentence: what it is and how tolerances map
    got: str  # what it is helped with beside the laws and their derivatives, for the pages
    lacks: str  # what it is not given, for the pages
    published: str | None  # the column of the published tables it stands for
    curve: bool  # whether `limited` counts iterations that mean something
    build: Callable[[Projector], PeerSolver]  # raises MissingDependency or UnsupportedLaw


Peer: TypeAlias = Callable[[CompiledLaws, Limits], PeerSolver]


def _peer(make: Peer) -> Callable[[Projector], PeerSolver]:
    return lambda project: make(project.require_sparse("another method"), project.limits)


def _from_presolve(make: Callable[[CompiledLaws, Limits], Startable]) -> Callable[[Projector], PeerSolver]:
    return lambda project: FromPresolve(make(project.require_sparse("another method"), project.limits), project)


def _absent(reason: str) -> Callable[[Projector], PeerSolver]:
    """Make the row of a method that nobody could run here; no adapter is shipped that was never run."""

    def build(project: Projector) -> PeerSolver:
        raise MissingDependency(reason)

    return build


_INTERIOR = "violation at the tolerance, stationarity and complementarity at what the judge accepts"
_NEWTON = "Newton on the optimality system, every element at half the tolerance, which the judge accepts"
_PRESOLVE = "pinned unknowns and implied rows removed by our presolve"
_WARM = "in walks the last fields and multipliers"
_ONE = "one core"
_START = "our presolve's start point, which has a row of its own"

_ALL = (
    PeerMethod(
        "ours", "snapfm", "Newton on the reduced system; violation at the tolerance, certificate included.",
        "its presolve; in walks the last fields and multipliers; two threads", "–", None, True, Ours,
    ),
    PeerMethod(
        "rootfinder-1", "casadi Newton", f"{_NEWTON}.", f"{_PRESOLVE}; {_WARM}", f"{_ONE} alone; globalization; {_START}", None,
        True, _peer(Rootfinder),
    ),
    PeerMethod(
        "rootfinder-2", "casadi Newton, 2 threads", "The same, a batch mapped over two threads.",
        f"{_PRESOLVE}; {_WARM}; two threads", f"globalization; {_START}", None, False, _peer(partial(Rootfinder, threads=2)),
    ),
    PeerMethod(
        "rootfinder-search", "casadi Newton, line search, 2 threads", "The same with casadi's line search.",
        f"{_PRESOLVE}; {_WARM}; two threads; a line search", _START, None, False,
        _peer(partial(Rootfinder, threads=2, line_search=True)),
    ),
    PeerMethod(
        "rootfinder-start", "casadi Newton from our start, 2 threads", "casadi Newton on two threads from our presolve's start.",
        f"{_PRESOLVE}; our start point; two threads", "globalization; warm starts, in whose place the start stands", None, False,
        _from_presolve(partial(Rootfinder, threads=2)),
    ),
    PeerMethod(
        "schur-newton", "NumPy Newton",
        "Fifteen lines: Newton through a sparse Schur complement, SciPy's SuperLU; stops where the judge accepts.",
        f"{_PRESOLVE}; {_WARM}", f"{_ONE} alone; globalization; {_START}", None, True, _peer(SchurNewton),
    ),
    PeerMethod(
        "ipopt", "Ipopt", f"Ipopt with its default options; {_INTERIOR}.", "in walks the last fields and multipliers",
        f"presolve; tuned options; {_ONE} alone", "JuMP+Ipopt", True, _peer(partial(Ipopt, tuned=False)),
    ),
    PeerMethod(
        "ipopt-tuned", "Ipopt, tuned", f"Ipopt presolved, with the fastest options found; {_INTERIOR}.",
        f"{_PRESOLVE}; the best options found; {_WARM}", f"{_ONE} alone; {_START}", None, True, _peer(Ipopt),
    ),
    PeerMethod(
        "ipopt-2", "Ipopt, tuned, 2 processes", f"The same, a batch divided between two processes; {_INTERIOR}.",
        f"{_PRESOLVE}; the best options found; {_WARM}; two processes", _START, None, False, _peer(IpoptProcesses),
    ),
    PeerMethod(
        "ipopt-start", "Ipopt, tuned, from our start", f"Tuned Ipopt from our presolve's start; {_INTERIOR}.",
        f"{_PRESOLVE}; the best options found; our start point", f"{_ONE} alone; warm starts, in whose place the start stands",
        None, False, _from_presolve(Ipopt),
    ),
    PeerMethod(
        "ipopt-fused", "Ipopt, tuned, one problem", f"The whole batch as one problem with one status; {_INTERIOR}.",
        f"{_PRESOLVE}; the best options found; {_WARM}", f"{_ONE} alone; {_START}", None, True, _peer(IpoptFused),
    ),
    PeerMethod(
        "sqp-piqp", "SQP with PIQP", "casadi's SQP; violation at the tolerance, stationarity at what the judge accepts.",
        f"{_PRESOLVE}; {_WARM}", f"{_ONE} alone; {_START}", None, True, _peer(Sqp),
    ),
    PeerMethod(
        "sqp-2", "SQP with PIQP, 2 threads", "The same, a batch mapped over two threads.",
        f"{_PRESOLVE}; {_WARM}; two threads", _START, None, False, _peer(SqpThreads),
    ),
    PeerMethod(
        "madnlp", "MadNLP", "MadNLP through casadi; all of its errors at the tolerance.", f"{_PRESOLVE}; {_WARM}",
        f"{_ONE} alone; a GPU", "JuMP+MadNLP", True, _peer(MadNlp),
    ),
    PeerMethod(
        "trust-constr", "SciPy trust-constr",
        "SciPy's trust region with sparse derivatives; violation at the tolerance, stationarity at what the judge accepts.",
        f"{_PRESOLVE}; in walks the last fields", f"{_ONE} alone; {_START}", "IPNewton", True, _peer(TrustConstr),
    ),
    PeerMethod(
        "lbfgs", "L-BFGS, penalties",
        "L-BFGS-B on a penalty that rises until the violation is at the tolerance; stationarity at what the judge accepts.",
        _PRESOLVE, f"{_ONE} alone; warm starts, which a first weak penalty forgets", "L-BFGS", True, _peer(Lbfgs),
    ),
    PeerMethod(
        "gauss-newton", "Gauss–Newton, dense", "Dense and without curvature; stops where the judge accepts.",
        "implied rows removed; in walks the last fields; two threads", "sparse derivatives; curvature", None, True,
        _peer(GaussNewton),
    ),
    PeerMethod(
        "pounce", "POUNCE", f"Ipopt in Rust, a batch on all threads; {_INTERIOR}.",
        f"{_PRESOLVE}; {_WARM} and barrier; two threads", _START, None, True, _peer(Pounce),
    ),
    PeerMethod(
        "pounce-layer", "POUNCE's layer for torch", f"POUNCE on laws that torch differentiates by colored passes; {_INTERIOR}.",
        f"{_PRESOLVE}; our patterns; {_WARM}", f"{_ONE} alone; our derivatives", None, False, _peer(PounceLayer),
    ),
    PeerMethod(
        "torch-sla", "torch-sla Newton",
        "NumPy Newton with torch-sla's sparse solver in place of SuperLU; stops where the judge accepts.",
        f"{_PRESOLVE}; {_WARM}", f"globalization; {_START}; a GPU", None, True, _peer(TorchSla),
    ),
    PeerMethod(
        "pinet", "Πnet", "Operator splitting in JAX, for convex laws, here affine equalities and bounds.",
        "matrices of affine laws", "curved laws, which it does not take", None, False, _peer(Pinet),
    ),
    PeerMethod(
        "jaxipm", "jaxipm", "An interior point in JAX.", "–", "an adapter: none could be run", None, False,
        _absent(
            "jaxipm is needed for this row; it wants Python 3.12 and CUDA. No adapter is shipped, as none could be run here."
        ),
    ),
)  # fmt: skip

METHODS: dict[str, PeerMethod] = {one.name: one for one in _ALL}


def method(name: str) -> PeerMethod:
    """Find a method by its name."""
    if name not in METHODS:
        raise UnknownName(
            f"method(name=…) expects one of {', '.join(METHODS)}; got {name!r}. {meant(name, METHODS)}Choose one of these."
        )
    return METHODS[name]
