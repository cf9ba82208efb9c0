"""Inputs far from the laws: chains, surfaces and transport, on which Newton's first attempt fails."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import snapfm
from snapfm.kernels import layout
from snapfm.solve.attempts import attempt, barrier, order
from snapfm.solve.attempts.barrier import BARRIER, SOFT_BARRIER
from snapfm.solve.attempts.penalty import PENALTY
from snapfm_bench.judge import measure


def chain(u, p):
    """Given distances to the next and the next but one of a chain of particles."""
    return torch.cat([((u[by:] - u[:-by]) ** 2).sum(-1) - p[f"d{by}"] for by in (1, 2)])


def bent(count: int, generator: torch.Generator) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    step = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    u = torch.cumsum(0.5 * torch.randn(count, 24, 3, generator=generator, dtype=torch.float64) + step, dim=1)
    return u, {f"d{by}": ((u[:, by:] - u[:, :-by]) ** 2).sum(-1) for by in (1, 2)}


def surface(u, p):
    """Mean curvature zero in the interior."""
    x, y = (u[2:, 1:-1] - u[:-2, 1:-1]) / 2, (u[1:-1, 2:] - u[1:-1, :-2]) / 2
    xx, yy = u[2:, 1:-1] - 2 * u[1:-1, 1:-1] + u[:-2, 1:-1], u[1:-1, 2:] - 2 * u[1:-1, 1:-1] + u[1:-1, :-2]
    xy = (u[2:, 2:] - u[2:, :-2] - u[:-2, 2:] + u[:-2, :-2]) / 4
    return (1 + y**2) * xx - 2 * x * y * xy + (1 + x**2) * yy


def checked(laws, given, params) -> torch.Tensor:
    """Project, and let the judge look at every claim; return which samples converged."""
    found = snapfm.Projector(laws, given.shape[1:], params)(given, params)
    judged = measure(laws, given, found.u, found.multipliers, params)
    assert bool((judged.violation[found.converged] <= 1e-8).all())
    assert bool((judged.stationarity[found.converged] <= 1e-6).all())
    return found.converged


def test_a_chain_of_particles_finds_its_distances():
    generator = torch.Generator().manual_seed(0)
    u, params = bent(16, generator)
    given = u + 1.5 * torch.randn(u.shape, generator=generator, dtype=torch.float64)
    assert checked([snapfm.Equality("chain", chain)], given, params).all()


def test_a_surface_of_noise_becomes_minimal():
    given = 2.0 * torch.randn(8, 12, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert checked([snapfm.Equality("surface", surface)], given, {}).all()


def test_transport_from_white_noise_with_free_boundaries():
    problem, generator = snapfm.problem("burgers-ic-mass-flux", flux_steps=30), torch.Generator().manual_seed(0)
    u, params = problem.truth(4, generator)
    noise = torch.randn(u.shape, generator=generator, dtype=torch.float64)
    assert checked(problem.laws, noise, params).all()


@pytest.mark.parametrize("other", [PENALTY, BARRIER, SOFT_BARRIER], ids=lambda other: other.name)
def test_either_way_alone_leads_to_the_laws(other, monkeypatch):
    monkeypatch.setattr(order, "ATTEMPTS", (other,))
    monkeypatch.setattr(order, "FIRST", 1)
    generator = torch.Generator().manual_seed(0)
    u, params = bent(8, generator)
    given = u + 0.2 * torch.randn(u.shape, generator=generator, dtype=torch.float64)
    assert checked([snapfm.Equality("chain", chain)], given, params).all()


def friedrichs(flux, u):
    return 0.5 * (u[2:] + u[:-2]) - 0.15 * (flux(u[2:]) - flux(u[:-2]))


def test_transport_with_an_inequality_in_every_cell_and_step():
    """Burgers' equation with its entropy condition, from far: active sets and barriers alone do not get there."""
    generator = torch.Generator().manual_seed(0)
    u = torch.where(torch.arange(32) < 16, 1.0, -0.2).double()
    slices = [u + 0.1 * torch.randn(4, 32, generator=generator, dtype=torch.float64)]
    for _ in range(9):
        inner = friedrichs(lambda u: 0.5 * u.square(), slices[-1].T).T
        slices.append(torch.cat([inner[:, :1], inner, inner[:, -1:]], dim=1))
    truth = torch.stack(slices, dim=-1)

    def rows(u, p):
        return u[1:-1, 1:] - friedrichs(lambda u: 0.5 * u.square(), u[:, :-1])

    def entropy(u, p):
        old, through = 0.5 * u[:, :-1].square(), u[:, :-1] ** 3 / 3
        return 0.5 * u[1:-1, 1:].square() - 0.5 * (old[2:] + old[:-2]) + 0.15 * (through[2:] - through[:-2])

    laws = [snapfm.Equality("burgers", rows), snapfm.Inequality("entropy", entropy)]
    given = truth + 0.3 * torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    assert checked(laws, given, {}).all()


