"""A hundred thousand projections of many kinds, every claim judged from outside: how many are false, and which.

A case is a set of laws with a batch of fields, drawn from its kind and number alone, so that it can be looked at again by
itself: `python -m benchmarks certificates --only KIND:NUMBER`. The judge shares no code with the projector: it takes the laws'
residuals in float64 and torch's derivatives of them, and knows of an answer only its field, multipliers and status. With
S = max(1, ‖û‖∞) and r = u − û + Jᵀλ, a sample called CONVERGED is a false claim of

- violation, unless the largest |h|, max(g, 0) and bound excess of the field as returned are within the tolerance;
- stationarity, unless ‖u − clip(u − r, bounds)‖∞ ≤ 1e-6 S. Where slopes jump, a mix of those around u may stand for J. It is
  a false claim of multipliers instead if others make u stationary: the field is right, its certificate is not;
- sign, if an inequality with λ < 0 pushes, |λ|‖∇g‖∞ > 1e-6 S; or one that is slack does, with g < −tolerance and
  λ|g| > 1e-6 S² besides;
- second order, if W = I + Σλ∇²h has an eigenvalue below −1e-6 max(1, ‖W‖) along the null space of what holds u (equalities,
  inequalities with λ > 0, unknowns at bounds) and a walk that way finds a lawful field nearer to û; unproved if it finds none.

In float32 the field is allowed what its rounding costs, to first order: ε Σ|∂h||u| of violation and ε Σ|W||u| of stationarity.
INFEASIBLE is a false claim where a lawful field is known; it is true nearby if the laws contradict each other to first order
where the projector stopped. Second order is not looked at beyond 64 unknowns. `loose` counts converged fields smaller than one
whose r is above 1e-6 of their size: true by the contract, which asks for 1e-6 of fields of order one, not in their own units.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from subprocess import run as run_command
from time import perf_counter
from typing import Any
from zlib import crc32

import torch
from scipy.optimize import nnls
from torch import Tensor
from torch.func import grad, jacrev, vmap

import snapfm
from snapfm import Bounds, Equality, Inequality, Projection, Status
from snapfm.laws import Law, Params
from snapfm.problems import names

COUNT = 100_000
NEAREST = 1e-6  # asked of stationarity, signs and curvature
_SHOWN = 3  # samples of a case told in full for each fault; all are listed by number
_ROUNDING = 1.0 + 1e-6  # judge and projector add up the same rows in another order
_DENSE = 64  # unknowns up to which W and its null space are formed
_RANK = 1e-10  # singular values of unit rows below it count as none
_AT_BOUND = 1e-7  # of S: an unknown so near to its bound counts as held
_NEXT = 0.1  # of S: fields farther away prove nothing of u
_CORRECTIONS = 30  # Gauss–Newton steps back onto the laws; a few are enough from next to them
_AROUND = 64  # points at which slopes are taken around a kink
_AT_KINK = 1e-5  # of S: stationarity asked there, as the slopes are taken 1e-8 S away
_CANCELS = 0.1  # unit slopes of broken laws that mix to less leave next to no step that mends them all
_TINY = 1e-300
_INF = math.inf
_NONE = torch.zeros(0, dtype=torch.float64)

Rows = Callable[[Tensor, Tensor, Tensor], Tensor]  # of a field (n,), weights (rows, n) and places (3, rows)


# What is projected


@dataclass(frozen=True)
class Case:
    """Laws and a batch: everything that one call of a projector takes, and a field that obeys if one is known."""

    shape: tuple[int, ...]
    laws: tuple[Law, ...]
    makes: tuple[str, ...]  # what the laws are made of, for reports
    params: dict[str, Tensor]  # (b, …)
    u_hat: Tensor  # (b, *shape)
    known: Tensor | None = None  # (b, *shape), meant to obey; the judge looks before it believes
    tolerance: float = 1e-8
    warm: Tensor | None = None  # (b, *shape): fields projected before, to begin from


@dataclass(frozen=True)
class Draws:
    """Random numbers of one case."""

    generator: torch.Generator

    def whole(self, low: int, high: int) -> int:
        """Draw from low .. high − 1."""
        return int(torch.randint(low, high, (), generator=self.generator))

    def of(self, choices: Sequence[Any]) -> Any:
        """Draw one of these."""
        return choices[self.whole(0, len(choices))]

    def normal(self, *shape: int) -> Tensor:
        """Draw a standard normal tensor, float64."""
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def uniform(self, *shape: int) -> Tensor:
        """Draw from [0, 1), float64."""
        return torch.rand(shape, generator=self.generator, dtype=torch.float64)

    def chance(self, share: float, *shape: int) -> Tensor:
        """Draw what is true that often."""
        return self.uniform(*shape) < share


SHAPES = ((3, 5), (4, 6), (2, 3, 3), (17,), (1,), (2,), (3,), (5,), (30,))
BATCHES = (1, 3, 16, 33, 64, 100, 128)
NOISES = (0.0, 1e-9, 1e-6, 1e-3, 0.1, 1.0, 3.0, 30.0)

SMOOTH: dict[str, Rows] = {
    "affine": lambda u, w, at: w @ u,
    "quadratic": lambda u, w, at: w.abs() @ u**2,
    "saddle": lambda u, w, at: w @ u**2,
    "product": lambda u, w, at: u[at[0]] * u[at[1]] + w @ u,
    "triple": lambda u, w, at: u[at[0]] * u[at[1]] * u[at[2]],
    "exp": lambda u, w, at: w @ torch.exp(0.5 * u),
    "sin": lambda u, w, at: w @ torch.sin(u),
    "tanh": lambda u, w, at: torch.tanh(0.3 * (w @ u)),
    "root": lambda u, w, at: torch.sqrt(1.0 + (w @ u) ** 2) + u[at[0]],
    "ratio": lambda u, w, at: u[at[0]] / (1.0 + u[at[1]] ** 2),
    "cubic": lambda u, w, at: w @ u**3,
    "quartic": lambda u, w, at: w @ (u**2 - 1.0) ** 2,
    "form": lambda u, w, at: (w @ u) * u.sum() + u[at[0]] ** 2,
    "log": lambda u, w, at: w @ torch.log(1.0 + u**2),
    "sigmoid": lambda u, w, at: w @ torch.sigmoid(u) + 0.1 * u[at[0]],
    "spread": lambda u, w, at: (w @ u**2) / u.numel() - (w @ u / u.numel()) ** 2,
    "norm": lambda u, w, at: torch.sqrt(w.abs() @ u**2 + 1e-2),
    "wave": lambda u, w, at: torch.sin(3.0 * u[at[0]]) * torch.cos(u[at[1]]) + w @ u,
    "flux": lambda u, w, at: w[:, 1:] @ (u[1:] ** 2 - u[:-1] ** 2) + w @ u,
    "bell": lambda u, w, at: w @ torch.exp(-(u**2)),
    "running": lambda u, w, at: w @ (torch.cumsum(u, 0) * u),
    "energy": lambda u, w, at: w @ u + 0.5 * (u[1:] - u[:-1]).square().sum(),
}
SLOW: dict[str, Rows] = {  # no scalar form: projected sample by sample
    "arctan": lambda u, w, at: torch.atan(w @ u) * u[at[0]],
    "logsumexp": lambda u, w, at: torch.logsumexp(w * u, 1),
    "softplus": lambda u, w, at: w @ torch.nn.functional.softplus(u),
    "erf": lambda u, w, at: torch.erf(w @ u) + u[at[0]] ** 2,
}
KINKED: dict[str, Rows] = {
    "abs": lambda u, w, at: w @ u.abs(),
    "relu": lambda u, w, at: w @ torch.relu(u) + 0.1 * (w @ u),
    "maximum": lambda u, w, at: torch.maximum(u[at[0]], u[at[1]]) + 0.1 * (w @ u),
    "minimum": lambda u, w, at: torch.minimum(u[at[0]], u[at[1]]) * u[at[2]],
    "clamp": lambda u, w, at: w @ u.clamp(-0.5, 0.5) + u[at[0]],
    "where": lambda u, w, at: w @ torch.where(u > 0, u**2, 0.5 * u),
    "split": lambda u, w, at: w @ (u.clamp(min=0.0) ** 2 - u),
}
DOMAIN: dict[str, Rows] = {  # of positive fields only
    "logarithm": lambda u, w, at: w @ torch.log(u),
    "square root": lambda u, w, at: w @ torch.sqrt(u),
    "inverse": lambda u, w, at: w @ (1.0 / u),
    "entropy": lambda u, w, at: w.abs() @ (u * torch.log(u)),
    "power": lambda u, w, at: w @ u**1.5,
}
SYMMETRIC: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda u: u.sum(),
    "squares": lambda u: (u**2).sum(),
    "fourth powers": lambda u: (u**4).sum(),
    "wells": lambda u: ((u**2 - 1.0) ** 2).sum(),
    "cosines": lambda u: torch.cos(u).sum(),
    "bells": lambda u: torch.exp(-(u**2)).sum(),
    "neighbors": lambda u: (u[1:] * u[:-1]).sum(),
}
FLAT = ("quadratic", "saddle", "triple", "cubic", "quartic", "log", "bell", "norm")  # zero slope where u = 0


def draw(kind: str, number: int) -> Case:
    """Draw one case; all of it follows from its kind and number."""
    seed = (crc32(kind.encode()) << 24) + number
    return KINDS[kind][0](Draws(torch.Generator().manual_seed(seed)))


def _law(
    draws: Draws, name: str, make: str, fields: Tensor, kind: type[Equality] | type[Inequality], scale: float, units: float
) -> tuple[Law, dict[str, Tensor]]:  # fmt: skip
    """Make a law of a few rows that every field (b, *shape) obeys, by params of its own; weights are shared or per sample."""
    batch, unknowns, count = len(fields), fields[0].numel(), draws.whole(1, 4)
    at = torch.randint(unknowns, (3, count), generator=draws.generator)
    own = bool(draws.chance(0.3))
    weights = draws.normal(batch if own else 1, count, unknowns) * draws.chance(0.4, count, unknowns)
    weights[..., 0] += (weights == 0.0).all(dim=-1)  # a row of zeros is no law, and refused as one
    shared, rows = weights[0], (SMOOTH | KINKED | SLOW | DOMAIN)[make]

    def value(u: Tensor, w: Tensor) -> Tensor:
        return scale * rows((u / units).flatten(), w, at)

    target = torch.stack([value(one, weights[i if own else 0]) for i, one in enumerate(fields)])
    if kind is Inequality:  # half of the rows hold with equality there
        target = target + scale * draws.uniform(batch, count) * draws.chance(0.5, batch, count)
    params = {name: target} | ({f"{name} weights": weights} if own else {})

    def residual(u: Tensor, p: Params) -> Tensor:
        return value(u, p[f"{name} weights"] if own else shared) - p[name]

    return kind(name, residual), params


def _feasible(
    draws: Draws, makes: Sequence[str] = tuple(SMOOTH), *, shapes: Sequence[tuple[int, ...]] = SHAPES, units: float = 1.0,
    equalities: tuple[int, int] = (1, 4), inequalities: tuple[int, int] = (0, 3), bounds: float = 0.5,
    scales: tuple[int, int] = (0, 1), batch: int | None = None, center: float = 1.0, positive: bool = False,
) -> Case:  # fmt: skip
    """Draw laws around random fields, which obey them; û is such a field with noise, or noise."""
    shape = draws.of(shapes)
    batch = draws.of(BATCHES) if batch is None else batch
    middle = center * draws.normal(*shape)
    known = middle + draws.normal(batch, *shape)
    if positive:
        middle, known = middle.abs() + 0.1, known.abs() + 0.1
    limits: list[Law] = []
    if bool(draws.chance(bounds)):
        room = 2.0 * draws.uniform(2, *shape)
        lower, upper = middle - room[0], middle + room[1]
        lower = lower.clamp(min=0.01) if positive else lower
        known = known.clamp(lower, upper)
        one_sided = draws.whole(0, 3)
        limits = [Bounds(None if one_sided == 1 else units * lower, None if one_sided == 2 else units * upper)]
    known = units * known
    laws: list[Law] = []
    used: list[str] = []
    params: dict[str, Tensor] = {}
    for kind, counts in ((Equality, equalities), (Inequality, inequalities)):
        for k in range(draws.whole(*counts)):
            name, make = f"{kind.__name__} {k}", draws.of(makes)
            law, own = _law(draws, name, make, known, kind, 10.0 ** draws.whole(*scales), units)
            laws.append(law)
            used.append(make + (" ≤" if kind is Inequality else ""))
            params |= own
    noise = torch.tensor([draws.of(NOISES) for _ in range(batch)], dtype=torch.float64)
    noise = noise.reshape(-1, *[1] * len(shape))
    alone = draws.chance(0.15, batch, *[1] * len(shape))
    u_hat = torch.where(alone, units * draws.normal(batch, *shape), known + units * noise * draws.normal(batch, *shape))
    return Case(shape, (*laws, *limits), (*used, *("bounds" for _ in limits)), params, u_hat, known)


def _random(draws: Draws) -> Case:
    return _feasible(draws)


def _curved(draws: Draws) -> Case:
    """Few unknowns, strong curvature, û anywhere: where saddles are common."""
    makes = ("quadratic", "saddle", "product", "triple", "cubic", "quartic", "form", "bell", "wave", "sin", "spread")
    shapes = ((2,), (3,), (4,), (2, 3))
    return _feasible(draws, makes, shapes=shapes, equalities=(1, 3), inequalities=(0, 2), bounds=0.2, center=0.3)


def _square(draws: Draws) -> Case:
    """As many rows as unknowns or more: the laws leave no freedom, or say things twice over."""
    shapes = ((1,), (2,), (3,), (2, 2), (5,))
    return _feasible(draws, shapes=shapes, equalities=(2, 6), inequalities=(0, 3))


def _repeated(draws: Draws) -> Case:
    """Laws said again: exactly, times a factor, almost, or as a sum of others."""
    case = _feasible(draws, inequalities=(0, 2))
    assert case.known is not None
    laws, params, makes = list(case.laws), dict(case.params), list(case.makes)
    for k, law in enumerate(case.laws):
        if isinstance(law, Bounds) or not bool(draws.chance(0.7)):
            continue
        how = draws.of(("again", "times", "almost", "almost", "squared", "summed"))
        factor = float(draws.normal(1)) if how == "times" else 1.0
        factor = abs(factor) if isinstance(law, Inequality) else factor
        tilt = torch.zeros(case.shape).double()
        if how == "almost":
            tilt = 10.0 ** -draws.whole(5, 13) * draws.normal(*case.shape)
        name = f"{how} {k}"

        laws.append(type(law)(name, partial(_said_again, law, how, factor, tilt, name)))
        params[name] = (tilt * case.known).flatten(1).sum(1)
        makes.append(f"{how} {case.makes[k]}")
    return replace(case, laws=tuple(laws), params=params, makes=tuple(makes))


def _said_again(law: Any, how: str, factor: float, tilt: Tensor, name: str, u: Tensor, p: Params) -> Tensor:
    value: Tensor = factor * law.residual(u, p) + (tilt * u).sum() - p[name]
    return value + value**2 if how == "squared" else value.sum() if how == "summed" else value


def _scaled(draws: Draws) -> Case:
    """Rows of very different size, from 1e-6 to 1e6."""
    return _feasible(draws, scales=(-6, 7))


def _units(draws: Draws) -> Case:
    """Fields of tiny and huge units; the tolerance is that of order one, or the one the units deserve."""
    units = 10.0 ** draws.of((-6, -3, 3, 6))
    plain = bool(draws.chance(0.5))  # laws that see the field as it is, or in units that make it of order one
    case = _feasible(draws, ("affine", "quadratic", "product", "saddle") if plain else tuple(SMOOTH), units=units)
    return replace(case, tolerance=draws.of((1e-8, 1e-8, 1e-8 * max(1.0, units))))


def _lawful(draws: Draws) -> Case:
    """û obeys already, or nearly so."""
    case = _feasible(draws)
    assert case.known is not None
    off = torch.tensor([draws.of((0.0, 0.0, 1e-12, 1e-9, 1e-8, 1e-7)) for _ in case.known], dtype=torch.float64)
    noise = off.reshape(-1, *[1] * len(case.shape)) * draws.normal(*case.known.shape)
    return replace(case, u_hat=case.known + noise)


def _stationary(draws: Draws) -> Case:
    """û where the slopes of the laws vanish, all of it or part of it."""
    case = _feasible(draws, FLAT, center=0.2)
    share = draws.of((0.5, 1.0, 1.0))
    return replace(case, u_hat=case.u_hat * ~draws.chance(share, *case.u_hat.shape))


def _symmetric(draws: Draws) -> Case:
    """Laws that tell neither unknowns nor signs apart, û and start of the same symmetry: nothing pushes off a saddle."""
    shape, batch = draws.of(((2,), (3,), (5,), (8,), (3, 4))), draws.of(BATCHES)
    known, level = draws.normal(batch, *shape), draws.normal(batch, *[1] * len(shape))
    laws: list[Law] = []
    makes: list[str] = []
    params: dict[str, Tensor] = {}
    for k in range(draws.whole(1, 4)):
        kind, make = draws.of((Equality, Equality, Inequality)), draws.of(list(SYMMETRIC))
        name, value = f"{kind.__name__} {k}", SYMMETRIC[make]
        laws.append(kind(name, lambda u, p, name=name, value=value: value(u) - p[name]))
        params[name] = torch.stack([value(one) for one in known])
        makes.append(make + (" ≤" if kind is Inequality else ""))
    signs = 2.0 * draws.chance(0.5, *shape) - 1.0
    how = draws.of(("constant", "signs", "zero", "noise"))
    u_hat = {
        "constant": level.expand(batch, *shape),
        "signs": level * signs,
        "zero": 0.0 * known,
        "noise": 2.0 * known,
    }[how]
    warm = -u_hat if bool(draws.chance(0.5)) else None
    mirrored = () if warm is None else ("begun at the mirror image",)
    return Case(shape, tuple(laws), (*makes, how, *mirrored), params, u_hat.clone(), known, warm=warm)


def _kinked(draws: Draws) -> Case:
    """Laws with kinks, û on them or off."""
    case = _feasible(draws, (*KINKED, "affine", "quadratic"), center=0.3)
    at = draws.chance(draws.of((0.0, 0.3, 0.6)), *case.u_hat.shape)
    return replace(case, u_hat=torch.where(at, draws.of((0.0, 0.5)) * torch.ones_like(case.u_hat), case.u_hat))


def _contradictory(draws: Draws) -> Case:
    """Laws no field can obey, alone or among others; some contradict each other by very little."""
    case = _feasible(draws, equalities=(0, 3), inequalities=(0, 2), bounds=0.2)
    gap = draws.of((1.0, 1e-3, 1e-6, 1e-7, 1e-9))
    unknowns = case.u_hat[0].numel()
    total = float(draws.normal(1))
    ways: dict[str, tuple[Law, ...]] = {
        "two totals": (
            Equality("total", lambda u, p: u.sum() - total), Equality("other", lambda u, p: u.sum() - total - gap)
        ),
        "two squares": (
            Equality("square", lambda u, p: (u**2).sum() - 1), Equality("other", lambda u, p: (u**2).sum() - 1 - gap)
        ),
        "negative square": (Equality("square", lambda u, p: u.flatten()[:1] ** 2 + gap),),
        "negative sum of squares": (Equality("square", lambda u, p: (u**2).sum() + gap),),
        "negative exp": (Equality("exp", lambda u, p: torch.exp(u.flatten()[0]) + gap),),
        "large sine": (Equality("sine", lambda u, p: torch.sin(u.flatten()[:2]) - 1.0 - gap),),
        "bound against total": (Equality("total", lambda u, p: u.sum() - unknowns - gap), Bounds(upper=1.0, name="ones")),
        "bound against square": (Equality("square", lambda u, p: (u**2).sum() - unknowns - gap), Bounds(-1.0, 1.0, name="ones")),
        "inequality against equality": (
            Equality("total", lambda u, p: u.sum() - total), Inequality("less", lambda u, p: u.sum() - total + gap)
        ),
        "two inequalities": (
            Inequality("small", lambda u, p: (u**2).sum() - 1.0), Inequality("far", lambda u, p: 1.0 + gap - u.flatten()[0])
        ),
        "circle and line": (
            Equality("circle", lambda u, p: (u**2).sum() - 1.0), Equality("line", lambda u, p: u.flatten()[0] - 1.0 - gap)
        ),
    }  # fmt: skip
    way = draws.of(list(ways))
    others = tuple(
        law for law in case.laws if not isinstance(law, Bounds) or "bound" not in way
    )  # two would be refused
    return replace(case, laws=(*others, *ways[way]), makes=(*case.makes, f"{way}, {gap:g}"), known=None)


def _nonfinite(draws: Draws) -> Case:
    """NaN and infinity in û or params of some samples of a batch."""
    case = _feasible(draws, (*SMOOTH, *KINKED))
    bad = draws.of((math.nan, math.inf, -math.inf))
    u_hat, params = case.u_hat.clone(), {name: value.clone() for name, value in case.params.items()}
    for i in torch.nonzero(draws.chance(0.3, len(u_hat))).flatten().tolist():
        target = u_hat[i] if bool(draws.chance(0.5)) else draws.of(list(params.values()))[i]
        target.view(-1)[draws.whole(0, target.numel())] = bad
    return replace(case, u_hat=u_hat, params=params, known=None)


def _simplex(draws: Draws) -> Case:
    """A sum is fixed, no entry is negative; many entries end at zero, and û may miss by next to nothing."""
    shape, batch = draws.of(((3,), (8,), (30,), (4, 5), (2, 3, 3))), draws.of(BATCHES)
    known = draws.uniform(batch, *shape) * draws.chance(draws.of((0.2, 0.5, 1.0)), batch, *shape)
    known.view(batch, -1)[:, 0] += 0.1
    known = known / known.flatten(1).sum(1).reshape(-1, *[1] * len(shape))
    how = draws.of(("sum", "at most", "rows", "rows and columns", "weighted", "square"))
    weight = draws.uniform(*shape) + 0.1
    totals: dict[str, Callable[[Tensor], Tensor]] = {
        "sum": lambda u: u.sum(),
        "at most": lambda u: u.sum(),
        "rows": lambda u: u.sum(-1),
        "rows and columns": lambda u: torch.cat([u.sum(-1).flatten(), u.sum(0).flatten()]),
        "weighted": lambda u: (weight * u).sum(),
        "square": lambda u: torch.stack([u.sum(), (u**2).sum()]),
    }
    total = totals[how]
    params = {"total": torch.stack([total(one) for one in known])}
    kind = Inequality if how == "at most" else Equality
    laws = (kind("total", lambda u, p: total(u) - p["total"]), Bounds(lower=0.0, upper=draws.of((None, 1.0))))
    off = 10.0 ** -torch.tensor([draws.of((0, 1, 7, 8, 9, 10)) for _ in range(batch)], dtype=torch.float64)
    u_hat = known + off.reshape(-1, *[1] * len(shape)) * draws.normal(batch, *shape)
    return Case(shape, laws, (f"simplex {how}",), params, u_hat, known)


def _warm(draws: Draws) -> Case:
    """Begun from the answers to other fields, in the right order or not."""
    case = _feasible(draws)
    other = case.u_hat + draws.of((0.01, 1.0)) * draws.normal(*case.u_hat.shape)
    return replace(case, warm=other.roll(int(draws.chance(0.3)), 0))


def _single(draws: Draws) -> Case:
    """Fields, and sometimes params, in float32."""
    case = _feasible(draws)
    params = {k: v.float() for k, v in case.params.items()} if bool(draws.chance(0.5)) else case.params
    return replace(case, u_hat=case.u_hat.float(), params=params, tolerance=draws.of((1e-8, 1e-5)))


def _domain(draws: Draws) -> Case:
    """Laws that are not a number everywhere, û inside their domain or not."""
    return _feasible(draws, (*DOMAIN, "affine", "quadratic"), positive=True, inequalities=(0, 2))


def _slow(draws: Draws) -> Case:
    """Operators without a scalar form."""
    return _feasible(
        draws, (*SLOW, "affine", "quadratic"), shapes=((2,), (3,), (2, 3)), equalities=(1, 3), batch=draws.of((1, 2, 5))
    )


SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    *((name, {}) for name in names()),
    ("heat-ic-mass-pde-energy", {"energy": "equality"}),
    ("heat-ic-mass-pde-energy", {"discretization": "release"}),
    ("heat-ic-mass-implicit", {"scheme": "kernel"}),
    ("burgers-bc-mass", {"mass": "flux"}),
    ("burgers-bc-mass", {"mass": "constant"}),
    ("burgers-ic-mass", {"mass": "flux"}),
    ("burgers-ic-mass", {"mass": "balance"}),
    ("burgers-ic-mass-flux", {"mass": "flux"}),
    ("burgers-ic-mass-flux", {"flux": "split"}),
    ("burgers-ic-mass-flux", {"flux": "godunov"}),
    ("reaction-diffusion-ic-mass", {"inner": True}),
    ("reaction-diffusion-ic-mass", {"discretization": "release"}),
    ("navier-stokes-ic-mass", {"discretization": "release"}),
    ("navier-stokes-ic-mass-enstrophy", {"discretization": "release"}),
)


def _physics(
    draws: Draws, sizes: Sequence[tuple[int, int]] = ((6, 5), (8, 8), (5, 12)), batches: Sequence[int] = (16, 33, 64)
) -> Case:
    """The law sets of the problems and their variants on small grids, fields as they come up around a sampler."""
    name, settings = draws.of(SETTINGS)
    nx, nt = draws.of(sizes)
    grid = {"nx": nx, "nt": nt}
    if name.startswith("navier"):  # in the plane: fewer points each way
        points = max(4, nx // 6)
        grid = {"size": points, "nt": max(4, nt // 2) if points > 4 else 4, "resolution": max(16, 2 * points)}
    if "flux" in name or "pde" in name or "implicit" in name:
        grid |= {"pde_steps" if "heat" in name else "flux_steps": draws.of((2, 4))}
    problem, batch = snapfm.problem(name, **settings, **grid), draws.of(batches)
    truth, params = problem.truth(batch, draws.generator)
    noise = draws.normal(*truth.shape)
    inputs: dict[str, Callable[[], Tensor]] = {
        "truth": lambda: truth,
        "truth + 0.1 noise": lambda: truth + 0.1 * noise,
        "noise 1": lambda: noise,
        "noise 3": lambda: 3.0 * noise,
        "constant": lambda: torch.full_like(noise, 0.7),
        "zero": lambda: torch.zeros_like(noise),
        "float32": lambda: (truth + 0.1 * noise).float(),
    }
    kind = draws.of([key for key in inputs if key != "float32" or truth[0].numel() <= _DENSE])
    label = " ".join([name, *(f"{key}={value}" for key, value in (settings | grid).items()), kind])
    return Case(tuple(problem.grid.shape), problem.laws, (label,), dict(params), inputs[kind](), truth)


def _large(draws: Draws) -> Case:
    """The law sets of the problems on large grids: second order is not looked at."""
    return _physics(draws, ((40, 40), (101, 101)), (8, 16))


# How each kind is drawn, and its share of all samples.
KINDS: dict[str, tuple[Callable[[Draws], Case], float]] = {
    "random": (_random, 0.09),
    "curved": (_curved, 0.10),
    "square": (_square, 0.05),
    "repeated": (_repeated, 0.07),
    "scaled": (_scaled, 0.07),
    "units": (_units, 0.07),
    "lawful": (_lawful, 0.05),
    "stationary": (_stationary, 0.07),
    "symmetric": (_symmetric, 0.03),
    "kinked": (_kinked, 0.05),
    "contradictory": (_contradictory, 0.04),
    "nonfinite": (_nonfinite, 0.03),
    "simplex": (_simplex, 0.07),
    "warm": (_warm, 0.06),
    "single": (_single, 0.06),
    "domain": (_domain, 0.03),
    "physics": (_physics, 0.0547),
    "large": (_large, 0.005),
    "slow": (_slow, 0.0003),
}


# The judge


class Judge:
    """The laws of a case as functions of flat fields, and torch's derivatives of them."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.laws = [law for law in case.laws if not isinstance(law, Bounds)]
        self.u_hat = case.u_hat.double().flatten(1)
        self.params = {name: value.double() for name, value in case.params.items()}
        self.lower, self.upper = _limits(case)
        self.size = self.u_hat.abs().nan_to_num(_INF).amax(1).clamp(min=1.0)  # S of each sample
        first = {name: value[0] for name, value in self.params.items()}
        rows = [(law, law.residual(self.u_hat[0].view(case.shape), first).numel()) for law in self.laws]
        self.equality = torch.cat([_NONE.bool(), *(torch.full((n,), isinstance(law, Equality)) for law, n in rows)])

    def one_residual(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate all rows at one flat field."""
        return torch.cat([_NONE, *(law.residual(u.view(self.case.shape), params).reshape(-1) for law in self.laws)])

    def residual(self, u: Tensor) -> Tensor:
        """Evaluate all rows at a batch (b, n): (b, m)."""
        rows: Tensor = vmap(self.one_residual)(u, self.params)
        return rows

    def broken(self, residual: Tensor) -> Tensor:
        """Give h and max(g, 0) of a residual."""
        return torch.where(self.equality, residual, residual.clamp(min=0.0))

    def violation(self, u: Tensor) -> Tensor:
        """Measure what is broken most at a batch (b, n): (b,)."""
        excess = torch.maximum(u - self.upper, self.lower - u).clamp(min=0.0)
        return _largest(torch.cat([self.broken(self.residual(u)), excess], 1))

    def jacobian(self, u: Tensor) -> Tensor:
        """Differentiate all rows: (b, m, n)."""
        slopes: Tensor = vmap(jacrev(self.one_residual))(u, self.params)
        return slopes

    def pull(self, u: Tensor, multipliers: Tensor) -> Tensor:
        """Form Jᵀλ by one reverse pass: (b, n)."""
        pulled: Tensor = vmap(grad(self._weighted))(u, self.params, multipliers)
        return pulled

    def hessian(self, u: Tensor, multipliers: Tensor) -> Tensor:
        """Form W = I + Σλ∇²h: (b, n, n)."""
        bent: Tensor = vmap(jacrev(grad(self._weighted)))(u, self.params, multipliers)
        return torch.eye(u.shape[1]) + bent

    def _weighted(self, u: Tensor, params: Params, multipliers: Tensor) -> Tensor:
        return multipliers @ self.one_residual(u, params) + 0.0 * u.sum()  # rows may be none, or read nothing

    def within(self, u: Tensor, rest: Tensor) -> Tensor:
        """Give u − clip(u − rest, bounds), without its cancellation."""
        return torch.minimum(torch.maximum(rest, u - self.upper), u - self.lower)

    def walls(self, u: Tensor) -> Tensor:
        """List the directions in which the bounds that one flat field is at may push it, as rows."""
        eye, near = torch.eye(len(u)).double(), self.case.tolerance
        return torch.cat([-eye[u - self.lower <= near], eye[self.upper - u <= near]])


@dataclass(frozen=True)
class Findings:
    """What the judge measures on a batch, (b,) each; infinite where something is not a number."""

    violation: Tensor
    allowed: Tensor  # of violation
    stationarity: Tensor  # as a share of what is allowed, like `sign`
    sign: Tensor
    loose: Tensor  # bool: the field is smaller than one, and stationarity above 1e-6 of its size
    curvature: Tensor  # smallest eigenvalue of W where u may move, over max(1, ‖W‖); infinite where not looked at
    direction: Tensor  # (b, n), of that eigenvalue
    known: Tensor  # bool: a lawful field is known


def measure(case: Case, answer: Tensor, multipliers: Mapping[str, Tensor]) -> Findings:
    """Measure answers (b, *shape) with multipliers (b, rows) by law."""
    judge, u = Judge(case), answer.detach().double().flatten(1)
    weights = _joined(judge, multipliers)
    rest = judge.within(u, u - judge.u_hat + judge.pull(u, weights))
    allowed, nearest = torch.full_like(judge.size, case.tolerance), NEAREST * judge.size
    push, curvature, direction = weights.abs(), torch.full_like(judge.size, _INF), torch.zeros_like(u)
    if u.shape[1] <= _DENSE:
        jacobian, hessian = judge.jacobian(u), judge.hessian(u, weights)
        push = push * jacobian.abs().amax(2)
        curvature, direction = _second_order(judge, u, weights, jacobian, hessian)
        if answer.dtype == torch.float32:
            bounded = torch.diag_embed((judge.lower > -_INF) | (judge.upper < _INF)).double().expand_as(hessian)
            allowed = allowed + _rounding(torch.cat([jacobian, bounded], 1), u)
            nearest = nearest + _rounding(hessian, u)
    residual = judge.residual(u)
    slack = torch.minimum(push, (weights * residual).abs() / judge.size[:, None]) * (residual < -allowed[:, None])
    wrong = torch.where(weights < 0, push, slack)[:, ~judge.equality]
    own = torch.maximum(_largest(u), _largest(judge.u_hat))
    return Findings(
        violation=judge.violation(u),
        allowed=allowed,
        stationarity=_largest(rest) / nearest,
        sign=_largest(wrong) / nearest,
        loose=(own < 1) & (_largest(rest) > NEAREST * own),
        curvature=curvature,
        direction=direction,
        known=_known(judge),
    )


def _known(judge: Judge) -> Tensor:
    """Say of which samples a lawful field is known: believed only after a look."""
    known = judge.case.known
    if known is None:
        return torch.zeros(len(judge.u_hat), dtype=torch.bool)
    return judge.violation(known.double().flatten(1)) <= judge.case.tolerance


def _second_order(
    judge: Judge, u: Tensor, multipliers: Tensor, jacobian: Tensor, hessian: Tensor
) -> tuple[Tensor, Tensor]:
    """Find the smallest eigenvalue of W, over max(1, ‖W‖), along the null space of what holds u; and its direction."""
    finite = torch.isfinite(hessian).all(2).all(1) & torch.isfinite(jacobian).all(2).all(1)
    hessian, jacobian = hessian.where(finite[:, None, None], 0.0), jacobian.where(finite[:, None, None], 0.0)
    held = judge.equality | (multipliers > 0)
    unit = jacobian / jacobian.norm(dim=2, keepdim=True).clamp(min=_TINY) * held[..., None]
    near = _AT_BOUND * judge.size[:, None]
    fixed = torch.diag_embed(((u - judge.lower <= near) | (judge.upper - u <= near)).double())
    _, values, basis = torch.linalg.svd(torch.cat([unit, fixed], 1), full_matrices=False)
    basis = basis * (values > _RANK)[..., None]
    spanned = basis.mT @ basis
    free = torch.eye(u.shape[1]) - spanned
    norm = torch.linalg.matrix_norm(hessian, 2).clamp(min=1.0)
    moved = free @ hessian @ free + 2.0 * norm[:, None, None] * spanned  # what is held stays out of the smallest
    values, vectors = torch.linalg.eigh(0.5 * (moved + moved.mT))
    return torch.where(finite, values[:, 0] / norm, _INF), vectors[:, :, 0]


def nearer(case: Case, sample: int, u: Tensor, multipliers: Tensor, direction: Tensor) -> float:
    """Walk from u both ways, back onto the laws by Gauss–Newton, and say how much ‖u − û‖² falls; 0 if it does not.

    What is found is a proof that needs no rank condition: a lawful field next to u that is nearer to û.
    """
    judge, start, best = Judge(_alone(case, sample)), u.double().flatten()[None], 0.0
    here, size = float((start - judge.u_hat).square().sum()), float(judge.size)
    price, missed = 4.0 * float(multipliers.abs().sum()), float(judge.violation(start))
    for step in (1e-3, -1e-3, 3e-3, -3e-3, 1e-2, -1e-2, 3e-2, -3e-2):
        point = _back(judge, start + step * size * direction, judge.equality | (multipliers > 0))
        violation = float(judge.violation(point))
        if violation <= case.tolerance and float((point - start).norm()) <= _NEXT * size:
            gain = here - float((point - judge.u_hat).square().sum())
            # What is broken, at its price, may explain a gain; and so may rounding.
            explained = price * (missed + violation) + 1e-12 * max(1.0, here)
            best = max(best, gain if gain > explained else 0.0)
    return best


def _back(judge: Judge, point: Tensor, held: Tensor) -> Tensor:
    """Bring a field back onto the rows that hold it and the laws it breaks, within its bounds."""
    for _ in range(_CORRECTIONS):
        point = point.clamp(judge.lower, judge.upper)
        residual = judge.residual(point)
        broken = torch.where(held, residual, judge.broken(residual))
        if not bool(torch.isfinite(broken).all()) or float(_largest(broken)) <= 1e-4 * judge.case.tolerance:
            break
        inner = (point > judge.lower) & (point < judge.upper)
        matrix = judge.jacobian(point)[0] * (broken != 0).T * inner
        point = point - torch.linalg.lstsq(matrix, broken.T, driver="gelsd").solution.T
    return point


def fits_at_kink(case: Case, sample: int, u: Tensor, multipliers: Tensor) -> bool:
    """Say if slopes taken around u, mixed, make u stationary: where they jump, torch's own is one of many (Clarke)."""
    judge, flat = Judge(_alone(case, sample)), u.double().flatten()
    size, count = float(judge.size), _AROUND
    noise = torch.randn(count, len(flat), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    judge.params = {name: value.expand(count, *value.shape[1:]) for name, value in judge.params.items()}
    pulls = flat - judge.u_hat + judge.pull(flat + 1e-8 * size * noise, multipliers.expand(count, -1))
    return _shortest_mix(pulls / size, judge.walls(flat)) <= _AT_KINK


def fits_otherwise(case: Case, sample: int, u: Tensor) -> bool:
    """Say if some multipliers make u stationary, though those that came with it do not."""
    judge, flat = Judge(_alone(case, sample)), u.double().flatten()
    residual, slopes = judge.residual(flat[None])[0], judge.jacobian(flat[None])[0]
    active = judge.equality | (residual >= -case.tolerance)
    pushes = torch.cat([slopes[active], -slopes[judge.equality], judge.walls(flat)])
    pushes = pushes / pushes.norm(dim=1, keepdim=True).clamp(min=_TINY)
    goal = judge.u_hat[0] - flat
    if not bool(torch.isfinite(pushes).all() & torch.isfinite(goal).all()):
        return False
    found, _ = nnls(pushes.T.numpy(), goal.numpy())
    return float((pushes.T @ torch.from_numpy(found) - goal).abs().max()) <= NEAREST * float(judge.size)


def contradiction(case: Case, sample: int, u: Tensor) -> float:
    """Measure how far the laws at u are from contradicting each other to first order (Farkas): 0 if no step mends them.

    It is the shortest mix of the slopes of broken rows; those of rows and bounds that hold u push as they may. Slopes are of unit
    length, and shorter where mending a row would take a step longer than the field.
    """
    judge, flat = Judge(_alone(case, sample)), u.double().flatten()
    residual, slopes = judge.residual(flat[None])[0], judge.jacobian(flat[None])[0]
    slopes = slopes / torch.maximum(slopes.norm(dim=1), residual.abs() / judge.size).clamp(min=_TINY)[:, None]
    broken = judge.broken(residual).abs() > case.tolerance
    kept = ~broken & (judge.equality | (residual >= -case.tolerance))
    others = torch.cat([slopes[kept], -slopes[kept & judge.equality], judge.walls(flat)])
    return _shortest_mix((slopes * residual.sign()[:, None])[broken], others)


def _shortest_mix(vectors: Tensor, others: Tensor) -> float:
    """Give about the least length of a convex mix of vectors (k, n) plus a non-negative sum of others."""
    columns = torch.cat([vectors, others])
    if len(vectors) == 0 or not bool(torch.isfinite(columns).all()):
        return _INF
    share = torch.cat([torch.ones(len(vectors)), torch.zeros(len(others))])[None]
    goal = torch.cat([torch.zeros(columns.shape[1]), torch.ones(1)])
    _, left = nnls(torch.cat([columns.T, share.double()]).numpy(), goal.double().numpy())
    return float(left)


def _limits(case: Case) -> tuple[Tensor, Tensor]:
    """Gather all bounds, flat."""
    lower, upper = torch.full(case.shape, -_INF).double(), torch.full(case.shape, _INF).double()
    for law in case.laws:
        if isinstance(law, Bounds):
            lower = torch.maximum(lower, torch.as_tensor(-_INF if law.lower is None else law.lower).double())
            upper = torch.minimum(upper, torch.as_tensor(_INF if law.upper is None else law.upper).double())
    return lower.flatten(), upper.flatten()


def _joined(judge: Judge, multipliers: Mapping[str, Tensor]) -> Tensor:
    """Join the multipliers of all laws: (b, m)."""
    none = _NONE.expand(len(judge.u_hat), 0)
    return torch.cat([none, *(multipliers[law.name].detach().double() for law in judge.laws)], 1)


def _alone(case: Case, sample: int) -> Case:
    """Give one sample of a case as a batch of one."""
    only = slice(sample, sample + 1)
    return replace(case, params={name: value[only] for name, value in case.params.items()}, u_hat=case.u_hat[only])


def _rounding(matrix: Tensor, u: Tensor) -> Tensor:
    """Bound what float32 rounding of u does to a product with a matrix (b, k, n): the largest ε Σ|a||u|, (b,)."""
    return torch.finfo(torch.float32).eps * (matrix.abs() @ u.abs()[..., None])[..., 0].nan_to_num(0.0, 0.0).amax(1)


def _largest(value: Tensor) -> Tensor:
    """Give each sample's largest size; NaN counts as infinite, so that it cannot hide behind a maximum."""
    return value.abs().nan_to_num(_INF, _INF).amax(1) if value.shape[1] else torch.zeros(len(value)).double()


# The audit


def run(count: int = COUNT) -> dict[str, Any]:
    """Project and judge about `count` samples, shared among the kinds."""
    kinds: dict[str, dict[str, Any]] = {}
    claims: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    for kind, (_, share) in KINDS.items():
        began, cases = perf_counter(), list[dict[str, Any]]()
        while sum(case["samples"] for case in cases) < share * count:
            cases.append(one(kind, len(cases)))
        kinds[kind] = _sums(cases) | {"seconds": perf_counter() - began}
        claims += [claim for case in cases for claim in case["false"]]
        errors += [{"case": case["case"], "error": case["error"]} for case in cases if case["error"]]
        print(f"  {kind}: {json.dumps(kinds[kind], ensure_ascii=False)}", flush=True)
    return {
        "commit": commit(),
        "nearest": NEAREST,
        "samples": sum(kind["samples"] for kind in kinds.values()),
        "statuses": dict(sum((Counter(kind["statuses"]) for kind in kinds.values()), Counter())),
        "false": dict(sum((Counter(kind["false"]) for kind in kinds.values()), Counter())),
        "second_order": sum(kind["second_order"] for kind in kinds.values()),
        "kinds": kinds,
        "claims": _brief(claims),
        "errors": errors,
    }


def one(kind: str, number: int) -> dict[str, Any]:
    """Draw, project and judge one case; a projector that raises is told, not passed on."""
    case, error = draw(kind, number), None
    try:
        found = project(case)
    except Exception as cause:
        statuses, told, looked, loose = {"ERROR": len(case.u_hat)}, [], 0, 0
        error = f"{type(cause).__name__}: {cause}"
    else:
        seen = measure(case, found.u, found.multipliers)
        statuses = dict(Counter(Status(status).name for status in found.status.tolist()))
        told = [{"case": f"{kind}:{number}", **claim} for claim in false_claims(case, found, seen)]
        looked = int((found.converged & torch.isfinite(seen.curvature)).sum())
        loose = int((found.converged & seen.loose).sum())
    return {
        "case": f"{kind}:{number}", "laws": list(case.makes), "shape": list(case.shape), "samples": len(case.u_hat),
        "statuses": statuses, "second_order": looked, "loose": loose, "false": told, "error": error,
    }  # fmt: skip


def project(case: Case) -> Projection:
    """Ask snapfm."""
    example = {name: value[:1] for name, value in case.params.items()}
    projector = snapfm.Projector(case.laws, case.shape, example, tolerance=case.tolerance)
    warm = None if case.warm is None else projector(case.warm, case.params)
    return projector(case.u_hat, case.params, warm=warm)


def false_claims(case: Case, found: Projection, seen: Findings) -> list[dict[str, Any]]:
    """List every false claim of a batch, with what it was caught by."""
    claimed = found.status == Status.CONVERGED
    faults = {
        "violation": claimed & ~(seen.violation <= seen.allowed * _ROUNDING),
        "stationarity": claimed & ~(seen.stationarity <= _ROUNDING),
        "sign": claimed & ~(seen.sign <= _ROUNDING),
        "second order": claimed & ~(seen.curvature >= -NEAREST),
        "infeasible": (found.status == Status.INFEASIBLE) & seen.known,
        "nonfinite": (found.status != Status.NONFINITE) & ~torch.isfinite(case.u_hat).flatten(1).all(1),
    }
    weights = _joined(Judge(case), found.multipliers)
    told = []
    for name, where in faults.items():
        for i in torch.nonzero(where).flatten().tolist():
            fault, measured = _examine(name, case, i, found.u[i], weights[i], seen)
            if fault is not None:
                told.append(
                    {
                        "fault": fault,
                        "sample": i,
                        "laws": list(case.makes),
                        "shape": list(case.shape),
                        "iterations": int(found.iterations[i]),
                        "violation": float(seen.violation[i]),
                        "stationarity": float(seen.stationarity[i]) * NEAREST,
                        "sign": float(seen.sign[i]) * NEAREST,
                        "multiplier": float(_largest(weights[i][None])),
                        **measured,
                    }
                )
    return told


def _examine(
    fault: str, case: Case, sample: int, u: Tensor, multipliers: Tensor, seen: Findings
) -> tuple[str | None, dict[str, float]]:
    """Look at one suspect again: give the name of its fault, None if there is none, and what was measured."""
    small = u.numel() <= _DENSE
    if fault == "stationarity" and small:
        if fits_at_kink(case, sample, u, multipliers):
            return None, {}
        return ("multipliers" if fits_otherwise(case, sample, u) else fault), {}
    if fault == "second order":
        gain = nearer(case, sample, u, multipliers, seen.direction[sample])
        measured = {"curvature": float(seen.curvature[sample]), "nearer_by": gain}
        return (fault if gain > 0 else "second order, unproved"), measured
    if fault == "infeasible" and small:
        left = contradiction(case, sample, u)
        return ("infeasible, true nearby" if left <= _CANCELS else fault), {"contradiction": left}
    return fault, {}


def _sums(cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count what became of the cases of one kind."""
    return {
        "cases": len(cases),
        "samples": sum(case["samples"] for case in cases),
        "statuses": dict(sum((Counter(case["statuses"]) for case in cases), Counter())),
        "second_order": sum(case["second_order"] for case in cases),
        "loose": sum(case["loose"] for case in cases),
        "false": dict(Counter(claim["fault"] for case in cases for claim in case["false"])),
    }


def _brief(claims: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join the claims of one case and fault: all samples by number, the first few in full."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for claim in claims:
        found.setdefault((claim["case"], claim["fault"]), []).append(claim)
    shared = ("case", "fault", "laws", "shape")
    return [
        {name: some[0][name] for name in shared}
        | {"samples": [claim["sample"] for claim in some]}
        | {"first": [{k: v for k, v in claim.items() if k not in shared} for claim in some[:_SHOWN]]}
        for some in found.values()
    ]


def commit() -> str | None:
    """Name the commit that was audited, with a plus where files differ from it; None outside a repository."""
    here = Path(__file__).parent
    found = run_command(["git", "describe", "--always", "--dirty=+"], cwd=here, capture_output=True, text=True)
    return found.stdout.strip() or None
