"""own_spread: the spread that a network knows of its own fields, as samplers read it.

Its attribute `spread` is a Spread, or any value with `directions`, `variances` and `rest`.
"""

from __future__ import annotations

from typing import Any

from snapfm.sampling.conditional.spread import Spread
from snapfm.sampling.task import network_of


def own_spread(velocity: Any) -> Spread | None:
    """Return how a velocity's fields vary, as it says itself; None if it does not."""
    found: Any = getattr(network_of(velocity), "spread", None)
    if isinstance(found, Spread):
        return found
    if all(hasattr(found, name) for name in ("directions", "variances", "rest")):
        return Spread(found.directions, found.variances, found.rest)
    return None