def test_a_dam_breaks_over_shallow_water():
    """Depth has to stay positive, and slopes grow without bound where it does not."""
    generator = torch.Generator().manual_seed(0)

    def flux(u):
        return torch.stack([u[1], u[1].square() / u[0] + 0.5 * u[0].square()])

    def new(u):
        f = flux(u)
        return 0.5 * (u[:, 2:] + u[:, :-2]) - 0.2 * (f[:, 2:] - f[:, :-2])

    depth = torch.where(torch.arange(24) < 12, 1.0, 0.4).double()
    slices = [torch.stack([depth, 0.1 * depth])]
    for _ in range(9):
        inner = new(slices[-1])
        slices.append(torch.cat([inner[:, :1], inner, inner[:, -1:]], dim=1))
    truth = torch.stack(slices, dim=-1)[None]
    lower = torch.tensor([1e-3, -torch.inf], dtype=torch.float64).reshape(2, 1, 1)
    laws = [snapfm.Equality("water", lambda u, p: u[:, 1:-1, 1:] - new(u[..., :-1])), snapfm.Bounds(lower=lower)]
    given = truth + 0.2 * truth.square().mean((2, 3), keepdim=True).sqrt() * torch.randn(
        6, 2, 24, 10, generator=generator, dtype=torch.float64
    )
    assert checked(laws, given, {}).all()


GAMMA = 1.4


def pressure(u):
    density, momentum, energy = u
    return (GAMMA - 1) * (energy - 0.5 * momentum.square() / density)


def gas(u):
    velocity, p = u[1] / u[0], pressure(u)
    return torch.stack([u[1], u[1] * velocity + p, (u[2] + p) * velocity])


