"""From a peer's answer to a Solution: residual, multipliers of pinned rows, and stationarity.

Computed from the laws' own sparse derivatives, not from what the peer reports, and outside its run, so that it does not count
towards the peer's time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.arrays import Values
from snapfm.compile import CompiledLaws
from snapfm.laws import Params
from snapfm.project.judge import judge
from snapfm.solve.base import Limits, Solution
from snapfm.solve.budget import STATIONARITY
from snapfm_bench.peers.presolved import Presolved

_LOST = 1e6  # largest number of a field or multiplier that is still a start for the next input: fields are of order one


def accepted(tolerance: float) -> float:
    """Return the stationarity that the outside judge accepts of answers asked for at a tolerance: a peer need do no better."""
    return max(STATIONARITY, tolerance)


def complementarity(limits: Limits, tolerance: float) -> float:
    """Return slack times multiplier that the outside judge accepts of an interior point.

    Of inequalities it measures the product itself. At a bound it measures the smaller of slack and multiplier, which is at most
    the root of their product.
    """
    allowed = accepted(tolerance)
    return allowed**2 if bool(limits.bounded.any()) else allowed


@dataclass(frozen=True)
class Answer:
    """A batch as a peer returns it: fields (b, n), multipliers (b, m) with zeros for rows that it does not have."""

    u: Values
    multipliers: Values
    iterations: npt.NDArray[np.int64]
    status: npt.NDArray[np.int8]

    def start(self, target: Values) -> tuple[Values, Values]:
        """Return where the next, nearby input (b, n) begins: this answer, or the input itself where a sample was lost."""
        whole = np.concatenate([self.u, self.multipliers], axis=1)
        with np.errstate(invalid="ignore"):
            usable = (np.abs(whole) <= _LOST).all(axis=1)[:, None]
        return np.where(usable, self.u, target), np.where(usable, self.multipliers, 0.0)


def certified(
    structure: CompiledLaws, limits: Limits, start: Tensor, params: Params, answer: Answer,
    reduced: Presolved | None = None,
) -> Solution:  # fmt: skip
    """Complete an answer; rows that `reduced` pins get the multiplier that makes their unknown stationary.

    The remainder of u − û + Jᵀλ counts by how far u would move along it within its bounds: interior points stop short of
    bounds, and so no threshold has to decide which unknowns are at one.
    """
    u, multipliers = answer.u, answer.multipliers.copy()
    target = start.reshape(u.shape).numpy()
    field = torch.from_numpy(u).reshape(start.shape)
    rest = u - target
    jacobian = structure.jacobian(field, params).numpy()
    row, column = structure.pattern.row_of(), structure.pattern.indices
    for i in range(len(u)):
        rest[i] += np.bincount(column, weights=jacobian[i] * multipliers[i, row], minlength=u.shape[1])
    if reduced is not None:
        multipliers[:, reduced.pins] = -rest[:, reduced.fixed] / reduced.weights
        rest[:, reduced.fixed] = 0.0
    rest = np.minimum(np.maximum(rest, u - limits.upper), u - limits.lower)
    wrong = np.maximum(-multipliers[:, ~structure.equality_rows], 0.0).max(axis=1, initial=0.0)
    stationarity = np.maximum(np.abs(rest).max(axis=1, initial=0.0), wrong)
    return Solution(
        torch.from_numpy(u), torch.from_numpy(multipliers), torch.from_numpy(answer.iterations),
        structure.residual(field, params), torch.from_numpy(stationarity),
        torch.from_numpy(np.sqrt(((u - target) ** 2).sum(axis=1))), torch.from_numpy(answer.status.copy()),
    )  # fmt: skip


def converged(structure: CompiledLaws, limits: Limits, solved: Solution, tolerance: float) -> Tensor:
    """Mark the samples (b,) that obey their laws and are stationary, for peers that do not report it."""
    violation = judge(structure, solved.residual, limits, solved.u).violation
    return (violation <= tolerance) & (solved.stationarity <= accepted(tolerance))


def broken(start: Tensor, params: Params) -> Tensor:
    """Mark the samples (b,) whose input or params are not finite."""
    finite = torch.isfinite(start.flatten(1)).all(dim=1)
    for value in params.values():
        finite &= torch.isfinite(value).reshape(len(value), math.prod(value.shape[1:])).all(dim=1)
    return ~finite
