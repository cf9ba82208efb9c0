"""A hundred thousand projections of many kinds, every claim judged from outside: how many are false, and which.

A case is a set of laws with a batch of fields, drawn from its kind and number alone, so that a false claim can be looked at
again by itself: `python -m benchmarks certificates --only KIND:NUMBER`. The judge shares no code with the projector: the laws'
residuals in float64 and torch's derivatives of them. What it asks of a sample called CONVERGED, S being max(1, ‖û‖∞):

- violation: the largest |h|, max(g, 0) or bound excess of the field as returned is within the tolerance;
- stationarity: ‖u − clip(u − r, bounds)‖∞ ≤ 1e-6 S with r = u − û + Jᵀλ;
- sign: no inequality with λ < 0 pushes, |λ|‖∇g‖∞ > 1e-6 S; nor does one that is slack, with λ|g| > 1e-6 S² besides;
- second order: W = I + Σλ∇²h has no eigenvalue below −1e-6 max(1, ‖W‖) along the null space of what holds u (equalities,
  inequalities with λ > 0, unknowns at bounds). A claim is counted false when a lawful and nearer field is found that way.

A float32 answer is allowed what rounding it may cost, to first order: ε Σ|∂h||u| and ε Σ|W||u|. INFEASIBLE is counted false where
a field is known that obeys the laws. Second order is left out, and counted, for fields of more than 64 unknowns.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any
from zlib import crc32

import torch
from scipy.optimize import nnls
from torch import Tensor

import snapfm
from snapfm import Bounds, Equality, Inequality, Projection, Status
from snapfm.laws import Law, Params
from snapfm.problems import names

COUNT = 100_000
NEAREST = 1e-6  # asked of stationarity, signs and curvature
_ROUNDING = 1.0 + 1e-6  # judge and projector add up the same rows in another order
_DENSE = 64  # unknowns up to which W and its null space are formed
_RANK = 1e-10  # singular values of unit rows below it count as none
_AT_BOUND = 1e-7  # of S: an unknown so near to its bound does not move in the second-order check
_AT_KINK = 1e-5  # of S: stationarity asked where slopes jump; they are taken 1e-8 S away
_LOCAL = 1e-3  # of ‖J‖‖h₊‖: slopes of the violation below it count as none
_INF = math.inf

Rows = Callable[[Tensor, Tensor], Tensor]  # field (n,) and weights (rows, n) to rows


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

SMOOTH: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
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
SLOW: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {  # no scalar form: projected sample by sample
    "arctan": lambda u, w, at: torch.atan(w @ u) * u[at[0]],
    "logsumexp": lambda u, w, at: torch.logsumexp(w * u, 1),
    "softplus": lambda u, w, at: w @ torch.nn.functional.softplus(u),
    "erf": lambda u, w, at: torch.erf(w @ u) + u[at[0]] ** 2,
}
KINKED: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "abs": lambda u, w, at: w @ u.abs(),
    "relu": lambda u, w, at: w @ torch.relu(u) + 0.1 * (w @ u),
    "maximum": lambda u, w, at: torch.maximum(u[at[0]], u[at[1]]) + 0.1 * (w @ u),
    "minimum": lambda u, w, at: torch.minimum(u[at[0]], u[at[1]]) * u[at[2]],
    "clamp": lambda u, w, at: w @ u.clamp(-0.5, 0.5) + u[at[0]],
    "where": lambda u, w, at: w @ torch.where(u > 0, u**2, 0.5 * u),
    "split": lambda u, w, at: w @ (u.clamp(min=0.0) ** 2 - u),
}
DOMAIN: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {  # of positive fields only
    "logarithm": lambda u, w, at: w @ torch.log(u),
    "square root": lambda u, w, at: w @ torch.sqrt(u),
    "inverse": lambda u, w, at: w @ (1.0 / u),
    "entropy": lambda u, w, at: w.abs() @ (u * torch.log(u)),
    "power": lambda u, w, at: w @ u**1.5,
}
FLAT = ("quadratic", "saddle", "triple", "cubic", "quartic", "log", "bell", "norm")  # zero slope where u = 0


def draw(kind: str, number: int) -> Case:
    """Draw one case; all of it follows from its kind and number."""
    seed = (crc32(kind.encode()) << 24) + number
    return KINDS[kind](Draws(torch.Generator().manual_seed(seed)))


def _rows(draws: Draws, unknowns: int, make: str, count: int | None = None) -> tuple[int, Rows]:
    """Choose a few rows of one make: their number, and the function of field and weights."""
    count = draws.whole(1, 4) if count is None else count
    at = torch.randint(unknowns, (3, count), generator=draws.generator)
    function = (SMOOTH | KINKED | SLOW | DOMAIN)[make]
    return count, lambda u, w: function(u.flatten(), w, at)


def _law(
    draws: Draws, name: str, make: str, fields: Tensor, kind: type[Equality] | type[Inequality],
    *, scale: float = 1.0, units: float = 1.0, count: int | None = None,
) -> tuple[Law, dict[str, Tensor]]:  # fmt: skip
    """Make a law that every field (b, *shape) obeys, by params of its own; weights are shared or each sample's."""
    batch, unknowns = len(fields), fields[0].numel()
    count, rows = _rows(draws, unknowns, make, count)
    own = bool(draws.chance(0.3))
    weight = draws.normal(batch if own else 1, count, unknowns) * draws.chance(0.4, count, unknowns)
    shared = weight[0]

    def value(u: Tensor, w: Tensor) -> Tensor:
        return scale * rows(u / units, w)

    target = torch.stack([value(one, weight[i if own else 0]) for i, one in enumerate(fields)])
    if kind is Inequality:  # half of the rows hold with equality there
        target = target + scale * draws.uniform(batch, count) * draws.chance(0.5, batch, count)
    params = {name: target} | ({f"{name} weights": weight} if own else {})

    def residual(u: Tensor, p: Params) -> Tensor:
        return value(u, p[f"{name} weights"] if own else shared) - p[name]

    return kind(name, residual), params


