"""A curve cell: one input, solved with more and more iterations until all samples hold before the judge."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median
from typing import Any

from torch import Tensor

from snapfm.bench.judge import lawful_and_nearest, measure
from snapfm.bench.record import Point
from snapfm.bench.stand import Stand
from snapfm.project.base import Solution

LIMIT = 12  # iterations: second-order methods are through long before, and the others have shown their slope


def curve(stand: Stand) -> dict[str, Any]:
    """Fill a record: violation and stationarity of the median sample after so many iterations."""
    label, u_hat = stand.inputs.middle()
    params = stand.inputs.params
    stand.first_call(lambda: stand.solver.run(u_hat, params, stand.tolerance))
    points = []
    for iterations in range(LIMIT + 1):
        call = _calling(stand, u_hat, iterations)
        stand.tell(f"{iterations} iterations on {label}")
        answers = stand.answers(call())
        sizes = measure(stand.projector.laws, u_hat, answers.u, answers.multipliers, params)
        seconds = median(stand.repeated(f"{label} with {iterations} iterations", call, LIMIT + 1))
        points.append(Point(iterations, seconds, _middle(sizes.violation), _middle(sizes.nearness)))
        if bool(lawful_and_nearest(sizes, stand.tolerance)[1].all()):
            break
    return {"curve": tuple(points)}


def _calling(stand: Stand, u_hat: Tensor, iterations: int) -> Callable[[], Solution]:
    limited: Callable[..., Solution] = stand.solver.limited  # type: ignore[attr-defined]  # methods with a curve have it
    return lambda: limited(u_hat, stand.inputs.params, stand.tolerance, iterations)


def _middle(sizes: Tensor) -> float | None:
    found = float(sizes.median())
    return found if math.isfinite(found) else None
