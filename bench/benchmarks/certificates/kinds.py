"""What is projected: cases of nineteen kinds, each a set of laws with a batch of fields, drawn from its kind and number alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

import snapfm
from snapfm import Bounds, Equality, Inequality
from snapfm.laws import Law, Params
from snapfm_bench.problems import names

DENSE = 64  # unknowns up to which the judge forms W and its null space

Rows = Callable[[Tensor, Tensor, Tensor], Tensor]  # of a field (n,), weights (rows, n) and places (3, rows)


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
    """As many rows as unknowns or more: the laws leave no freedom, or are redundant."""
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
    """Laws that are symmetric in unknowns and signs, with û and start of the same symmetry: nothing moves off a saddle."""
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
    kind = draws.of([key for key in inputs if key != "float32" or truth[0].numel() <= DENSE])
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