def tube(count: int, cells: int = 16, steps: int = 6):
    """Laws and true fields of a shock tube by Lax and Friedrichs: density and pressure stay positive."""

    def new(u):
        f = gas(u)
        return 0.5 * (u[:, 2:] + u[:, :-2]) - 0.15 * (f[:, 2:] - f[:, :-2])

    density = torch.where(torch.arange(cells) < cells // 2, 1.0, 0.25).double()
    slices = [torch.stack([density, 0.1 * density, 2.0 * density])]
    for _ in range(steps - 1):
        inner = new(slices[-1])
        slices.append(torch.cat([inner[:, :1], inner, inner[:, -1:]], dim=1))
    laws = [
        snapfm.Equality("gas", lambda u, p: u[:, 1:-1, 1:] - new(u[..., :-1])),
        snapfm.Inequality("density", lambda u, p: 1e-3 - u[0]),
        snapfm.Inequality("pressure", lambda u, p: 1e-3 - pressure(u)),
    ]
    return laws, torch.stack(slices, dim=-1).repeat(count, 1, 1, 1)


def off(truth, share, seed=0):
    """Add noise, relative to the size of each channel."""
    size = truth.square().mean((2, 3), keepdim=True).sqrt()
    generator = torch.Generator().manual_seed(seed)
    return truth + share * size * torch.randn(truth.shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("alone", [False, True], ids=["all attempts", "soft barrier"])
def test_a_gas_whose_density_and_pressure_are_negative_at_first(alone, monkeypatch):
    if alone:
        monkeypatch.setattr(order, "ATTEMPTS", (SOFT_BARRIER,))
    laws, truth = tube(6)
    given = off(truth, 0.3)
    assert (given[:, 0] < 0.0).any()
    assert (pressure(given.transpose(0, 1)) < 0.0).any()
    assert checked(laws, given, {}).all()


def test_a_soft_barrier_begins_inside_the_inequalities(monkeypatch):
    seen = []

    def watched(system, tiles, evaluate):
        inside = ~system.equality & (np.diff(system.gram.indptr) == 0)
        evaluate()
        before = tiles.by_lane(layout.RESIDUAL)[:, inside]
        move_inside(system, tiles, evaluate)
        evaluate()
        seen.append((before, tiles.by_lane(layout.RESIDUAL)[:, inside]))

    move_inside = barrier.move_inside
    monkeypatch.setattr(barrier, "move_inside", watched)
    monkeypatch.setattr(order, "ATTEMPTS", (SOFT_BARRIER,))
    laws, truth = tube(4)
    checked(laws, off(truth, 0.3), {})
    assert max(before.max(initial=-1.0) for before, _ in seen) > 0.0
    assert max(after.max(initial=-1.0) for _, after in seen) < 0.0


def test_an_eikonal_field_of_noise_by_a_soft_barrier_alone(monkeypatch):
    """Slopes of length one in every cell: the linear model of noise asks for steps across many cells."""
    monkeypatch.setattr(order, "ATTEMPTS", (SOFT_BARRIER,))
    x = torch.linspace(0, 1, 12, dtype=torch.float64)
    truth = (0.6 * x[:, None] + 0.8 * x).repeat(4, 1, 1, 1)

    def rows(u, p):
        u = 11.0 * u[0]
        along, across = (
            u[1:, 1:] - u[:-1, 1:] + u[1:, :-1] - u[:-1, :-1],
            u[1:, 1:] - u[1:, :-1] + u[:-1, 1:] - u[:-1, :-1],
        )
        return 0.25 * (along.square() + across.square()) - 1.0

    assert checked([snapfm.Equality("eikonal", rows)], off(truth, 0.3), {}).all()


def test_a_first_attempt_that_crawls_is_left_early(monkeypatch):
    first = []

    def watched(*given, **settings):
        ended = newton(*given, **settings)
        if not settings.get("filtered") and len(ended.iterations):
            first.append(ended.iterations.copy())
        return ended

    newton = attempt.newton
    monkeypatch.setattr(attempt, "newton", watched)
    problem, generator = snapfm.problem("burgers-ic-mass-flux", flux_steps=50), torch.Generator().manual_seed(0)
    u, params = problem.truth(4, generator)
    noise = torch.randn(u.shape, generator=generator, dtype=torch.float64)
    assert checked(problem.laws, noise, params).all()
    assert first[0].max() < 0.5 * order.FIRST


def order_of(*laws, shape, example=None) -> list[str]:
    """Name the attempts for the one part that laws are reduced to."""
    (part,) = snapfm.Projector(laws, shape, example).method.plan.systems
    return [one.name for one in order.order(part)]


EQUALITIES = [
    "falling penalty",
    "soft barrier",
    "restoration",
    "quadratic programs",
    "nearby start",
    "zero start",
    "regularized rows",
]
INEQUALITIES = [
    "barrier",
    "falling penalty",
    "soft barrier",
    "restoration",
    "quadratic programs",
    "nearby start",
    "zero start",
    "regularized rows",
]
SPHERE = snapfm.Equality("sphere", lambda u, p: (u**2 + u**3).sum(1) - 1.0)


def front(names: list[str], *first: str) -> list[str]:
    return [*first, *(name for name in names if name not in first)]


def test_the_order_of_attempts_follows_from_the_part():
    square = snapfm.Equality("square", lambda u, p: u[0] * u[1:] + u[1:] ** 3 - 1.0)
    ends = snapfm.Equality("ends", lambda u, p: u[0] ** 2 + u[1] ** 3 - 2.0)
    kinked = snapfm.Equality("kinked", lambda u, p: u.abs().sum(1) + (u**2).sum(1) - 1.0)
    gas = snapfm.Inequality("pressure", lambda u, p: u[:1] ** 2 / u[1:2] - u[2:] ** 2)
    dense = snapfm.Inequality("density", lambda u, p: 1e-3 - u[1])
    assert order_of(gas, dense, shape=(3, 5)) == front(INEQUALITIES, "soft barrier")
    assert order_of(SPHERE, shape=(2, 5)) == EQUALITIES
    assert order_of(SPHERE, snapfm.Bounds(lower=-1.0), shape=(2, 5)) == INEQUALITIES
    assert order_of(square, ends, shape=(4,)) == front(EQUALITIES, "restoration", "quadratic programs")
    assert order_of(kinked, shape=(2, 5)) == front(EQUALITIES, "kinks", "kinks from zero")
    least = snapfm.Equality(
        "least", lambda u, p: torch.linalg.eigvalsh(u + u.T)[:1] - 1.0, pattern=([0] * 9, list(range(9)))
    )
    assert order_of(least, shape=(3, 3)) == front(EQUALITIES, "quadratic programs")


def test_every_name_is_of_one_attempt():
    assert {one.name: one.run for one in order.ATTEMPTS}.items() == {(one.name, one.run) for one in order.ATTEMPTS}
