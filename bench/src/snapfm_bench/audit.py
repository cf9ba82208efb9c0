"""The audit: which laws simulated fields obey, how nearly, and which they contradict.

Every law of every problem is evaluated on simulated ground truth. Where it does not hold to rounding, the grid is refined to
see whether the residual converges to zero. `leftover` measures a residual relative to the terms it consists of (math.md,
eq. leftover).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.compile import CompiledLaws, compile_laws
from snapfm.errors import ShapeError, UnknownName
from snapfm.laws import Bounds, Equality, Inequality, Law, Oracle, Params
from snapfm.metrics.scores import constraint_errors, one_of, residuals
from snapfm.text import meant
from snapfm_bench.problems import Problem, defaults, names, problem

ALL = "all"

# The alternative readings of each problem's laws, those of the paper and of its release included: the settings that differ
# from the problem's defaults, and the law that they change.
READINGS: dict[str, tuple[tuple[Mapping[str, Any], str], ...]] = {
    "heat-ic-mass": (),
    "heat-ic-mass-pde-energy": (({"discretization": "release"}, "pde"), ({"energy": "equality"}, "energy")),
    "heat-ic-mass-implicit": (({"pde_steps": None}, "pde"), ({"scheme": "kernel"}, "pde")),
    "burgers-bc-mass": (({"mass": "constant"}, "mass"), ({"mass": "flux"}, "mass")),
    "burgers-ic": (),
    "burgers-ic-mass": (({"mass": "balance"}, "mass"), ({"mass": "flux"}, "mass")),
    "burgers-ic-mass-flux": (({"mass": "flux"}, "mass"), ({"flux": "godunov"}, "flux"), ({"flux_steps": None}, "flux")),
    "burgers-ic-mass-entropy": (({"convexity": 0.5}, "entropy"),),
    "reaction-diffusion-ic-mass": (({"nx": 128}, "mass"), ({"inner": True}, "mass"), ({"discretization": "release"}, "mass")),
    "reaction-diffusion-ic-mass-bounds": (),
    "navier-stokes-ic-mass": (({"state": "random"}, "mass"), ({"discretization": "release"}, "mass")),
    "navier-stokes-ic-mass-enstrophy": (({"state": "random"}, "enstrophy"), ({"discretization": "release"}, "enstrophy")),
}  # fmt: skip

# Tried in this order until one shows convergence. Some laws converge along one axis only: finite volumes balance mass
# exactly in space, and the release's clock does not follow the number of slices.
REFINEMENTS = ("space and time", "space", "time")

Progress = Callable[[str], None]

# Sums of some hundred terms after some thousand steps have a rounding error of 1e-12 of the terms; the smoothing ε = 1e-6
# of the flux law adds ε² = 1e-12. The smallest discretization error is 1e-4.
ROUNDING = 1e-10
# Halving the spacing divides the error of a first-order scheme by two (order 1) and does not change a contradiction
# (order 0). The limit is half-way between the two.
LEAST_ORDER = 0.5
_NOTHING = (
    1e-12  # a frozen field with a smaller residual, relative to the terms, is rounding: the law is about change only
)


class AuditVerdict(StrEnum):
    """What true fields say about a law."""

    OBEYED = "obeyed"
    APPROXIMATE = "approximately"
    CONTRADICTED = "contradicted"


def verdict(leftover: float, order: float | None) -> AuditVerdict:
    """Judge by the leftover share and, where it is more than rounding, by the order at which finer grids reduce it."""
    if leftover <= ROUNDING:
        return AuditVerdict.OBEYED
    return AuditVerdict.APPROXIMATE if order is not None and order >= LEAST_ORDER else AuditVerdict.CONTRADICTED


@dataclass(frozen=True)
class LawAudit:
    """One law on true fields: constraint error, leftover share of its terms, order of convergence, verdict."""

    problem: str
    equation: str
    settings: Mapping[str, Any]  # those that differ from the problem's defaults
    law: str
    rows: int
    samples: int
    error: float  # mean over samples of ‖R‖₂, in the law's own units
    largest: float  # of the worst sample
    leftover: float
    order: float | None  # None where the law holds to rounding
    refined: str | None  # the axes along which the order was found
    verdict: AuditVerdict


def targets() -> list[str]:
    """List what can be audited: problems, equations, all."""
    return [*names(), *sorted({problem(name).equation for name in names()}), ALL]


def audit(target: str, count: int = 8, seed: int = 0, progress: Progress | None = None) -> list[LawAudit]:
    """Audit a problem, all problems of an equation, or all; `progress` receives the name of what is audited now."""
    if not isinstance(count, int) or count < 1:
        raise ShapeError(f"audit(count) expects a whole number >= 1; got {count!r}. Eight samples are enough.")
    if target not in targets():
        raise UnknownName(
            f"audit(target) expects one of {targets()}; got {target!r}. {meant(target, targets())}`snapfm problems` lists them."
        )
    chosen = [name for name in READINGS if target in (ALL, name, problem(name).equation)]
    return [
        one
        for name in chosen
        for settings, law in (({}, None), *READINGS[name])
        for one in audit_reading(name, settings, law, count, seed, progress)
    ]


def audit_reading(
    name: str, settings: Mapping[str, Any], only: str | None, count: int, seed: int, progress: Progress | None = None
) -> Iterator[LawAudit]:
    """Audit a problem with these settings: the law named `only`, or all of them."""
    if progress:
        progress(" ".join([name, *(f"{key}={value}" for key, value in settings.items())]))

    @cache
    def truth(along: str | None = None) -> tuple[Problem, Tensor, dict[str, Tensor]]:
        """Simulate the same samples on the grid of the settings, or on one refined along some axes."""
        built = problem(name, **(settings if along is None else finer(name, settings, along)))
        return built, *built.draw_truth(seed, 0, count)

    def left(place: int, along: str | None = None) -> float:
        built, fields, params = truth(along)
        law = built.laws[place]
        assert not isinstance(law, Oracle)  # no audited problem has one
        return leftover(law, fields, params)

    own, fields, params = truth()
    for place, law in enumerate(own.laws):
        if only not in (None, law.name):
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
            name, own.equation, dict(settings), law.name, error.rows, count, error.error.value, error.largest, share, order,
            refined, verdict(share, order),
        )  # fmt: skip


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


def leftover(law: Law, u: Tensor, params: Params) -> float:
    """Return the share of a law's terms that is left over on true fields (b, *shape): 0 if they cancel, 1 if none do.

    A law that joins time slices says "change = cause". Its two terms are its residual on a field frozen in time, and what
    change adds to that. Small time steps shrink both equally, so their sum relative to their sizes measures agreement on any
    grid. Other laws compare values within a slice, or with params; there the terms are |∂R/∂u · u|, unknown by unknown.
    Sums run over rows and samples, so that a jump of one step counts as one step.
    """
    rows = float(residuals(law, u, params).sum())
    if isinstance(law, Bounds):
        return 0.0 if rows == 0.0 else rows / float(u.abs().sum())
    assert isinstance(law, (Equality, Inequality))  # problems have no Oracle
    structure = compile_laws([law], tuple(u.shape[1:]), params)
    values = float((structure.jacobian(u, params).abs() * u.flatten(1).abs()[:, structure.pattern.indices]).sum())
    if rows == 0.0:
        return 0.0
    first, last = _slices(structure, u.shape[-1])
    if bool((last > first).any()):
        signed = torch.stack([law.residual(field, one_of(params, i)).flatten() for i, field in enumerate(u)])
        cause = _frozen(law, u, params, first)
        if float(cause.abs().sum()) > _NOTHING * values:
            return rows / float(cause.abs().sum() + (signed - cause).abs().sum())
    return rows / values


def _slices(structure: CompiledLaws, times: int) -> tuple[Tensor, Tensor]:
    """Return the first and the last slice that each row reads; time is the last axis."""
    row, slice_ = structure.pattern.row_of(), structure.pattern.indices % times
    first, last = np.full(structure.rows, times - 1), np.zeros(structure.rows, dtype=np.int64)
    np.minimum.at(first, row, slice_)
    np.maximum.at(last, row, slice_)
    return torch.from_numpy(first), torch.from_numpy(last)


def _frozen(law: Equality | Inequality, u: Tensor, params: Params, first: Tensor) -> Tensor:
    """Evaluate each row on a field that stays as it was at the first slice the row reads: (b, rows)."""
    out = u.new_empty(len(u), len(first))
    for i, field in enumerate(u):
        for k in sorted(set(first.tolist())):
            constant = field[..., k : k + 1].expand_as(field)
            here = first == k
            out[i, here] = law.residual(constant, one_of(params, i)).flatten()[here]
    return out
