"""The laws of the six benchmark problems as the release states them (SPEC §2), written out plainly on one field (x, t).

Kept apart from `snapfm_bench.problems` on purpose: these are the tests' own reading of the specification, without factories,
grids or settings, so that a change there cannot move the published counts unseen.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from snapfm.laws import Equality

Params = Mapping[str, Tensor]

DX = DT = 0.01  # Burgers and, for dt, reaction–diffusion
EPSILON = 1e-6  # smoothing of the Engquist–Osher flux
RHO, NU = 0.01, 0.005  # reaction and diffusion
NS_DX = 1 / 15


def initial(u: Tensor, params: Params) -> Tensor:
    return u[..., 0] - params["u0"]


def heat_mass(u: Tensor, params: Params) -> Tensor:
    return u[:-1, 1:].sum(0) - params["u0"][:-1].sum()


def dirichlet(u: Tensor, params: Params) -> Tensor:
    return u[0] - params["left"]


def neumann(u: Tensor, params: Params) -> Tensor:
    return u[-1] - u[-2]


def burgers_balance(u: Tensor, params: Params) -> Tensor:
    flux = 0.5 * u[-1] ** 2 - 0.5 * u[0] ** 2
    return DX * (u[:, 1:] - u[:, :-1]).sum(0) + 0.5 * DT * (flux[1:] + flux[:-1])


def burgers_mass(u: Tensor, params: Params) -> Tensor:
    return DX * u.sum(0) - DX * params["u0"].sum()


def burgers_flux(count: int) -> Equality:
    """Engquist–Osher flux rows of the first `count` time steps, dt / dx = 1."""

    def residual(u: Tensor, params: Params) -> Tensor:
        now = u[:, :count]
        root = torch.sqrt(now**2 + EPSILON**2)
        right, left = 0.5 * (now + root), 0.5 * (now - root)
        flux = 0.5 * right[:-1] ** 2 + 0.5 * left[1:] ** 2
        return u[1:-1, 1 : count + 1] - u[1:-1, :count] + (flux[1:] - flux[:-1])

    return Equality("flux", residual)


def reaction_diffusion_mass(u: Tensor, params: Params) -> Tensor:
    dx = 1 / (u.shape[0] - 1)
    total, source = dx * u.sum(0), dx * (u * (1 - u)).sum(0)
    left, right = -NU * (u[1] - u[0]) / dx, -NU * (u[-1] - u[-2]) / dx
    net = left - right
    balance = total[1:] - total[:-1]
    return balance - 0.5 * DT * RHO * (source[1:] + source[:-1]) - 0.5 * DT * (net[1:] + net[:-1])


def vorticity(u: Tensor, params: Params) -> Tensor:
    return u[..., 1:].sum((0, 1)) - params["u0"].sum()


def enstrophy(u: Tensor, params: Params) -> Tensor:
    return NS_DX**2 * (u[..., 1:] ** 2).sum((0, 1)) - NS_DX**2 * (params["u0"] ** 2).sum()


INITIAL = Equality("initial", initial)
HEAT = [INITIAL, Equality("mass", heat_mass)]
BURGERS_BC = [Equality("dirichlet", dirichlet), Equality("neumann", neumann), Equality("mass", burgers_balance)]
BURGERS_IC_MASS = [INITIAL, Equality("mass", burgers_mass)]
REACTION_DIFFUSION = [INITIAL, Equality("mass", reaction_diffusion_mass)]
NAVIER_STOKES = [INITIAL, Equality("vorticity", vorticity), Equality("enstrophy", enstrophy)]
