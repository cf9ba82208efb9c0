"""Steady equations at every point of a plane: Darcy, Poisson, Helmholtz, and nonlinear ones."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.linalg import splu
from torch import Tensor

from benchmarks.any_law.case import FEW_SAMPLES, Setting, case
from benchmarks.any_law.draws import randn, smooth
from snapfm.laws import Bounds, Equality, Inequality, Params

LEAST_PERMEABILITY = 0.1


def edge(u: Tensor) -> Tensor:
    """All boundary values of a plane."""
    return torch.cat([u[0], u[-1], u[1:-1, 0], u[1:-1, -1]])


def laplacian(u: Tensor) -> Tensor:
    """The five-point Laplacian at the inner points of the unit square."""
    n = u.shape[-1] - 1
    ring = u[..., 2:, 1:-1] + u[..., :-2, 1:-1] + u[..., 1:-1, 2:] + u[..., 1:-1, :-2]
    return (ring - 4 * u[..., 1:-1, 1:-1]) * n**2


def _darcy_rows(u: Tensor, p: Params) -> Tensor:
    """−∇·(a∇u) − 1 at inner points; the permeability of a face is the mean of its two sides."""
    a, pressure = u[0], u[1]
    n = a.shape[-1] - 1
    across = 0.5 * (a[1:] + a[:-1]) * (pressure[1:] - pressure[:-1]) * n
    along = 0.5 * (a[:, 1:] + a[:, :-1]) * (pressure[:, 1:] - pressure[:, :-1]) * n
    return -(across[1:, 1:-1] - across[:-1, 1:-1]) * n - (along[1:-1, 1:] - along[1:-1, :-1]) * n - 1.0


def _darcy_pressure(a: np.ndarray) -> np.ndarray:
    """Solve the rows above for the pressure that belongs to one permeability field."""
    n = len(a) - 1
    inner = -np.ones(a.shape, int)
    inner[1:-1, 1:-1] = np.arange((n - 1) ** 2).reshape(n - 1, n - 1)
    x, y = np.nonzero(inner >= 0)
    here = inner[x, y]
    rows, columns, values = [], [], []
    for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        face = 0.5 * (a[x, y] + a[x + dx, y + dy]) * n**2
        there = inner[x + dx, y + dy]
        rows += [here, here[there >= 0]]
        columns += [here, there[there >= 0]]
        values += [face, -face[there >= 0]]
    shape = (len(x), len(x))
    matrix = coo_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=shape).tocsc()
    pressure = np.zeros_like(a)
    pressure[x, y] = splu(matrix).solve(np.ones(len(x)))
    return pressure


def _darcy_pair(samples: int, generator: torch.Generator, size: int) -> Tensor:
    a = torch.exp(0.5 * smooth(samples, (size, size), generator)) + LEAST_PERMEABILITY
    return torch.stack([a, torch.stack([torch.from_numpy(_darcy_pressure(one.numpy())) for one in a])], dim=1)


def _from_below(*limits: float) -> Tensor:
    """One lower limit per channel of a field of planes."""
    return torch.tensor(limits, dtype=torch.float64).reshape(-1, 1, 1)


@case(64, tiny=6, group="issue", channels=True)
def darcy(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Permeability and pressure together: −∇·(a∇u) = 1, zero pressure at the boundary, a ≥ 0.1."""
    laws = (
        Equality("darcy", _darcy_rows),
        Equality("dirichlet", lambda u, p: edge(u[1])),
        Bounds(lower=_from_below(LEAST_PERMEABILITY, -torch.inf)),
    )
    return Setting(laws, _darcy_pair(samples, generator, size), {})


@case(256, tiny=6, samples=FEW_SAMPLES, channels=True)
def darcy_large(samples: int, generator: torch.Generator, size: int) -> Setting:
    """The same on many points."""
    return darcy(samples, generator, size)


def _poisson_pair(samples: int, generator: torch.Generator, size: int) -> Tensor:
    bubble = torch.sin(torch.pi * torch.linspace(0, 1, size, dtype=torch.float64))
    u = smooth(samples, (size, size), generator) * bubble[:, None] * bubble
    u[:, 0] = u[:, -1] = u[:, :, 0] = u[:, :, -1] = 0.0  # the sine is not exactly zero at its end
    return u


