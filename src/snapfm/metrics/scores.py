"""All measures of a batch of samples at once: laws, moments, texture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from snapfm.laws import Law, Params
from snapfm.metrics.constraint import ConstraintError, constraint_errors
from snapfm.metrics.moments import MomentErrors, moment_errors
from snapfm.metrics.texture import Texture, texture


@dataclass(frozen=True)
class Scores:
    """What a batch of samples is worth: feasible, of the right statistics, and no noise."""

    laws: tuple[ConstraintError, ...]
    moments: MomentErrors
    texture: Texture


def scores(laws: Iterable[Law], u: Tensor, params: Params, truth: Tensor, seed: int = 0) -> Scores:
    """Judge samples (b, *shape) by their laws and by true fields simulated under the same conditions."""
    return Scores(constraint_errors(laws, u, params, seed), moment_errors(u, truth, seed), texture(u, truth))
