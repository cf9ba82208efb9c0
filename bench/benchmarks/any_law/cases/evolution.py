"""Parabolic and dispersive equations with a residual at every time step, all steps coupled; time is the last axis."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import implicit_march, randn, smooth
from snapfm.laws import Bounds, Equality, Inequality, Params


def ring(u: Tensor, *axes: int) -> Tensor:
    """The periodic second difference over the given axes."""
    total = -2.0 * len(axes) * u
    for axis in axes:
        total = total + torch.roll(u, 1, axis) + torch.roll(u, -1, axis)
    return total


def slope(u: Tensor, axis: int) -> Tensor:
    """The periodic central difference."""
    return 0.5 * (torch.roll(u, -1, axis) - torch.roll(u, 1, axis))


def _fisher(samples: int, generator: torch.Generator, size: int) -> tuple[Equality, Tensor]:
    """uₜ = DΔu + r u(1 − u) in a periodic plane, implicit Euler, as many steps as points along a side."""
    step, diffusion, rate = 0.05, 2.0, 1.0
    start = 0.5 + 0.2 * smooth(samples, (size, size), generator)
    truth = implicit_march(
        start, size, step, lambda u: diffusion * ring(u, 1, 2), lambda u: rate * u * (1.0 - u)
    )  # fmt: skip

    def rows(u: Tensor, p: Params) -> Tensor:
        new = u[..., 1:]
        return new - u[..., :-1] - step * (diffusion * ring(new, 0, 1) + rate * new * (1.0 - new))

    return Equality("reaction-diffusion", rows), truth


@case(32, tiny=4, group="issue", samples=4)
def reaction_diffusion(samples: int, generator: torch.Generator, size: int) -> Setting:
    """An implicit step at every time with the initial field given: everything is determined."""
    law, truth = _fisher(samples, generator, size)
    laws = (Equality("initial", lambda u, p: u[..., 0] - p["start"]), law)
    return Setting(laws, truth, {"start": truth[..., 0]})


@case(32, tiny=4, group="issue", samples=4)
def free_reaction_diffusion(samples: int, generator: torch.Generator, size: int) -> Setting:
    """The same without an initial field."""
    law, truth = _fisher(samples, generator, size)
    return Setting((law,), truth, {})


@case(100, tiny=4, group="issue", samples=1)
def reaction_diffusion_large(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A million unknowns with the initial field given."""
    return reaction_diffusion(samples, generator, size)


