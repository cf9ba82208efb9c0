"""Laws of many kinds at any number of unknowns, for the benchmark of preparing: stencils, space-time, totals, spectra, networks.

Each builder takes the number of unknowns wanted, and returns laws, the shape nearest to it, and example params.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as f

from snapfm import Bounds, Equality, Inequality
from snapfm.laws import Law

Case = tuple[list[Law], tuple[int, ...], dict[str, Tensor]]
CASES: dict[str, Callable[[int], Case]] = {}


def case(build: Callable[[int], Case]) -> Callable[[int], Case]:
    """Add a builder to the table under its name."""
    CASES[build.__name__.replace("_", " ")] = build
    return build


def _side(unknowns: int, axes: int, channels: int = 1) -> int:
    """Extent of one of several equal axes."""
    return max(4, round((unknowns / channels) ** (1 / axes)))


def _laplacian(u: Tensor) -> Tensor:
    """Periodic, over the last two axes."""
    return sum((torch.roll(u, s, d) for s in (1, -1) for d in (-1, -2)), -4 * u)


def _inner(u: Tensor) -> Tensor:
    """Five points over the last two axes, inside."""
    middle = u[..., 1:-1, 1:-1]
    return u[..., 2:, 1:-1] + u[..., :-2, 1:-1] + u[..., 1:-1, 2:] + u[..., 1:-1, :-2] - 4 * middle


@case
def poisson_slices(n: int) -> Case:
    s = _side(n, 2)
    return [Equality("poisson", lambda u, p: _inner(u) - p["f"])], (s, s), {"f": torch.ones(1, s - 2, s - 2)}


@case
def poisson_rolls_and_mean(n: int) -> Case:
    s = _side(n, 2)
    laws = [Equality("poisson", lambda u, p: _laplacian(u) - 0.1), Equality("mean", lambda u, p: u.mean())]
    return laws, (s, s), {}


@case
def laplacian_1d_nonlinear(n: int) -> Case:
    return [Equality("bratu", lambda u, p: u[2:] - 2 * u[1:-1] + u[:-2] + 0.1 * torch.exp(u[1:-1]))], (n,), {}


@case
def laplacian_3d_nonlinear(n: int) -> Case:
    s = _side(n, 3)

    def law(u: Tensor, p: Any) -> Tensor:
        middle = u[1:-1, 1:-1, 1:-1]
        around = u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1] + u[1:-1, :-2, 1:-1]
        return around + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2] - 6 * middle - middle**3

    return [Equality("cubic", law)], (s, s, s), {}


def _divergence(u: Tensor) -> Tensor:
    return sum(torch.roll(u[i], -1, i) - torch.roll(u[i], 1, i) for i in range(3))


@case
def divergence_3d(n: int) -> Case:
    s = _side(n, 3, 3)
    return [Equality("divergence", lambda u, p: _divergence(u))], (3, s, s, s), {}


@case
def divergence_3d_and_energy(n: int) -> Case:
    s = _side(n, 3, 3)
    energy = Equality("energy", lambda u, p: 0.5 * (u**2).mean() - p["energy"])
    return [Equality("divergence", lambda u, p: _divergence(u)), energy], (3, s, s, s), {"energy": torch.ones(1)}


@case
def convolution_2d(n: int) -> Case:
    s = _side(n, 2)
    kernel = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]], dtype=torch.float64)[None, None]

    def law(u: Tensor, p: Any) -> Tensor:
        padded = f.pad(u[None, None], (1, 1, 1, 1), mode="circular")
        return f.conv2d(padded, kernel)[0, 0] - u**2

    return [Equality("convolution", law)], (s, s), {}


@case
def convolution_3d_params(n: int) -> Case:
    s = _side(n, 3)

    def law(u: Tensor, p: Any) -> Tensor:
        return f.conv3d(u[None, None], p["kernel"][None, None], padding=1)[0, 0] - 1.0

    return [Equality("convolution", law)], (s, s, s), {"kernel": torch.rand(1, 3, 3, 3)}


@case
def implicit_reaction_diffusion(n: int) -> Case:
    s = _side(n, 3)

    def law(u: Tensor, p: Any) -> Tensor:
        new = u[1:]
        return (new - u[:-1]) / 0.01 - 0.1 * _laplacian(new) - new * (1 - new)

    return (
        [Equality("initial", lambda u, p: u[0] - p["u0"]), Equality("step", law)],
        (s, s, s),
        {"u0": torch.rand(1, s, s)},
    )


@case
def implicit_free_start(n: int) -> Case:
    s = _side(n, 3)

    def law(u: Tensor, p: Any) -> Tensor:
        new = u[1:]
        return (new - u[:-1]) / 0.01 - 0.1 * _laplacian(new) - new * (1 - new)

    return [Equality("step", law)], (s, s, s), {}


@case
def explicit_many_steps(n: int) -> Case:
    steps, width = 1000, max(8, n // 1000)

    def law(u: Tensor, p: Any) -> Tensor:
        old = u[:-1]
        slope = torch.roll(old, -1, 1) - 2 * old + torch.roll(old, 1, 1)
        return u[1:] - old - 0.1 * slope - 0.01 * old * (1 - old)

    initial = Equality("initial", lambda u, p: u[0] - p["u0"])
    return [initial, Equality("step", law)], (steps, width), {"u0": torch.rand(1, width)}


@case
def implicit_many_steps(n: int) -> Case:
    steps, width = 1000, max(8, n // 1000)

    def law(u: Tensor, p: Any) -> Tensor:
        new = u[1:]
        slope = torch.roll(new, -1, 1) - 2 * new + torch.roll(new, 1, 1)
        return new - u[:-1] - 0.1 * slope - 0.01 * new * (1 - new)

    initial = Equality("initial", lambda u, p: u[0] - p["u0"])
    return [initial, Equality("step", law)], (steps, width), {"u0": torch.rand(1, width)}


@case
def burgers_all_steps_and_mass(n: int) -> Case:
    s = _side(n, 2)

    def law(u: Tensor, p: Any) -> Tensor:
        old, new = u[:, :-1], u[:, 1:]
        flux = 0.5 * old**2
        return (
            new
            - 0.5 * (torch.roll(old, 1, 0) + torch.roll(old, -1, 0))
            + 0.1 * (torch.roll(flux, -1, 0) - torch.roll(flux, 1, 0))
        )

    mass = Equality("mass", lambda u, p: u.sum(0) - u[:, 0].sum().detach())
    return [Equality("step", law), mass], (s, s), {}


@case
def upwind(n: int) -> Case:
    s = _side(n, 2)

    def law(u: Tensor, p: Any) -> Tensor:
        old, new = u[:-1], u[1:]
        back, ahead = old - torch.roll(old, 1, 1), torch.roll(old, -1, 1) - old
        return new - old + 0.1 * old * torch.where(old > 0, back, ahead)

    return [Equality("upwind", law)], (s, s), {}


@case
def darcy(n: int) -> Case:
    s = _side(n, 2, 2)

    def law(x: Tensor, p: Any) -> Tensor:
        a, u = x[0], x[1]
        across, along = 0.5 * (a[1:] + a[:-1]) * (u[1:] - u[:-1]), 0.5 * (a[:, 1:] + a[:, :-1]) * (u[:, 1:] - u[:, :-1])
        return (across[1:, 1:-1] - across[:-1, 1:-1] + along[1:-1, 1:] - along[1:-1, :-1]) * s**2 + 1.0

    lower = torch.full((2, s, s), -math.inf)
    lower[0] = 0.1
    return [Equality("darcy", law), Bounds(lower=lower)], (2, s, s), {}


@case
def helmholtz_params(n: int) -> Case:
    s = _side(n, 2, 2)
    law = Equality("helmholtz", lambda x, p: _laplacian(x[1]) + p["k"] * x[0] * x[1] - p["f"])
    return [law], (2, s, s), {"k": torch.rand(1, s, s), "f": torch.ones(1, s, s)}


@case
def shallow_water(n: int) -> Case:
    s = _side(n, 3, 3)

    def law(x: Tensor, p: Any) -> Tensor:
        h, u, v = x[0], x[1], x[2]  # (t, y, x)
        old = slice(None, -1)

        def dx(q: Tensor) -> Tensor:
            return 0.5 * (torch.roll(q, -1, -1) - torch.roll(q, 1, -1))

        def dy(q: Tensor) -> Tensor:
            return 0.5 * (torch.roll(q, -1, -2) - torch.roll(q, 1, -2))

        mass = h[1:] - h[old] + 0.1 * (dx(h * u) + dy(h * v))[old]
        along = u[1:] - u[old] + 0.1 * (u * dx(u) + v * dy(u) + dx(h))[old]
        across = v[1:] - v[old] + 0.1 * (u * dx(v) + v * dy(v) + dy(h))[old]
        return torch.stack([mass, along, across])

    positive = Inequality("depth", lambda x, p: 0.01 - x[0])
    return [Equality("water", law), positive], (3, s, s, s), {}


@case
def totals_and_energies(n: int) -> Case:
    s = _side(n, 3)
    laws: list[Law] = [
        Equality("mass", lambda u, p: u.sum((1, 2)) - 1.0),
        Equality("energy", lambda u, p: (u**2).sum((1, 2)) - 5.0),
        Equality("moment", lambda u, p: (u * torch.linspace(0, 1, s, dtype=u.dtype)).sum((1, 2))),
        Inequality("peak", lambda u, p: (u**4).mean() - 9.0),
    ]
    return laws, (s, s, s), {}


@case
def monotone(n: int) -> Case:
    s = _side(n, 2)
    return [Inequality("monotone", lambda u, p: u[:-1] - u[1:]), Bounds(lower=0.0, upper=1.0)], (s, s), {}


@case
def unit_vectors(n: int) -> Case:
    return [Equality("unit", lambda u, p: (u**2).sum(1) - 1.0)], (n // 3, 3), {}


@case
def softmax_lines(n: int) -> Case:
    lines = max(4, n // 16)
    return (
        [Equality("softmax", lambda u, p: (torch.softmax(u, 1) * p["w"]).sum(1) - 0.5)],
        (lines, 16),
        {"w": torch.rand(1, 16)},
    )


@case
def cumulative_sums(n: int) -> Case:
    lines = max(4, n // 32)
    return [Equality("cumsum", lambda u, p: torch.cumsum(u, 1)[:, ::4] ** 2 - 1.0)], (lines, 32), {}


@case
def matrix_products(n: int) -> Case:
    lines = max(4, n // 16)
    return [Equality("orthogonal", lambda u, p: u.mT @ u - torch.eye(4, dtype=u.dtype))], (lines, 4, 4), {}


@case
def einsum_known(n: int) -> Case:
    lines, weight = max(4, n // 32), torch.randn(8, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return [Equality("einsum", lambda u, p: torch.einsum("li,ki->lk", torch.tanh(u), weight) - 0.1)], (lines, 32), {}


@case
def pointwise_network(n: int) -> Case:
    generator = torch.Generator().manual_seed(0)
    one, two = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((8, 4), (1, 8)))
    return [Equality("network", lambda u, p: torch.tanh(u @ one.T) @ two.T)], (max(4, n // 4), 4), {}


@case
def convolution_network(n: int) -> Case:
    s, generator = _side(n, 2), torch.Generator().manual_seed(0)
    one, two = (torch.randn(*size, generator=generator, dtype=torch.float64) for size in ((4, 1, 3, 3), (1, 4, 3, 3)))

    def law(u: Tensor, p: Any) -> Tensor:
        hidden = torch.tanh(f.conv2d(u[None, None], one, padding=1))
        return f.conv2d(hidden, two, padding=1)[0, 0, ::2, ::2]

    return [Equality("network", law)], (s, s), {}


@case
def spectral_derivative_lines(n: int) -> Case:
    length = 64
    wave = 2j * math.pi * torch.fft.rfftfreq(length, dtype=torch.float64)

    def law(u: Tensor, p: Any) -> Tensor:
        slope = torch.fft.irfft(wave * torch.fft.rfft(u, dim=-1), n=length, dim=-1)
        return u[1:] - u[:-1] + 0.1 * (u * slope)[:-1]

    return [Equality("advection", law)], (max(4, n // length), length), {}


def _vorticity(side: int, dealias: bool) -> Callable[[Tensor], Tensor]:
    k = 2 * math.pi * torch.fft.fftfreq(side, 1 / side, dtype=torch.float64)
    kx, ky = torch.meshgrid(k, k[: side // 2 + 1].abs(), indexing="ij")
    square = kx**2 + ky**2
    inverse = torch.where(square > 0, 1 / square.clamp_min(1e-12), torch.zeros_like(square))
    keep = ((kx.abs() < 2 / 3 * k.abs().max()) & (ky < 2 / 3 * k.abs().max())).double()

    def back(c: Tensor) -> Tensor:
        return torch.fft.irfft2(c, s=(side, side))

    def step(w: Tensor) -> Tensor:
        c = torch.fft.rfft2(w)
        u, v = back(1j * ky * inverse * c), back(-1j * kx * inverse * c)
        product = torch.fft.rfft2(u * back(1j * kx * c) + v * back(1j * ky * c))
        return back((keep if dealias else 1.0) * product + 1e-3 * square * c)

    return step


@case
def spectral_vorticity(n: int) -> Case:
    steps = 5
    s = _side(n, 2, steps) // 2 * 2
    tendency = _vorticity(s, dealias=True)
    return [Equality("vorticity", lambda w, p: w[1:] - w[:-1] + 0.01 * tendency(w[:-1]))], (steps, s, s), {}


@case
def spectral_poisson_plane(n: int) -> Case:
    s = _side(n, 2) // 2 * 2
    k = 2 * math.pi * torch.fft.fftfreq(s, 1 / s, dtype=torch.float64)
    square = k[:, None] ** 2 + k[None, : s // 2 + 1] ** 2

    def law(u: Tensor, p: Any) -> Tensor:
        return torch.fft.irfft2(square * torch.fft.rfft2(u), s=(s, s)) - p["f"]

    return [Equality("poisson", law)], (s, s), {"f": torch.zeros(1, s, s)}


@case
def low_modes(n: int) -> Case:
    s = _side(n, 2) // 2 * 2
    return [Equality("modes", lambda u, p: torch.view_as_real(torch.fft.rfft2(u)[:3, :3]).flatten()[2:])], (s, s), {}


@case
def spectrum_band(n: int) -> Case:
    s = _side(n, 2) // 2 * 2

    def law(u: Tensor, p: Any) -> Tensor:
        return (torch.fft.rfft2(u, norm="ortho")[:4, :4].abs() ** 2).sum() - p["energy"]

    return [Equality("band", law)], (s, s), {"energy": torch.ones(1)}


@case
def spectral_divergence_and_energy(n: int) -> Case:
    s = _side(n, 2, 2) // 2 * 2
    k = 2 * math.pi * torch.fft.fftfreq(s, 1 / s, dtype=torch.float64)

    def law(u: Tensor, p: Any) -> Tensor:
        c = torch.fft.rfft2(u)
        return torch.fft.irfft2(1j * (k[:, None] * c[0] + k[None, : s // 2 + 1] * c[1]), s=(s, s))

    energy = Equality("energy", lambda u, p: (torch.fft.fft2(u, norm="ortho").abs() ** 2).mean() - p["energy"])
    return [Equality("divergence", law), energy], (2, s, s), {"energy": torch.ones(1)}


@case
def band_limit_and_bounds(n: int) -> Case:
    s = _side(n, 2) // 2 * 2

    def law(u: Tensor, p: Any) -> Tensor:
        return torch.view_as_real(torch.fft.rfft2(u, norm="ortho")[s // 4 : -s // 4, s // 4 :])

    return [Equality("band", law), Bounds(lower=-1.0, upper=1.0)], (s, s), {}


@case
def nested_scalars(n: int) -> Case:
    """Many single operations, as optimization test sets have them; their number does not grow."""
    count = 300

    def law(u: Tensor, p: Any) -> Tensor:
        value, found = u[0], []
        for i in range(count):
            value = value * 0.5 + u[i % 5] * u[(i + 1) % 5] - torch.sin(u[(i + 2) % 5])
            found.append(value**2)
        return torch.stack(found[-20:]) - 1.0

    return [Inequality("nested", law)], (5,), {}