def _feasible(
    draws: Draws, makes: Sequence[str] = tuple(SMOOTH), *, shapes: Sequence[tuple[int, ...]] = SHAPES, units: float = 1.0,
    equalities: tuple[int, int] = (1, 4), inequalities: tuple[int, int] = (0, 3), bounds: float = 0.5,
    scales: tuple[int, int] = (0, 1), batch: int | None = None, center: float = 1.0,
    positive: bool = False,
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
    laws, used, params = [], [], {}
    for kind, counts in ((Equality, equalities), (Inequality, inequalities)):
        for k in range(draws.whole(*counts)):
            name, make = f"{kind.__name__} {k}", draws.of(makes)
            law, own = _law(draws, name, make, known, kind, scale=10.0 ** draws.whole(*scales), units=units)
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
        tilt = 10.0 ** -draws.whole(5, 13) * draws.normal(*case.shape) if how == "almost" else torch.zeros(case.shape).double()
        name = f"{how} {k}"
        first = (tilt * case.known).flatten(1).sum(1)

        def residual(u: Tensor, p: Params, law: Any = law, factor: float = factor, tilt: Tensor = tilt, name: str = name,
                     how: str = how) -> Tensor:  # fmt: skip
            value = factor * law.residual(u, p) + (tilt * u).sum() - p[name]
            return value + value**2 if how == "squared" else value.sum() if how == "summed" else value

        laws.append(type(law)(name, residual))
        params[name] = first
        makes.append(f"{how} {case.makes[k]}")
    return replace(case, laws=tuple(laws), params=params, makes=tuple(makes))


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
        "two totals": (Equality("total", lambda u, p: u.sum() - total), Equality("other", lambda u, p: u.sum() - total - gap)),
        "two squares": (Equality("square", lambda u, p: (u**2).sum() - 1.0), Equality("other", lambda u, p: (u**2).sum() - 1.0 - gap)),
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
    return replace(case, laws=(*case.laws, *ways[way]), makes=(*case.makes, f"{way}, {gap:g}"), known=None)


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
    return _feasible(draws, (*SLOW, "affine", "quadratic"), shapes=((2,), (3,), (2, 3)), equalities=(1, 3), batch=draws.of((1, 2, 5)))


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


def _physics(draws: Draws, sizes: Sequence[tuple[int, int]] = ((6, 5), (8, 8), (5, 12)), batches: Sequence[int] = (16, 33, 64)) -> Case:
    name, settings = draws.of(SETTINGS)
    nx, nt = draws.of(sizes)
    waves = name.startswith("navier")
    grid = {"size": 4 if nx < 20 else nx // 6, "nt": 4 if nx < 20 else nt // 2, "resolution": 16 if nx < 20 else 2 * (nx // 6)} if waves else {"nx": nx, "nt": nt}
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


KINDS: dict[str, Callable[[Draws], Case]] = {
    "random": _random,
    "curved": _curved,
    "square": _square,
    "repeated": _repeated,
    "scaled": _scaled,
    "units": _units,
    "lawful": _lawful,
    "stationary": _stationary,
    "kinked": _kinked,
    "contradictory": _contradictory,
    "nonfinite": _nonfinite,
    "simplex": _simplex,
    "warm": _warm,
    "single": _single,
    "domain": _domain,
    "slow": _slow,
    "physics": _physics,
    "large": _large,
}  # fmt: skip


# The judge


@dataclass(frozen=True)
class Findings:
    """What the judge measures on a batch, (b,) each; infinite where something is not a number."""

    violation: Tensor
    allowed: Tensor  # of violation: the tolerance, and in float32 what rounding costs
    stationarity: Tensor  # relative to what is allowed
    sign: Tensor  # likewise
    curvature: Tensor  # smallest eigenvalue of W where u is free to move, relative to max(1, ‖W‖); +inf where not looked at
    direction: Tensor  # (b, n): of that eigenvalue
    looked: Tensor  # bool: second order was looked at
    obeyed: Tensor  # bool: the known field obeys
    descent: Tensor  # of ‖h₊‖² where u is free to move, relative to ‖J‖‖h₊‖: small where INFEASIBLE is true nearby


class Judge:
    """The laws of a case as functions of one flat field, and their derivatives by torch alone."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.rows = [law for law in case.laws if not isinstance(law, Bounds)]
        self.u_hat = case.u_hat.double().flatten(1)
        self.params = {name: value.double() for name, value in case.params.items()}
        self.lower, self.upper = _limits(case)
        self.size = self.u_hat.abs().nan_to_num(_INF).amax(1).clamp(min=1.0)
        self.equality = torch.cat(
            [torch.full((self._one(law).numel(),), isinstance(law, Equality)) for law in self.rows] or [torch.ones(0).bool()]
        )

    def _one(self, law: Any) -> Tensor:
        return law.residual(self.u_hat[0].view(self.case.shape), {k: v[0] for k, v in self.params.items()})

    def residual(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate all rows at one flat field."""
        parts = [law.residual(u.view(self.case.shape), params).reshape(-1) for law in self.rows]
        return torch.cat(parts) if parts else u.new_zeros(0)

    def residuals(self, u: Tensor) -> Tensor:
        """Evaluate all rows at a batch: (b, m)."""
        return torch.func.vmap(self.residual)(u, self.params)

    def violation(self, u: Tensor, value: Tensor | None = None) -> Tensor:
        """Measure what is broken most at a batch (b, n): (b,)."""
        value = self.residuals(u) if value is None else value
        broken = torch.where(self.equality, value.abs(), value.clamp(min=0.0))
        excess = torch.maximum(u - self.upper, self.lower - u).clamp(min=0.0)
        return torch.cat([broken, excess], 1).nan_to_num(_INF, _INF, _INF).amax(1)

    def jacobian(self, u: Tensor) -> Tensor:
        """Differentiate all rows: (b, m, n)."""
        return torch.func.vmap(torch.func.jacrev(self.residual))(u, self.params)

    def hessian(self, u: Tensor, multipliers: Tensor) -> Tensor:
        """Form W = I + Σλ∇²h: (b, n, n)."""
        def weighted(u: Tensor, params: Params, weight: Tensor) -> Tensor:
            return 0.5 * (u * u).sum() + weight @ self.residual(u, params)

        return torch.func.vmap(torch.func.jacrev(torch.func.grad(weighted)))(u, self.params, multipliers)

    def pull(self, u: Tensor, multipliers: Tensor) -> Tensor:
        """Form Jᵀλ by one reverse pass: (b, n)."""
        def weighted(u: Tensor, params: Params, weight: Tensor) -> Tensor:
            return weight @ self.residual(u, params) + 0.0 * u.sum()

        return torch.func.vmap(torch.func.grad(weighted))(u, self.params, multipliers)


def _limits(case: Case) -> tuple[Tensor, Tensor]:
    """Gather all bounds, flat."""
    lower, upper = torch.full(case.shape, -_INF).double(), torch.full(case.shape, _INF).double()
    for law in case.laws:
        if isinstance(law, Bounds):
            lower = torch.maximum(lower, torch.as_tensor(-_INF if law.lower is None else law.lower).double())
            upper = torch.minimum(upper, torch.as_tensor(_INF if law.upper is None else law.upper).double())
    return lower.flatten(), upper.flatten()


def measure(case: Case, answer: Tensor, multipliers: dict[str, Tensor]) -> Findings:
    """Measure answers (b, *shape) with multipliers (b, rows) by law."""
    judge, u = Judge(case), answer.detach().double().flatten(1)
    batch, unknowns = u.shape
    weights = torch.cat([u.new_zeros(batch, 0), *(multipliers[law.name].double() for law in judge.rows)], 1)
    value = judge.residuals(u)
    rest = u - judge.u_hat + judge.pull(u, weights)
    rest = torch.minimum(torch.maximum(rest, u - judge.upper), u - judge.lower)
    allowed, rounding = torch.full_like(judge.size, case.tolerance), 0.0
    inequality = ~judge.equality
    dense = unknowns <= _DENSE
    curvature, direction = torch.full_like(judge.size, _INF), torch.zeros_like(u)
    push = weights.abs()
    if dense:
        jacobian, hessian = judge.jacobian(u), judge.hessian(u, weights)
        push = push * jacobian.abs().amax(2) if unknowns else push
        if answer.dtype == torch.float32:
            epsilon = torch.finfo(torch.float32).eps
            if value.shape[1]:
                allowed = allowed + epsilon * (jacobian.abs() @ u.abs()[..., None]).amax((1, 2)).nan_to_num(0.0, 0.0)
            rounding = epsilon * (hessian.abs() @ u.abs()[..., None]).amax((1, 2)).nan_to_num(0.0, 0.0)
        curvature, direction = _second_order(judge, u, weights, jacobian, hessian, rest)
    slack = torch.minimum(push, (weights * value).abs() / judge.size[:, None]) * (value < -case.tolerance)
    wrong = torch.where(weights < 0, push, slack)[:, inequality]
    nearest = NEAREST * judge.size + rounding
    known = case.known
    return Findings(
        violation=judge.violation(u, value),
        allowed=allowed,
        stationarity=_largest(rest) / nearest,
        sign=_largest(wrong) / nearest,
        curvature=curvature,
        direction=direction,
        looked=torch.full((batch,), dense),
        obeyed=torch.zeros(batch).bool() if known is None else judge.violation(known.flatten(1)) <= case.tolerance,
        descent=_descent(judge, u, value),
    )


def _descent(judge: Judge, u: Tensor, value: Tensor) -> Tensor:
    """Measure how steeply ‖h₊‖²/2 falls within the bounds, relative to the laws' own slopes."""
    broken = torch.where(judge.equality, value, value.clamp(min=0.0))
    slope = judge.pull(u, broken)
    slope = torch.where((slope > 0) & (u <= judge.lower) | (slope < 0) & (u >= judge.upper), 0.0, slope)
    random = torch.Generator().manual_seed(0)
    sizes = [judge.pull(u, torch.randn(value.shape, generator=random, dtype=torch.float64)).norm(dim=1) for _ in range(8)]
    return slope.norm(dim=1) / (torch.stack(sizes).amax(0) * broken.norm(dim=1)).clamp(min=1e-300)


def fits_otherwise(case: Case, sample: int, u: Tensor) -> bool:
    """Say if some multipliers make u stationary, though those that came with it do not."""
    judge, flat = Judge(_alone(case, sample)), u.double().flatten()
    value, slopes = judge.residuals(flat[None])[0], judge.jacobian(flat[None])[0]
    slopes = slopes[judge.equality | (value >= -case.tolerance)]
    equality = judge.equality[judge.equality | (value >= -case.tolerance)]
    columns = torch.cat([slopes, -slopes[equality], _walls(judge, flat, case.tolerance)])
    if not bool(torch.isfinite(columns).all() & torch.isfinite(judge.u_hat).all()):
        return False
    columns = columns / columns.norm(dim=1, keepdim=True).clamp(min=1e-300)
    found, _ = nnls(columns.T.numpy(), (judge.u_hat[0] - flat).numpy())
    left = flat - judge.u_hat[0] + columns.T @ torch.from_numpy(found)
    return bool(left.abs().max() <= NEAREST * judge.size[0])


def _walls(judge: Judge, flat: Tensor, tolerance: float) -> Tensor:
    """List the directions in which the bounds that u is at may push, as rows."""
    eye = torch.eye(flat.numel()).double()
    return torch.cat([-eye[flat - judge.lower <= tolerance], eye[judge.upper - flat <= tolerance]])


def fits_at_kink(case: Case, sample: int, u: Tensor, multipliers: Tensor) -> bool:
    """Say if slopes taken around u, mixed, make u stationary: at a kink torch's own is only one of many.

    Clarke's condition: 0 lies in the convex hull of u − û + Jᵀλ over the slopes J nearby, bounds pushing as they may.
    """
    judge = Judge(_alone(case, sample))
    random, flat, count = torch.Generator().manual_seed(0), u.double().flatten(), 64
    size = float(judge.size)
    points = flat + 1e-8 * size * torch.randn(count, flat.numel(), generator=random, dtype=torch.float64)
    judge.params = {name: value.expand(count, *value.shape[1:]) for name, value in judge.params.items()}
    pulls = flat - judge.u_hat[0] + judge.pull(points, multipliers.expand(count, -1))
    walls = _walls(judge, flat, case.tolerance)
    columns = torch.cat([pulls, walls]).T
    share = torch.cat([torch.ones(count), torch.zeros(len(walls))]).double()[None]
    if not bool(torch.isfinite(columns).all()):
        return False
    mixed, _ = nnls(torch.cat([columns, size * share]).numpy(), torch.cat([0.0 * flat, torch.tensor([size]).double()]).numpy())
    left = columns @ torch.from_numpy(mixed)
    return bool(left.abs().max() <= _AT_KINK * size) and abs(float(share @ torch.from_numpy(mixed)) - 1.0) <= _AT_KINK


def _alone(case: Case, sample: int) -> Case:
    """Give one sample of a case as a batch of one."""
    only = slice(sample, sample + 1)
    return replace(case, params={name: value[only] for name, value in case.params.items()}, u_hat=case.u_hat[only])


def _largest(value: Tensor) -> Tensor:
    """Give each sample's largest entry; NaN counts as infinite, so that it cannot hide behind a maximum."""
    return value.abs().nan_to_num(_INF, _INF).amax(1) if value.shape[1] else value.new_zeros(len(value))


def _second_order(
    judge: Judge, u: Tensor, weights: Tensor, jacobian: Tensor, hessian: Tensor, rest: Tensor
) -> tuple[Tensor, Tensor]:
    """Find the smallest eigenvalue of W, relative to max(1, ‖W‖), along the null space of what holds u; and its direction."""
    finite = torch.isfinite(hessian).all((1, 2)) & torch.isfinite(jacobian).all((1, 2))
    hessian, jacobian = hessian.where(finite[:, None, None], 0.0), jacobian.where(finite[:, None, None], 0.0)
    held = judge.equality | (weights > 0)
    size = jacobian.norm(dim=2, keepdim=True)
    unit = torch.where(size > 0, jacobian / size.clamp(min=1e-300), 0.0) * held[..., None]
    near = _AT_BOUND * judge.size[:, None]
    fixed = torch.diag_embed(((u - judge.lower <= near) | (judge.upper - u <= near)).double())
    _, values, basis = torch.linalg.svd(torch.cat([unit, fixed], 1), full_matrices=False)
    basis = basis * (values > _RANK)[..., None]
    spanned = basis.mT @ basis
    free = torch.eye(u.shape[1]).double() - spanned
    norm = torch.linalg.matrix_norm(hessian, 2).clamp(min=1.0)
    inside = free @ hessian @ free + 2.0 * norm[:, None, None] * spanned
    values, vectors = torch.linalg.eigh(0.5 * (inside + inside.mT))
    return torch.where(finite, values[:, 0] / norm, _INF), vectors[:, :, 0]


def nearer(case: Case, sample: int, u: Tensor, multipliers: Tensor, direction: Tensor) -> float:
    """Walk from u both ways, back onto the laws by Gauss–Newton, and say how much nearer to û one gets; 0 if not.

    A field found so is a proof: it obeys, and no convergence to u can call u nearest.
    """
    judge, best = Judge(_alone(case, sample)), 0.0
    start, u_hat = u.double().flatten()[None], judge.u_hat
    held = judge.equality | (multipliers > 0)
    here = float((start - u_hat).square().sum())
    price = 4.0 * float(multipliers.abs().sum())
    length, broken_here = float(judge.size), float(judge.violation(start))
    for step in (1e-3, -1e-3, 3e-3, -3e-3, 1e-2, -1e-2, 3e-2, -3e-2):
        point = start + step * length * direction
        for _ in range(30):
            point = point.clamp(judge.lower, judge.upper)
            value = judge.residuals(point)
            broken = torch.where(held, value, value.clamp(min=0.0))
            if not bool(torch.isfinite(broken).all()) or float(broken.abs().max()) <= 1e-4 * case.tolerance:
                break
            inner = ((point > judge.lower) & (point < judge.upper)).double()
            matrix = judge.jacobian(point)[0] * (broken != 0).double().T * inner
            point = point - torch.linalg.lstsq(matrix, broken.T, driver="gelsd").solution.T
        broken_there = float(judge.violation(point))
        if broken_there <= case.tolerance and float((point - start).norm()) <= 0.1 * length:
            gain = here - float((point - u_hat).square().sum())
            least = price * (broken_here + broken_there) + 1e-12 * max(1.0, here)
            best = max(best, gain if gain > least else 0.0)
    return best


# The audit


@dataclass
class Tally:
    """Counts of one kind of case."""

    samples: int = 0
    cases: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    looked: int = 0
    not_looked: int = 0
    seconds: float = 0.0


def project(case: Case) -> Projection:
    """Ask snapfm."""
    projector = snapfm.Projector(case.laws, case.shape, {k: v[:1] for k, v in case.params.items()}, tolerance=case.tolerance)
    warm = None if case.warm is None else projector(case.warm, case.params)
    return projector(case.u_hat, case.params, warm=warm)


def false_claims(case: Case, found: Projection) -> tuple[list[dict[str, Any]], Findings]:
    """List every false claim of a batch, with what it was caught by."""
    seen = measure(case, found.u, found.multipliers)
    claimed = found.status == Status.CONVERGED
    faults = {
        "violation": claimed & ~(seen.violation <= seen.allowed * _ROUNDING),
        "stationarity": claimed & ~(seen.stationarity <= _ROUNDING),
        "sign": claimed & ~(seen.sign <= _ROUNDING),
        "second order": claimed & ~(seen.curvature >= -NEAREST),
        "infeasible": (found.status == Status.INFEASIBLE) & seen.obeyed,
    }
    told = []
    for fault, where in faults.items():
        for i in torch.nonzero(where).flatten().tolist():
            weights = torch.cat([torch.zeros(0), *(v[i].flatten().double() for v in found.multipliers.values())])
            entry = {
                "fault": fault, "sample": i, "laws": list(case.makes), "shape": list(case.shape),
                "status": Status(int(found.status[i])).name, "iterations": int(found.iterations[i]),
                "violation": float(seen.violation[i]), "stationarity": float(seen.stationarity[i]) * NEAREST,
                "sign": float(seen.sign[i]) * NEAREST, "curvature": float(seen.curvature[i]),
                "multiplier": float(weights.abs().max()) if len(weights) else 0.0,
            }  # fmt: skip
            if fault == "infeasible":
                entry["descent"] = float(seen.descent[i])
                entry["fault"] = "infeasible, true nearby" if entry["descent"] <= _LOCAL else "infeasible"
            if fault == "stationarity":
                if fits_at_kink(case, i, found.u[i], weights):
                    continue
                entry["fault"] = "multipliers" if seen.looked[i] and fits_otherwise(case, i, found.u[i]) else fault
            if fault == "second order":
                entry["nearer_by"] = nearer(case, i, found.u[i], weights, seen.direction[i])
                entry["fault"] = fault if entry["nearer_by"] > 0 else "second order, unproved"
            told.append(entry)
    return told, seen


def one(kind: str, number: int) -> dict[str, Any]:
    """Project and judge a single case, as the audit does."""
    case = draw(kind, number)
    began = perf_counter()
    found = project(case)
    seconds = perf_counter() - began
    told, seen = false_claims(case, found)
    converged = found.converged
    return {
        "case": f"{kind}:{number}", "samples": len(case.u_hat), "laws": list(case.makes), "seconds": seconds,
        "statuses": dict(Counter(Status(s).name for s in found.status.tolist())),
        "looked": int((seen.looked & converged).sum()), "not_looked": int((~seen.looked & converged).sum()),
        "false": [{"case": f"{kind}:{number}", **entry} for entry in told],
    }  # fmt: skip
