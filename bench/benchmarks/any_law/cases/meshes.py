"""Fields on triangles and on grids of more than one unknown: finite elements, a driven cavity, waves, Maxwell's equations."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.sparse import coo_array, diags_array, eye_array, kron
from scipy.sparse.linalg import splu
from scipy.spatial import Delaunay
from torch import Tensor

from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import randn, smooth
from snapfm.laws import Bounds, Equality, Inequality, Params

_ROUNDS = 60  # of the fixed point of a conductivity: u² stays small
_NEWTON = 12  # steps for a flow at a low Reynolds number


class _Mesh:
    """A triangulation of the unit disc, its linear elements, and their stiffness applied to nodal values."""

    def __init__(self, nodes: int) -> None:
        rng = np.random.default_rng(31)
        rim = max(4, int(1.8 * nodes**0.5))
        turn = 2 * math.pi * np.arange(rim) / rim
        k = np.arange(nodes - rim) + 0.5  # a spiral of even density, a little shaken
        spiral = (1.0 - 1.2 / rim) * np.sqrt(k / len(k))[:, None] * np.stack([np.cos(2.4 * k), np.sin(2.4 * k)], axis=1)
        spiral = spiral * (1.0 - 0.02 * rng.random((len(k), 1)))
        place = np.concatenate([np.stack([np.cos(turn), np.sin(turn)], axis=1), spiral])
        self.rim, self.place = rim, torch.from_numpy(place)
        self.triangles = torch.from_numpy(Delaunay(place).simplices.astype(np.int64))
        corner = self.place[self.triangles]
        one, two = corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0]
        double = one[:, 0] * two[:, 1] - one[:, 1] * two[:, 0]
        across = torch.roll(corner, -2, 1) - torch.roll(corner, -1, 1)
        slopes = torch.stack([-across[..., 1], across[..., 0]], dim=-1) / double[:, None, None]
        self.local = 0.5 * double.abs()[:, None, None] * (slopes @ slopes.transpose(1, 2))
        self.mass = self.summed((double.abs() / 6.0)[:, None].expand(-1, 3))

    def summed(self, parts: Tensor) -> Tensor:
        """Add what triangles give to their corners: (…, triangles, 3) to (…, nodes)."""
        none = parts.new_zeros(*parts.shape[:-2], len(self.place))
        return none.index_add(-1, self.triangles.flatten(), parts.flatten(-2))

    def balance(self, conductivity: Tensor, u: Tensor) -> Tensor:
        """−∇·(k∇u) tested at inner nodes: k is the mean of its values at the corners."""
        k = conductivity[..., self.triangles].mean(-1)
        flux = torch.einsum("tij,...tj->...ti", self.local, u[..., self.triangles])
        return self.summed(k[..., None] * flux)[..., self.rim :]

    def solved(self, conductivity: Tensor, source: Tensor | float = 1.0) -> Tensor:
        """Solve −∇·(k∇u) = f for one field k, the source lumped to nodes."""
        k, corners = conductivity[self.triangles].mean(-1), self.triangles.numpy()
        values = (k[:, None, None] * self.local).numpy().ravel()
        places = np.repeat(corners, 3, axis=1).ravel(), np.tile(corners, 3).ravel()
        inner = coo_array((values, places)).tocsc()[self.rim :, self.rim :]
        u = torch.zeros_like(conductivity)
        u[self.rim :] = torch.from_numpy(splu(inner).solve((source * self.mass)[self.rim :].numpy()))
        return u


@case(1504, tiny=24, group="issue", channels=True)
def diffusion(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A material and its temperature on triangles: −∇·(k(1 + u²)∇u) = 1, no temperature at the rim, k ≥ 0.2."""
    mesh = _Mesh(size)
    inner = mesh.mass[mesh.rim :]
    wave = 1.5 * randn(samples, 2, generator=generator)
    k = 0.6 + 0.3 * torch.sin(wave @ mesh.place.T)
    fields = []
    for own in k:
        u = torch.zeros_like(own)
        for _ in range(_ROUNDS):
            u = mesh.solved(own * (1.0 + u.square()))
        fields.append(torch.stack([own, u]))
    laws = (
        Equality("diffusion", lambda u, p: mesh.balance(u[0] * (1.0 + u[1].square()), u[1]) - inner),
        Equality("rim", lambda u, p: u[1, : mesh.rim]),
        Bounds(lower=torch.tensor([[0.2], [-torch.inf]], dtype=torch.float64)),
    )
    return Setting(laws, torch.stack(fields), {})


