"""own_spread: the spread that a network of snapfm.flow knows of its own fields, as samplers read it.

The flow describes it in a value of its own, since it must not import samplers.
"""

from __future__ import annotations

from typing import Any

from snapfm.flow.evaluate import Evaluator
from snapfm.flow.frame import Principal
from snapfm.sampling.spread import Spread


def own_spread(velocity: Any) -> Spread | None:
    """Return how a velocity's fields vary, as it says itself; None if it does not."""
    found = getattr(velocity.network if isinstance(velocity, Evaluator) else velocity, "spread", None)
    if isinstance(found, Principal):
        return Spread(found.directions, found.variances, found.rest)
    return found if isinstance(found, Spread) else None
