"""Stages: what structure decides is a list of them. A state passes through the list forward, and backward for multipliers.

    solve    determine `unknowns` from rows                                    forward: the projection
    pull     multipliers of these rows; add Jᵀλ to the remainder               backward: the certificate
    linear   the same for the linearized problem: w of its unknowns            forward: gradients
    pull_linear   ν of its rows; add Hw + Jᵀν to the remainder                 backward: gradients in params

A stage is prepared once, never changes, and keeps nothing of a call; see solve.plan for the list. Must not import solve.plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from snapfm.arrays import Index, Values
from snapfm.compile.derivatives import Rows
from snapfm.errors import Status
from snapfm.kernels import batches
from snapfm.kernels.layout import HOLDS, UNKNOWN
from snapfm.kernels.threads import Deadline
from snapfm.solve.budget import Stopping

if TYPE_CHECKING:
    from snapfm.solve.opaque import LawEvaluator


@dataclass
class State:
    """One piece of a batch on its way through a plan, over the unknowns of the reduction, in memory lent to this call."""

    u_hat: Values  # (b, n)
    u: Values  # (b, n) written by every stage
    params: Values  # (b, …) cells of params
    multipliers: Values  # (b, m) written
    stopping: Stopping
    warm: Values | None  # (b, m) multipliers of an answer for a nearby input
    limit: int  # iterations of a sample
    deadline: Deadline
    evaluator: LawEvaluator | None = None  # evaluates opaque laws
    retry: bool = True  # whether samples that fail are tried again in other ways
    starts: int = 1  # of which the nearest answer is kept
    known: tuple[Values | None, ...] = ()  # by stage: what params alone determine
    kept: dict[int, Any] | None = None  # by stage: what its solve leaves for its pull
    weights: Values = field(default_factory=lambda: np.zeros((0, 0)))  # (b, kinks) written: see solve.kinks.generalized

    def select(self, samples: Index, limit: int) -> State:
        """Copy some samples, with another limit."""
        warm = None if self.warm is None else self.warm[samples]
        return replace(
            self, u_hat=self.u_hat[samples], u=self.u[samples], params=self.params[samples],
            multipliers=self.multipliers[samples], warm=warm, limit=limit,
        )  # fmt: skip


@dataclass
class Ended:
    """How the samples of a piece ended, filled in by the stages."""

    status: npt.NDArray[np.int8]
    iterations: Index
    second: npt.NDArray[np.int8]

    @classmethod
    def blank(cls, count: int) -> Ended:
        """Make one for so many samples."""
        return cls(np.empty(count, np.int8), np.empty(count, np.int64), np.empty(count, np.int8))

    def part(self, piece: slice) -> Ended:
        """Return those of some samples."""
        return Ended(self.status[piece], self.iterations[piece], self.second[piece])

    def begin(self) -> None:
        """Assume the best: stages make it worse."""
        self.status[:], self.iterations[:], self.second[:] = int(Status.CONVERGED), 1, HOLDS

    def out_of_time(self) -> None:
        """There was no time for these samples."""
        self.status[:], self.iterations[:], self.second[:] = int(Status.ITERATION_LIMIT), 0, UNKNOWN


@dataclass
class LinearState:
    """The linearized problem at the answers of a piece, [[W, Jᵀ], [J, 0]] (w, ν) = (g, 0), over the unknowns of the reduction.

    With weights, cells of params and multipliers are followed by those of kinks (solve.kinks.generalized.with_weights).
    """

    u: Values  # (b, n) the answers
    params: Values  # (b, …) cells of params
    multipliers: Values  # (b, m) their λ
    g: Values  # (b, n)
    w: Values  # (b, n) written; g before the first stage
    nu: Values  # (b, m) written
    rest: Values  # (b, n) Ww + Jᵀν − g at the unknowns that rows determine: written on the way back
    by_params: Values  # (b, …) derivatives of wᵀJᵀλ + νᵀh by the cells of params: written on the way back
    deadline: Deadline
    evaluator: LawEvaluator | None = None
    weights: Values | None = None  # (b, kinks) where any answer has some

    def select(self, samples: Index) -> LinearState:
        """Copy some samples, without their weights and what is written on the way back."""
        names = ("u", "params", "multipliers", "g", "w", "nu")
        return replace(self, **{name: getattr(self, name)[samples] for name in names}, weights=None)

    def pull(self, rows: Rows, index: Index) -> None:
        """Add Jᵀν + Σλ∇²row·w, by unknowns and by params, of rows with λ and ν at `index`. Written: rest, by_params."""
        if rows.inputs.shape[1] or rows.outside.shape[1]:
            batches.pull_linear(
                *rows.program.run, rows.inputs, rows.outside, self.params, index, self.multipliers, self.nu, self.u,
                self.w, self.rest, self.by_params,
            )  # fmt: skip


class Determined(NamedTuple):
    """Rows that determine as many unknowns, once those of earlier ones are known; each row its own one, unless `coupled`."""

    rows: Index
    unknowns: Index
    coupled: bool


class Stage(ABC):
    """One step of a plan. A stage has what it needs of these; the defaults are those of one without rows."""

    number: int  # its place in the plan

    @property
    def determined(self) -> Sequence[Determined]:
        """The unknowns that rows determine whatever û is, in order."""
        return ()

    @abstractmethod
    def solve(self, state: State, ended: Ended) -> None:
        """Determine its unknowns from its rows. Written: state's u and multipliers, ended."""

    def pull(self, state: State, rest: Values) -> None:  # noqa: B027
        """Find the multipliers that later stages leave to it, and add Jᵀλ. Written: state's multipliers, rest."""

    @abstractmethod
    def linear(self, at: LinearState) -> None:
        """Determine the w of its unknowns. Written: w, and ν of rows that are known going forward."""

    def pull_linear(self, at: LinearState) -> None:  # noqa: B027
        """Find the other ν of its rows. Written: ν, rest, by_params."""

    def from_params(self, u: Values, params: Values) -> Values | None:
        """Return what params alone determine, if that is all it needs. Written: u, unknowns that are known then."""
        return None

    def bytes(self, samples: int) -> float:
        """Predict the memory of a piece of so many samples, beside the batches over all unknowns."""
        return 0.0

    @abstractmethod
    def describe(self) -> str:
        """Say in a line what it does."""
