"""Steady flow of a viscous fluid: velocities and pressure together on a staggered grid."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import smooth
from snapfm.laws import Equality, Params

VISCOSITY = 0.1


def _momentum(u: Tensor) -> Tensor:
    """Both momentum balances of (…, 3, n, n), cell size one; u lives on left faces, v on lower faces, p in cells."""
    u, v, pressure = u.unbind(-3)

    def mean(f: Tensor, shift: int, axis: int) -> Tensor:
        return 0.5 * (f + torch.roll(f, shift, axis))

    def spread(f: Tensor) -> Tensor:
        total = -4.0 * f
        for axis in (-2, -1):
            total = total + torch.roll(f, 1, axis) + torch.roll(f, -1, axis)
        return total

    uu, vv = mean(u, -1, -2).square(), mean(v, -1, -1).square()  # in cells
    uv = mean(u, 1, -1) * mean(v, 1, -2)  # at corners
    x = uu - torch.roll(uu, 1, -2) + torch.roll(uv, -1, -1) - uv + pressure - torch.roll(pressure, 1, -2)
    y = vv - torch.roll(vv, 1, -1) + torch.roll(uv, -1, -2) - uv + pressure - torch.roll(pressure, 1, -1)
    return torch.stack([x - VISCOSITY * spread(u), y - VISCOSITY * spread(v)], dim=-3)


def _divergence(u: Tensor, p: Params) -> Tensor:
    return torch.roll(u[0], -1, 0) - u[0] + torch.roll(u[1], -1, 1) - u[1]


@case(32, tiny=5)
def steady_navier_stokes(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Momentum under a given force, no divergence, mean pressure zero; the divergence has one row too many."""
    stream, pressure = smooth(samples, (size, size), generator), smooth(samples, (size, size), generator)
    u = torch.roll(stream, -1, 2) - stream
    v = -(torch.roll(stream, -1, 1) - stream)
    scale = u.square().mean((1, 2), keepdim=True).sqrt()
    truth = torch.stack([u / scale, v / scale, pressure - pressure.mean((1, 2), keepdim=True)], dim=1)
    laws = (
        Equality("momentum", lambda u, p: _momentum(u) - p["force"]),
        Equality("divergence", _divergence),
        Equality("mean pressure", lambda u, p: u[2].mean()),
    )
    return Setting(laws, truth, {"force": _momentum(truth)})


@case(24, tiny=5)
def free_force_navier_stokes(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Velocities, pressure and force together, and a given dissipation over the whole field."""
    base = steady_navier_stokes(samples, generator, size)
    truth = torch.cat([base.truth, base.params["force"]], dim=1)

    def dissipation(u: Tensor) -> Tensor:
        total = sum((torch.roll(u[..., :2, :, :], 1, axis) - u[..., :2, :, :]).square() for axis in (-2, -1))
        return VISCOSITY * total.mean((-3, -2, -1))  # type: ignore[union-attr]

    laws = (
        Equality("momentum", lambda u, p: _momentum(u[:3]) - u[3:]),
        Equality("divergence", _divergence),
        Equality("dissipation", lambda u, p: dissipation(u) - p["dissipation"]),
    )
    return Setting(laws, truth, {"dissipation": dissipation(truth)})
