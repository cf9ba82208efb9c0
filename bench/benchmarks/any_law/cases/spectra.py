"""Spectra: energies of shells and bands, and moduli of coefficients, of Fourier, cosine and wavelet transforms."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import randn, smooth
from snapfm.laws import Bounds, Equality

_ROUGH = 0.1  # share of white noise in a field: without it most of a spectrum would be zero


def _field(samples: int, generator: torch.Generator, *shape: int) -> Tensor:
    return smooth(samples, shape, generator) + _ROUGH * randn(samples, *shape, generator=generator)


@case(48, tiny=8, group="issue", small=0.1, far=0.5)
def shells(samples: int, generator: torch.Generator, size: int) -> Setting:
    """The energy of every shell of wave numbers of a periodic plane."""
    wave = torch.fft.fftfreq(size, 1.0 / size, dtype=torch.float64)
    radius = (wave[:, None].square() + wave.square()).sqrt().round().long()
    masks = torch.stack([radius == k for k in range(1, size // 2)]).double()

    def energy(u: Tensor) -> Tensor:
        hat = torch.fft.fft2(u) / size
        power = hat.real.square() + hat.imag.square()
        return 0.5 * (masks * power[..., None, :, :]).sum((-2, -1))

    u = _field(samples, generator, size, size)
    return Setting((Equality("shells", lambda u, p: energy(u) - p["energy"]),), u, {"energy": energy(u)})


@case(24, tiny=6, group="issue", small=0.1, far=0.5)
def moduli(samples: int, generator: torch.Generator, size: int) -> Setting:
    """The modulus of every Fourier coefficient of a plane: phases are free."""
    wave = torch.arange(size)
    own = wave[:, None] * size + wave
    mirrored = (-wave % size)[:, None] * size + (-wave % size)
    once = (own <= mirrored).flatten().nonzero()[:, 0]

    def power(u: Tensor) -> Tensor:
        hat = torch.fft.fft2(u, norm="ortho").flatten(-2)[..., once]
        return hat.real.square() + hat.imag.square()

    u = _field(samples, generator, size, size)
    return Setting((Equality("moduli", lambda u, p: power(u) - p["power"]),), u, {"power": power(u)})


@case(64, tiny=8, small=0.1, far=0.5)
def bands(samples: int, generator: torch.Generator, size: int, stations: int = 16) -> Setting:
    """Series of many stations: the mean of each, and the energy of each of its octaves."""
    octaves = [(2**k, min(2 ** (k + 1), size // 2 + 1)) for k in range(size.bit_length() - 1) if 2**k <= size // 2]

    def energy(u: Tensor) -> Tensor:
        hat = torch.fft.rfft(u, dim=-1, norm="ortho")
        power = hat.abs().square()
        return torch.stack([power[..., low:high].sum(-1) for low, high in octaves], dim=-1)

    u = _field(samples, generator, stations, size)
    laws = (
        Equality("mean", lambda u, p: u.mean(-1) - p["mean"]),
        Equality("octaves", lambda u, p: energy(u) - p["energy"]),
    )
    return Setting(laws, u, {"mean": u.mean(-1), "energy": energy(u)})


@case(32, tiny=6, small=0.1, far=0.5)
def cosines(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A picture by its cosine transform, a product of matrices: energies of diagonal bands, and the mean."""
    k = torch.arange(size, dtype=torch.float64)
    basis = torch.cos(torch.pi * k[:, None] * (k + 0.5) / size) * (2.0 / size) ** 0.5
    basis[0] /= 2.0**0.5
    order = (k[:, None] + k).long()
    masks = torch.stack([order // 4 == band for band in range((2 * size - 2) // 4 + 1)]).double()
    masks[0, 0, 0] = 0.0

    def energy(u: Tensor) -> Tensor:
        return torch.einsum("kij,...ij->...k", masks, (basis @ u @ basis.T).square())

    u = _field(samples, generator, size, size)
    laws = (
        Equality("bands", lambda u, p: energy(u) - p["energy"]),
        Equality("mean", lambda u, p: u.mean() - p["mean"]),
    )
    return Setting(laws, u, {"energy": energy(u), "mean": u.mean((1, 2))})


@case(128, tiny=8, small=0.1, far=0.5)
def wavelets(samples: int, generator: torch.Generator, size: int, channels: int = 4) -> Setting:
    """Haar wavelets of several channels: the energy of every level is given, and the mean."""

    def levels(u: Tensor) -> Tensor:
        found = []
        while u.shape[-1] > 1:
            left, right = u[..., 0::2], u[..., 1::2]
            found.append(0.5 * (left - right).square().sum(-1))
            u = (left + right) / 2.0**0.5
        return torch.stack(found, dim=-1)

    u = _field(samples, generator, channels, size)
    laws = (
        Equality("levels", lambda u, p: levels(u) - p["energy"]),
        Equality("mean", lambda u, p: u.mean(-1) - p["mean"]),
    )
    return Setting(laws, u, {"energy": levels(u), "mean": u.mean(-1)})


@case(32, tiny=6, small=0.1, far=0.5)
def positive_shells(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Energies of shells of a density that is positive everywhere, and its total: a transform beside bounds."""
    base = shells(samples, generator, size)
    u = base.truth - base.truth.amin((1, 2), keepdim=True) + 0.01
    laws = (
        *base.laws,
        Equality("total", lambda u, p: u.mean() - p["total"]),
        Bounds(lower=0.0),
    )
    return Setting(laws, u, {**base.params, "total": u.mean((1, 2))})