@case(64, tiny=6, group="issue", channels=True)
def joint_poisson(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Field and source together: −Δu = f, u = 0 at the boundary."""
    u = _poisson_pair(samples, generator, size)
    source = torch.zeros_like(u)
    source[:, 1:-1, 1:-1] = -laplacian(u)
    laws = (
        Equality("poisson", lambda u, p: laplacian(u[0]) + u[1, 1:-1, 1:-1]),
        Equality("dirichlet", lambda u, p: edge(u[0])),
    )
    return Setting(laws, torch.stack([u, source], dim=1), {})


@case(64, tiny=6, group="issue", channels=True)
def joint_helmholtz(samples: int, generator: torch.Generator, size: int, wave: float = 12.0) -> Setting:
    """Field and source together: Δu + k²u = f, u = 0 at the boundary."""
    u = _poisson_pair(samples, generator, size)
    source = torch.zeros_like(u)
    source[:, 1:-1, 1:-1] = laplacian(u) + wave**2 * u[:, 1:-1, 1:-1]
    laws = (
        Equality("helmholtz", lambda u, p: laplacian(u[0]) + wave**2 * u[0, 1:-1, 1:-1] - u[1, 1:-1, 1:-1]),
        Equality("dirichlet", lambda u, p: edge(u[0])),
    )
    return Setting(laws, torch.stack([u, source], dim=1), {})


@case(256, tiny=6, samples=FEW_SAMPLES, channels=True)
def positive_poisson(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Field and source together on many points, both non-negative."""
    source = smooth(samples, (size, size), generator).square()
    u = torch.stack([torch.from_numpy(_poisson_solve(one.numpy())) for one in source])
    laws = (
        Equality("poisson", lambda u, p: laplacian(u[0]) + u[1, 1:-1, 1:-1]),
        Equality("dirichlet", lambda u, p: edge(u[0])),
        Bounds(lower=0.0),
    )
    return Setting(laws, torch.stack([u, source], dim=1), {})


def _poisson_solve(source: np.ndarray) -> np.ndarray:
    """Solve −Δu = f for the same five points by sine transforms, written as two small products."""
    n = len(source) - 1
    mode = np.arange(1, n)
    sines = np.sin(np.pi * np.outer(mode, mode) / n)
    size = 4 * n**2 * np.sin(np.pi * mode / (2 * n)) ** 2
    u = np.zeros_like(source)
    u[1:-1, 1:-1] = (2 / n) ** 2 * sines @ ((sines @ source[1:-1, 1:-1] @ sines) / (size[:, None] + size)) @ sines
    return u


@case(32, tiny=6, channels=True)
def helmholtz_medium(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Wave and medium together, a product: Δu + c u = f with f given, 50 ≤ c ≤ 300."""
    u = _poisson_pair(samples, generator, size)
    medium = 150 + 40 * smooth(samples, (size, size), generator).clamp(-2, 2)
    source = laplacian(u) + medium[:, 1:-1, 1:-1] * u[:, 1:-1, 1:-1]
    limits = torch.tensor([[-torch.inf, torch.inf], [50.0, 300.0]], dtype=torch.float64).reshape(2, 2, 1, 1)
    laws = (
        Equality("helmholtz", lambda u, p: laplacian(u[0]) + u[1, 1:-1, 1:-1] * u[0, 1:-1, 1:-1] - p["source"]),
        Equality("dirichlet", lambda u, p: edge(u[0])),
        Bounds(lower=limits[:, 0], upper=limits[:, 1]),
    )
    return Setting(laws, torch.stack([u, medium], dim=1), {"source": source})


@case(32, tiny=6, channels=True)
def mixed_darcy(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Permeability, pressure and both velocities: q = −k∇p on faces, ∇·q = f, k ≥ 0.05."""
    k = torch.exp(0.5 * smooth(samples, (size, size), generator))
    pressure = smooth(samples, (size, size), generator)

    def through(k: Tensor, pressure: Tensor, axis: int) -> Tensor:
        # periodic: face i lies between points i and i + 1
        mean = 0.5 * (k + torch.roll(k, -1, axis))
        return -mean * (torch.roll(pressure, -1, axis) - pressure) * k.shape[-1]

    def spread(x: Tensor, y: Tensor) -> Tensor:
        return (x - torch.roll(x, 1, -2) + y - torch.roll(y, 1, -1)) * x.shape[-1]

    x, y = through(k, pressure, -2), through(k, pressure, -1)
    laws = (
        Equality("velocity x", lambda u, p: u[2] - through(u[0], u[1], -2)),
        Equality("velocity y", lambda u, p: u[3] - through(u[0], u[1], -1)),
        Equality("balance", lambda u, p: spread(u[2], u[3]) - p["source"]),
        Bounds(lower=_from_below(0.05, -torch.inf, -torch.inf, -torch.inf)),
    )
    return Setting(laws, torch.stack([k, pressure, x, y], dim=1), {"source": spread(x, y)})


def _slopes(u: Tensor) -> tuple[Tensor, Tensor]:
    """Slopes at the centers of cells."""
    n = u.shape[-1] - 1
    x = 0.5 * (u[..., 1:, 1:] - u[..., :-1, 1:] + u[..., 1:, :-1] - u[..., :-1, :-1]) * n
    y = 0.5 * (u[..., 1:, 1:] - u[..., 1:, :-1] + u[..., :-1, 1:] - u[..., :-1, :-1]) * n
    return x, y


def _divergence(x: Tensor, y: Tensor) -> Tensor:
    """The divergence at inner points of fluxes at the centers of cells."""
    n = x.shape[-1]
    across = x[..., 1:, 1:] + x[..., 1:, :-1] - x[..., :-1, 1:] - x[..., :-1, :-1]
    along = y[..., 1:, 1:] + y[..., :-1, 1:] - y[..., 1:, :-1] - y[..., :-1, :-1]
    return 0.5 * (across + along) * n


def _p_laplacian(u: Tensor) -> Tensor:
    x, y = _slopes(u)
    strength = 1e-2 + x.square() + y.square()  # exponent 4, kept away from zero
    return _divergence(strength * x, strength * y)


def _minimal(u: Tensor) -> Tensor:
    x, y = _slopes(u)
    root = torch.sqrt(1.0 + x.square() + y.square())
    return _divergence(x / root, y / root)


@case(32, tiny=6)
def p_laplacian(samples: int, generator: torch.Generator, size: int) -> Setting:
    """∇·(|∇u|²∇u) = f with f and the boundary given."""
    u = 0.2 * smooth(samples, (size, size), generator)
    laws = (
        Equality("p-laplacian", lambda u, p: _p_laplacian(u) - p["source"]),
        Equality("boundary", lambda u, p: edge(u) - p["edge"]),
    )
    return Setting(laws, u, {"source": _p_laplacian(u), "edge": torch.stack([edge(one) for one in u])})


@case(32, tiny=6)
def minimal_surface(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A surface of given mean curvature over a given boundary."""
    u = 0.2 * smooth(samples, (size, size), generator)
    laws = (
        Equality("curvature", lambda u, p: _minimal(u) - p["curvature"]),
        Equality("boundary", lambda u, p: edge(u) - p["edge"]),
    )
    return Setting(laws, u, {"curvature": _minimal(u), "edge": torch.stack([edge(one) for one in u])})


@case(48, tiny=6)
def free_bratu(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Δu + 2 exp(u) = f with the boundary free: fewer rows than unknowns."""
    u = 0.5 * smooth(samples, (size, size), generator)

    def rows(u: Tensor) -> Tensor:
        return laplacian(u) + 2.0 * torch.exp(u[..., 1:-1, 1:-1])

    return Setting((Equality("bratu", lambda u, p: rows(u) - p["source"]),), u, {"source": rows(u)})


def _curvatures(u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    n = u.shape[-1] - 1
    middle = u[..., 1:-1, 1:-1]
    xx = (u[..., 2:, 1:-1] - 2 * middle + u[..., :-2, 1:-1]) * n**2
    yy = (u[..., 1:-1, 2:] - 2 * middle + u[..., 1:-1, :-2]) * n**2
    xy = (u[..., 2:, 2:] - u[..., 2:, :-2] - u[..., :-2, 2:] + u[..., :-2, :-2]) * n**2 / 4
    return xx, yy, xy


@case(24, tiny=6, small=1e-4, far=0.02)  # second differences make two per cent of noise far
def monge_ampere(samples: int, generator: torch.Generator, size: int) -> Setting:
    """det ∇²u = f for a convex u with the boundary given."""
    x = torch.linspace(-1, 1, size, dtype=torch.float64)
    u = (x[:, None].square() + x.square()) / 2 + 0.002 * smooth(samples, (size, size), generator)

    def rows(u: Tensor) -> Tensor:
        xx, yy, xy = _curvatures(u)
        return xx * yy - xy.square()

    laws = (
        Equality("monge-ampere", lambda u, p: rows(u) - p["density"]),
        Equality("boundary", lambda u, p: edge(u) - p["edge"]),
    )
    return Setting(laws, u, {"density": rows(u), "edge": torch.stack([edge(one) for one in u])})


@case(32, tiny=6)
def eikonal(samples: int, generator: torch.Generator, size: int) -> Setting:
    """|∇u|² = 1 in every cell."""
    x = torch.linspace(0, 1, size, dtype=torch.float64)
    angle = 2 * torch.pi * torch.rand(samples, 1, 1, generator=generator, dtype=torch.float64)
    u = torch.cos(angle) * x[:, None] + torch.sin(angle) * x

    def rows(u: Tensor, p: Params) -> Tensor:
        along, across = _slopes(u)
        return along.square() + across.square() - 1.0

    return Setting((Equality("eikonal", rows),), u, {})


@case(32, tiny=6)
def obstacle(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A membrane above an obstacle under a load: −Δu ≥ f, u ≥ ψ, zero at the boundary."""
    x = torch.linspace(-1, 1, size, dtype=torch.float64)
    below = 0.3 - 0.8 * (x[:, None].square() + x.square())
    bubble = (1 - x[:, None].square()) * (1 - x.square())
    bump = 1.0 + 0.2 * smooth(samples, (size, size), generator).clamp(-1, 1)
    u = 0.6 * bubble * bump
    slack = 0.1 * randn(samples, size - 2, size - 2, generator=generator).abs()
    laws = (
        Inequality("load", lambda u, p: laplacian(u) - p["load"]),
        Equality("dirichlet", edge_of),
        Bounds(lower=below),
    )
    return Setting(laws, u, {"load": laplacian(u) + slack})


def edge_of(u: Tensor, p: Params) -> Tensor:
    """The boundary, which is zero."""
    return edge(u)


@case(24, tiny=5, channels=True)
def elasticity(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Large displacements of a St. Venant–Kirchhoff sheet, clamped, under a given force."""
    x = torch.linspace(0, 1, size, dtype=torch.float64)
    bubble = (x * (1 - x))[:, None] * (x * (1 - x)) * 4
    u = 0.3 * bubble * torch.stack([smooth(samples, (size, size), generator) for _ in range(2)], dim=1)
    laws = (
        Equality("balance", lambda u, p: _elastic_force(u) - p["force"]),
        Equality("clamped", lambda u, p: torch.cat([edge(u[0]), edge(u[1])])),
    )
    return Setting(laws, u, {"force": _elastic_force(u)})


def _elastic_force(u: Tensor, stiff: float = 1.0, shear: float = 0.5) -> Tensor:
    """∇·P of the first Piola–Kirchhoff stress P = F(λ tr(E) I + 2μE), E = (FᵀF − I)/2, at inner points."""
    (ax, ay), (bx, by) = _slopes(u[..., 0, :, :]), _slopes(u[..., 1, :, :])
    f = ((1 + ax, ay), (bx, 1 + by))
    e = [[0.5 * (f[0][i] * f[0][j] + f[1][i] * f[1][j] - float(i == j)) for j in range(2)] for i in range(2)]
    trace = stiff * (e[0][0] + e[1][1])
    s = [[2 * shear * e[i][j] + (trace if i == j else 0.0) for j in range(2)] for i in range(2)]
    stress = [[f[i][0] * s[0][j] + f[i][1] * s[1][j] for j in range(2)] for i in range(2)]
    return torch.stack([_divergence(stress[i][0], stress[i][1]) for i in range(2)], dim=-3)
