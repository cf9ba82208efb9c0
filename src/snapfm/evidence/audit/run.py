"""Evaluate every law on simulated ground truth, refine the grid where it is not obeyed to rounding, and judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from torch import Tensor

from snapfm.errors import ShapeError, UnknownName
from snapfm.evidence.audit.terms import leftover
from snapfm.evidence.audit.variants import VARIANTS, Variant
from snapfm.laws import Bounds
from snapfm.metrics.constraint import constraint_errors
from snapfm.problems import Problem, defaults, names, problem

ALL = "all"

# Tried in this order until one shows convergence. Some laws only converge along one axis: finite volumes balance mass
# exactly in space, and the release's clock does not follow the number of slices.
REFINEMENTS = ("space and time", "space", "time")

Progress = Callable[[str], None]

# Sums of some hundred terms after some thousand steps leave 1e-12 of them; the smoothing ε = 1e-6 of the flux law leaves
# ε² = 1e-12 too. The nearest discretization error lies at 1e-4.
ROUNDING = 1e-10
# Halving the spacing divides the error of a first-order scheme by two (order 1) and leaves a contradiction as it is
# (order 0). Half-way between the two.
LEAST_ORDER = 0.5


class Verdict(StrEnum):
    """What true fields say to a law."""

    OBEYED = "obeyed"
    APPROXIMATE = "approximately"
    CONTRADICTED = "contradicted"


def verdict(leftover: float, order: float | None) -> Verdict:
    """Judge by the leftover share and, where it is more than rounding, by the order at which finer grids reduce it."""
    if leftover <= ROUNDING:
        return Verdict.OBEYED
    return Verdict.APPROXIMATE if order is not None and order >= LEAST_ORDER else Verdict.CONTRADICTED


@dataclass(frozen=True)
class LawAudit:
    """One law on true fields: constraint error, share of its terms left over, order of convergence, verdict."""

    problem: str
    equation: str
    settings: Mapping[str, Any]  # those that differ from the problem's own
    law: str
    rows: int
    samples: int
    error: float  # mean over samples of ‖R‖₂, in the law's own units
    largest: float  # of the worst sample
    leftover: float
    order: float | None  # None where the law holds to rounding
    refined: str | None  # along what the order was found
    verdict: Verdict


def targets() -> list[str]:
    """List what can be audited: problems, equations, all."""
    return [*names(), *sorted({problem(name).equation for name in names()}), ALL]


def audit(target: str, count: int = 8, seed: int = 0, progress: Progress | None = None) -> list[LawAudit]:
    """Audit a problem, all problems of an equation, or all; `progress` is told what is being looked at."""
    if not isinstance(count, int) or count < 1:
        raise ShapeError(f"audit(count) expects a whole number >= 1; got {count!r}. Eight samples are enough.")
    if target not in targets():
        raise UnknownName(f"audit(target) expects one of {targets()}; got {target!r}. `snapfm problems` lists them.")
    chosen = [name for name in VARIANTS if target in (ALL, name, problem(name).equation)]
    return [
        one
        for name in chosen
        for variant in VARIANTS[name]
        for one in audit_variant(name, variant, count, seed, progress)
    ]


def audit_variant(
    name: str, variant: Variant, count: int, seed: int, progress: Progress | None = None
) -> Iterator[LawAudit]:
    """Audit the laws of one reading of a problem."""
    if progress:
        progress(" ".join([name, *(f"{key}={value}" for key, value in variant.settings.items())]))

    @cache
    def truth(along: str | None = None) -> tuple[Problem, Tensor, dict[str, Tensor]]:
        """Simulate the same samples on the variant's own grid, or on one refined along some axes."""
        built = problem(name, **(variant.settings if along is None else finer(name, variant.settings, along)))
        return built, *built.draw_truth(seed, 0, count)

    def left(place: int, along: str | None = None) -> float:
        built, fields, params = truth(along)
        law = built.laws[place]
        assert not isinstance(law, Bounds)  # no variant names bounds
        return leftover(law, fields, params)

    own, fields, params = truth()
    for place, law in enumerate(own.laws):
        if variant.laws is not None and law.name not in variant.laws:
            continue
        (error,) = constraint_errors([law], fields, params)
        share = left(place)
        found: list[tuple[float, str]] = []
        for along in REFINEMENTS if share > ROUNDING else ():
            found.append((math.log2(share / max(left(place, along), ROUNDING)), along))
            if found[-1][0] >= LEAST_ORDER:
                break
        order, refined = max(found, default=(None, None))
        yield LawAudit(
            problem=name,
            equation=own.equation,
            settings=dict(variant.settings),
            law=law.name,
            rows=error.rows,
            samples=count,
            error=error.error.value,
            largest=error.largest,
            leftover=share,
            order=order,
            refined=refined,
            verdict=verdict(share, order),
        )


def finer(name: str, settings: Mapping[str, Any], along: str) -> dict[str, Any]:
    """Halve the spacing in space, in time or in both; laws of the first steps keep the time they cover."""
    whole = {**defaults(name), **settings}
    changed: dict[str, Any] = {}
    if "space" in along:
        # `nx` counts both ends of an axis, `size` the points of a periodic one.
        changed |= {"nx": 2 * whole["nx"] - 1} if "nx" in whole else {"size": 2 * whole["size"]}
    if "time" in along:
        changed["nt"] = 2 * whole["nt"] - 1
        changed |= {key: 2 * whole[key] for key in ("pde_steps", "flux_steps") if whole.get(key) is not None}
    return {**settings, **changed}