@case(100, tiny=4, group="issue", samples=1)
def free_reaction_diffusion_large(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A million unknowns without an initial field."""
    return free_reaction_diffusion(samples, generator, size)


@case(16, tiny=6, group="issue")
def spectral_vorticity(samples: int, generator: torch.Generator, size: int, count: int = 5) -> Setting:
    """ωₜ + u·∇ω = νΔω in a periodic plane, derivatives by transforms, viscosity by Crank–Nicolson."""
    step, viscosity = 0.02, 0.01
    wave = torch.fft.fftfreq(size, 1.0 / size, dtype=torch.float64)
    x, y = wave[:, None].expand(size, size), wave.expand(size, size)
    square = x.square() + y.square()
    inverse = torch.where(square > 0, 1.0 / square.clamp(min=1.0), torch.zeros_like(square))

    def back(v: Tensor) -> Tensor:
        return torch.fft.ifft2(v).real

    def carried(w: Tensor) -> Tensor:
        hat = torch.fft.fft2(w)
        stream = hat * inverse
        return back(1j * y * stream) * back(1j * x * hat) - back(1j * x * stream) * back(1j * y * hat)

    def rows(u: Tensor, p: Params) -> Tensor:
        old, new = u[:-1], u[1:]
        spread = back(-square * torch.fft.fft2(0.5 * (old + new)))
        return (new - old) / step + carried(old) - viscosity * spread

    fields = [smooth(samples, (size, size), generator)]
    damp = 0.5 * step * viscosity * square
    for _ in range(count - 1):
        old = fields[-1]
        right = (1 - damp) * torch.fft.fft2(old) - step * torch.fft.fft2(carried(old))
        fields.append(back(right / (1 + damp)))
    return Setting((Equality("vorticity", rows),), torch.stack(fields, dim=1), {})


@case(24, tiny=5)
def allen_cahn(samples: int, generator: torch.Generator, size: int, count: int = 10) -> Setting:
    """uₜ = εΔu + u − u³ in a plane, implicit, the initial field given."""
    step, width = 0.1, 0.5
    start = 0.6 * smooth(samples, (size, size), generator)
    truth = implicit_march(start, count, step, lambda u: width * ring(u, 1, 2), lambda u: u - u**3)

    def rows(u: Tensor, p: Params) -> Tensor:
        new = u[..., 1:]
        return new - u[..., :-1] - step * (width * ring(new, 0, 1) + new - new**3)

    laws = (Equality("initial", lambda u, p: u[..., 0] - p["start"]), Equality("allen-cahn", rows))
    return Setting(laws, truth, {"start": start})


@case(16, tiny=5)
def cahn_hilliard(samples: int, generator: torch.Generator, size: int, count: int = 8) -> Setting:
    """uₜ = Δ(u³ − u − εΔu) in a plane, implicit: thirteen points a row; the mean of every step is given too."""
    step, width = 0.02, 1.0
    start = 0.4 * smooth(samples, (size, size), generator)

    def linear(u: Tensor) -> Tensor:
        return -width * ring(ring(u, 1, 2), 1, 2)

    truth = implicit_march(start, count, step, linear, lambda u: ring(u**3 - u, 1, 2))

    def rows(u: Tensor, p: Params) -> Tensor:
        new = u[..., 1:]
        return new - u[..., :-1] - step * ring(new**3 - new - width * ring(new, 0, 1), 0, 1)

    laws = (Equality("cahn-hilliard", rows), Equality("mass", lambda u, p: u[..., 0].mean() - p["mean"]))
    return Setting(laws, truth, {"mean": start.mean((1, 2))})


@case(64, tiny=8)
def kuramoto_sivashinsky(samples: int, generator: torch.Generator, size: int, count: int = 24) -> Setting:
    """uₜ + u uₓ + uₓₓ + uₓₓₓₓ = 0 on a ring, implicit, at every step."""
    step = 0.05
    start = smooth(samples, (size,), generator)
    truth = implicit_march(
        start, count, step, lambda u: -ring(u, 1) - ring(ring(u, 1), 1), lambda u: -slope(0.5 * u.square(), 1)
    )

    def rows(u: Tensor, p: Params) -> Tensor:
        new = u[:, 1:]
        return new - u[:, :-1] + step * (slope(0.5 * new.square(), 0) + ring(new, 0) + ring(ring(new, 0), 0))

    return Setting((Equality("kuramoto-sivashinsky", rows),), truth, {})


@case(64, tiny=8)
def korteweg_de_vries(samples: int, generator: torch.Generator, size: int, count: int = 20) -> Setting:
    """uₜ + 6u uₓ + uₓₓₓ = 0 on a ring, implicit, and the momentum Σu² that it should keep, within one per cent."""
    step = 0.02
    start = 0.5 + 0.3 * smooth(samples, (size,), generator)

    def third(u: Tensor, axis: int) -> Tensor:
        return slope(ring(u, axis), axis)

    truth = implicit_march(start, count, step, lambda u: -third(u, 1), lambda u: -slope(3.0 * u.square(), 1))

    def rows(u: Tensor, p: Params) -> Tensor:
        new = u[:, 1:]
        return new - u[:, :-1] + step * (slope(3.0 * new.square(), 0) + third(new, 0))

    lost = (truth.square().sum(1) - truth[..., :1].square().sum(1)).abs().amax(1)
    laws = (
        Equality("korteweg-de vries", rows),
        Inequality("momentum", lambda u, p: u.square().sum(0) - u[:, 0].square().sum() - p["drift"]),
    )
    return Setting(laws, truth, {"drift": lost + 0.01 * start.square().sum(1)})


@case(64, tiny=6)
def wave_energy(samples: int, generator: torch.Generator, size: int, count: int = 32) -> Setting:
    """uₜₜ = uₓₓ − u³ on a ring by leapfrog, and the energy of the first step given."""
    courant = 0.5
    first = 0.5 * smooth(samples, (size,), generator)
    slices = [first, first + 0.1 * smooth(samples, (size,), generator)]
    for _ in range(count - 2):
        old, now = slices[-2:]
        slices.append(2 * now - old + courant**2 * (ring(now, 1) - now**3))
    truth = torch.stack(slices, dim=-1)

    def rows(u: Tensor, p: Params) -> Tensor:
        now = u[:, 1:-1]
        return u[:, 2:] - 2 * now + u[:, :-2] - courant**2 * (ring(now, 0) - now**3)

    def energy(u: Tensor) -> Tensor:
        moved, tilt = u[..., 1] - u[..., 0], torch.roll(u[..., 0], -1, -1) - u[..., 0]
        return 0.5 * (moved.square() / courant**2 + tilt.square() + 0.5 * u[..., 0] ** 4).sum(-1)

    laws = (Equality("wave", rows), Equality("energy", lambda u, p: energy(u) - p["energy"]))
    return Setting(laws, truth, {"energy": energy(truth)})


@case(48, tiny=6)
def bounded_heat(samples: int, generator: torch.Generator, size: int, count: int = 24) -> Setting:
    """uₜ = κuₓₓ implicit at every step, and the maximum principle as bounds."""
    spread = 0.5
    start = 0.5 + 0.15 * smooth(samples, (size,), generator).clamp(-3, 3)
    truth = implicit_march(start, count, spread, lambda u: ring(u, 1), torch.zeros_like)

    def rows(u: Tensor, p: Params) -> Tensor:
        return u[:, 1:] - u[:, :-1] - spread * ring(u[:, 1:], 0)

    return Setting((Equality("heat", rows), Bounds(lower=0.0, upper=1.0)), truth, {})


def _schrodinger(samples: int, generator: torch.Generator, size: int, count: int) -> Tensor:
    """A wave packet on a ring by Crank–Nicolson, real and imaginary part: (b, 2, n, count)."""
    psi = torch.complex(smooth(samples, (size,), generator), smooth(samples, (size,), generator))
    psi = psi / psi.norm(dim=1, keepdim=True)
    wave = torch.fft.fftfreq(size, dtype=torch.float64)
    energy = 2.0 * torch.sin(torch.pi * wave).square()  # of −½ times the second difference
    turn = (1 - 0.5j * _TICK * energy) / (1 + 0.5j * _TICK * energy)
    slices = [psi]
    for _ in range(count - 1):
        slices.append(torch.fft.ifft(turn * torch.fft.fft(slices[-1])))
    whole = torch.stack(slices, dim=-1)
    return torch.stack([whole.real, whole.imag], dim=1)


_TICK = 0.2  # the time step of Schrödinger's equation


def _norms(u: Tensor, p: Params) -> Tensor:
    return u.square().sum((0, 1)) - 1.0


@case(64, tiny=6)
def schrodinger_norm(samples: int, generator: torch.Generator, size: int, count: int = 20) -> Setting:
    """Norm one at every step, and the same mean energy at every step."""
    truth = _schrodinger(samples, generator, size, count)

    def energy(u: Tensor) -> Tensor:
        return 0.5 * (torch.roll(u, -1, -2) - u).square().sum((-3, -2))

    laws = (Equality("norm", _norms), Equality("energy", lambda u, p: energy(u) - p["energy"]))
    return Setting(laws, truth, {"energy": energy(truth)[..., :1]})


@case(32, tiny=6)
def schrodinger_steps(samples: int, generator: torch.Generator, size: int, count: int = 12) -> Setting:
    """Crank–Nicolson at every step and norm one at every step, which the steps imply: rows depend on each other."""

    def rows(u: Tensor, p: Params) -> Tensor:
        middle = 0.5 * (u[..., 1:] + u[..., :-1])
        bend = -0.5 * _TICK * ring(middle, 1)  # i ψₜ = −½ ψₓₓ
        real = u[0, :, 1:] - u[0, :, :-1] - bend[1]
        imaginary = u[1, :, 1:] - u[1, :, :-1] + bend[0]
        return torch.stack([real, imaginary])

    laws = (Equality("schrodinger", rows), Equality("norm", _norms))
    return Setting(laws, _schrodinger(samples, generator, size, count), {})


@case(200, tiny=8)
def lotka_volterra(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Prey and predator by implicit midpoints at every step, both positive."""
    step = 0.05

    def speed(u: Tensor) -> Tensor:
        prey, hunter = u[..., 0, :], u[..., 1, :]
        return torch.stack([prey * (1.0 - hunter), hunter * (prey - 1.0)], dim=-2)

    u = 1.0 + 0.5 * torch.rand(samples, 2, 1, generator=generator, dtype=torch.float64)
    slices = [u]
    for _ in range(size - 1):
        new = slices[-1]
        for _ in range(60):  # a contraction by about the step
            new = slices[-1] + step * speed(0.5 * (new + slices[-1]))
        slices.append(new)

    def rows(u: Tensor, p: Params) -> Tensor:
        return u[:, 1:] - u[:, :-1] - step * speed(0.5 * (u[:, 1:] + u[:, :-1]))

    return Setting((Equality("lotka-volterra", rows), Bounds(lower=0.01)), torch.cat(slices, dim=2), {})


@case(16, tiny=4)
def gray_scott(samples: int, generator: torch.Generator, size: int, count: int = 12) -> Setting:
    """Two species in a plane, explicit Euler at every step, no initial field, both non-negative."""
    step, feed, kill = 0.5, 0.04, 0.06
    first = torch.stack([
        0.7 + 0.1 * smooth(samples, (size, size), generator).clamp(-2, 2),
        0.3 + 0.1 * randn(samples, size, size, generator=generator).clamp(-2, 2),
    ], dim=1)  # fmt: skip

    def change(u: Tensor) -> Tensor:
        a, b = u.unbind(-4)
        eaten = a * b.square()
        return torch.stack(
            [0.2 * ring(a, -3, -2) - eaten + feed * (1 - a), 0.1 * ring(b, -3, -2) + eaten - (feed + kill) * b], dim=-4
        )

    slices = [first[..., None]]
    for _ in range(count - 1):
        slices.append(slices[-1] + step * change(slices[-1]))

    def rows(u: Tensor, p: Params) -> Tensor:
        return u[..., 1:] - u[..., :-1] - step * change(u[..., :-1])

    return Setting((Equality("gray-scott", rows), Bounds(lower=0.0)), torch.cat(slices, dim=-1), {})