@case(600, tiny=24, small=0.02, far=0.3, channels=True)
def heated_disc(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Temperature and source on triangles, with conductivity 1 + u²; the source is positive and has a given total."""
    mesh = _Mesh(size)
    inner = mesh.mass[mesh.rim :]

    def spread(u: Tensor) -> Tensor:
        return mesh.balance(1.0 + u.square(), u) / inner

    wave = 1.5 * randn(samples, 2, generator=generator)
    source = 3.0 + 2.0 * torch.sin(wave @ mesh.place.T)
    fields = []
    for own in source:
        u = torch.zeros_like(own)
        for _ in range(_ROUNDS):
            u = mesh.solved(1.0 + u.square(), own)
        fields.append(torch.stack([u, own]))
    truth = torch.stack(fields)
    laws = (
        Equality("heat", lambda u, p: spread(u[0]) - u[1, mesh.rim :]),
        Equality("rim", lambda u, p: u[0, : mesh.rim]),
        Equality("total", lambda u, p: mesh.mass @ u[1] - p["total"]),
        Bounds(lower=torch.tensor([[-torch.inf], [0.0]], dtype=torch.float64)),
    )
    return Setting(laws, truth, {"total": truth[:, 1] @ mesh.mass})


def _cavity_rows(u: Tensor, viscosity: float) -> tuple[Tensor, Tensor, Tensor]:
    """Vorticity of the stream function, its transport, and its value at the three walls that stand still."""
    stream, swirl = u.unbind(-3)
    n = u.shape[-1] - 1

    def ring(f: Tensor) -> Tensor:
        near = f[..., 2:, 1:-1] + f[..., :-2, 1:-1] + f[..., 1:-1, 2:] + f[..., 1:-1, :-2]
        return (near - 4.0 * f[..., 1:-1, 1:-1]) * n**2

    def slopes(f: Tensor) -> tuple[Tensor, Tensor]:
        return (
            0.5 * n * (f[..., 2:, 1:-1] - f[..., :-2, 1:-1]),
            0.5 * n * (f[..., 1:-1, 2:] - f[..., 1:-1, :-2]),
        )

    (stream_x, stream_y), (swirl_x, swirl_y) = slopes(stream), slopes(swirl)
    carried = stream_y * swirl_x - stream_x * swirl_y
    walls = torch.stack([
        swirl[..., 0, 1:-1] + 2.0 * n**2 * stream[..., 1, 1:-1],
        swirl[..., -1, 1:-1] + 2.0 * n**2 * stream[..., -2, 1:-1],
        swirl[..., 1:-1, 0] + 2.0 * n**2 * stream[..., 1:-1, 1],
    ], dim=-2)  # fmt: skip
    return ring(stream) + swirl[..., 1:-1, 1:-1], carried - viscosity * ring(swirl), walls


def _lid(u: Tensor) -> Tensor:
    """The speed of the lid that the vorticity at it belongs to."""
    n = u.shape[-1] - 1
    return -0.5 * u[..., 1, 1:-1, -1] / n - n * u[..., 0, 1:-1, -2]


@case(20, tiny=6, small=0.01, far=0.1, channels=True)
def cavity(samples: int, generator: torch.Generator, size: int, viscosity: float = 0.02) -> Setting:
    """Steady flow in a cavity by stream function and vorticity; the lid moves as it likes, between zero and 1.5."""
    speed = 1.0 + 0.2 * smooth(samples, (size,), generator)[:, 1:-1].clamp(-2, 2)
    inner, zero = size - 2, torch.zeros(samples, 2, size, size, dtype=torch.float64)

    def full(free: Tensor) -> Tensor:
        """Put inner values, and vorticities of the four walls, into a field."""
        u = torch.zeros(2, size, size, dtype=torch.float64)
        both = torch.nn.functional.pad(free[: 2 * inner**2].reshape(2, inner, inner), (1, 1, 1, 1))
        wall = free[2 * inner**2 :].reshape(4, inner)
        rim = torch.nn.functional.pad
        u = both[1] + rim(wall[0][None], (1, 1, 0, size - 1)) + rim(wall[1][None], (1, 1, size - 1, 0))
        u = u + rim(wall[2][:, None], (0, size - 1, 1, 1)) + rim(wall[3][:, None], (size - 1, 0, 1, 1))
        return torch.stack([both[0], u])

    def rows(free: Tensor, own: Tensor) -> Tensor:
        u = full(free)
        return torch.cat([*(one.flatten() for one in _cavity_rows(u, viscosity)), _lid(u) - own])

    truth = zero
    for i, own in enumerate(speed):
        free = torch.zeros(2 * inner**2 + 4 * inner, dtype=torch.float64)
        for _ in range(_NEWTON):
            slope = torch.func.jacfwd(rows)(free, own)
            free = free - torch.linalg.solve(slope, rows(free, own))
        truth[i] = full(free)
    names = ("vorticity", "transport", "walls")

    def edge(f: Tensor) -> Tensor:
        return torch.cat([f[0], f[-1], f[1:-1, 0], f[1:-1, -1]])

    laws = (
        *(Equality(name, lambda u, p, k=k: _cavity_rows(u, viscosity)[k]) for k, name in enumerate(names)),
        Equality("tight", lambda u, p: edge(u[0])),
        Inequality("lid", lambda u, p: torch.stack([-_lid(u), _lid(u) - 1.5])),
    )
    return Setting(laws, truth, {})


@case(24, tiny=6, small=0.05, far=0.3, channels=True)
def scattering(samples: int, generator: torch.Generator, size: int, wave: float = 8.0) -> Setting:
    """A wave in a medium: real and imaginary part and squared index, Δu + k²mu = 0, driven at one side, absorbed at others."""
    n = size - 1

    def ring(f: Tensor) -> Tensor:
        near = f[..., 2:, 1:-1] + f[..., :-2, 1:-1] + f[..., 1:-1, 2:] + f[..., 1:-1, :-2]
        return (near - 4.0 * f[..., 1:-1, 1:-1]) * n**2

    def absorbed(f: Tensor, other: Tensor, sign: float) -> Tensor:
        """∂u/∂ν = iku, the real part with sign 1 and the imaginary one with −1, by one-sided differences."""
        sides = (
            (f[-1], f[-2], other[-1]),
            (f[1:-1, 0], f[1:-1, 1], other[1:-1, 0]),
            (f[1:-1, -1], f[1:-1, -2], other[1:-1, -1]),
        )
        return torch.cat([(here - before) * n / wave + sign * turned for here, before, turned in sides])

    index = 1.0 + 0.2 * smooth(samples, (size, size), generator).clamp(-2, 2)
    second = diags_array([np.ones(n), -2.0 * np.ones(size), np.ones(n)], offsets=[-1, 0, 1], shape=(size, size))
    laplace = (kron(second, eye_array(size)) + kron(eye_array(size), second)).tocsr() * n**2
    place = np.arange(size**2).reshape(size, size)
    within = np.zeros((size, size), bool)
    within[1:-1, 1:-1] = True
    before = place.copy()
    before[-1], before[1:-1, 0], before[1:-1, -1] = place[-2], place[1:-1, 1], place[1:-1, -2]
    driven = np.zeros((size, size), bool)
    driven[0] = True
    rim = ~within.ravel() & ~driven.ravel()
    one = eye_array(size**2).tocsr()
    normal = diags_array(rim.astype(float)) @ (one - one[before.ravel()]) * (n / wave) - 1j * diags_array(
        rim.astype(float)
    )
    fields = []
    for own in index:
        inside = diags_array(within.ravel().astype(float))
        matrix = (
            inside @ (laplace + wave**2 * diags_array(own.numpy().ravel()))
            + normal
            + diags_array(driven.ravel().astype(float))
        )
        u = splu(matrix.tocsc().astype(complex)).solve(driven.ravel().astype(complex))
        both = torch.from_numpy(np.stack([u.real, u.imag])).reshape(2, size, size)
        fields.append(torch.cat([both, own[None]]))
    laws = (
        Equality("real", lambda u, p: ring(u[0]) / wave**2 + (u[2] * u[0])[1:-1, 1:-1]),
        Equality("imaginary", lambda u, p: ring(u[1]) / wave**2 + (u[2] * u[1])[1:-1, 1:-1]),
        Equality("absorbed", lambda u, p: torch.stack([absorbed(u[0], u[1], 1.0), absorbed(u[1], u[0], -1.0)])),
        Equality("driven", lambda u, p: torch.stack([u[0, 0] - 1.0, u[1, 0]])),
        Bounds(lower=torch.tensor([-torch.inf, -torch.inf, 0.5], dtype=torch.float64)[:, None, None]),
    )
    return Setting(laws, torch.stack(fields), {})


@case(16, tiny=4, group="issue", small=0.05, far=0.5)
def maxwell(samples: int, generator: torch.Generator, size: int, count: int = 12) -> Setting:
    """Maxwell's equations in a periodic plane and in time, after Yee: E out of the plane, H in it, and the first energy."""
    courant = 0.5

    def magnetic(electric: Tensor) -> tuple[Tensor, Tensor]:
        """Changes of both magnetic components."""
        return (
            -courant * (torch.roll(electric, -1, -2) - electric),
            courant * (torch.roll(electric, -1, -3) - electric),
        )

    def electric(x: Tensor, y: Tensor) -> Tensor:
        return courant * ((y - torch.roll(y, 1, -3)) - (x - torch.roll(x, 1, -2)))

    def rows(u: Tensor, p: Params) -> Tensor:
        e, x, y = u.unbind(-4)
        change_x, change_y = magnetic(e[..., :-1])
        return torch.stack([
            x[..., 1:] - x[..., :-1] - change_x, y[..., 1:] - y[..., :-1] - change_y,
            e[..., 1:] - e[..., :-1] - electric(x[..., 1:], y[..., 1:]),
        ], dim=-4)  # fmt: skip

    e, x, y = (smooth(samples, (size, size), generator)[..., None] for _ in range(3))
    slices = [torch.stack([e, x, y], dim=1)]
    for _ in range(count - 1):
        change_x, change_y = magnetic(e)
        x, y = x + change_x, y + change_y
        e = e + electric(x, y)
        slices.append(torch.stack([e, x, y], dim=1))
    truth = torch.cat(slices, dim=-1)
    laws = (
        Equality("yee", rows),
        Equality("energy", lambda u, p: 0.5 * u[..., 0].square().mean() - p["energy"]),
    )
    return Setting(laws, truth, {"energy": 0.5 * truth[..., 0].square().mean((1, 2, 3))})
