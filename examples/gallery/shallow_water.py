"""Shallow water: a dam breaks. Mass and momentum balance in every cell and time step, and the water is nowhere dry."""

import torch
from show import show, smooth

import snapfm

CELLS, STEPS, RATIO = 48, 24, 0.4  # one field is (2, 48, 24): depth and momentum; RATIO is dt/dx


def advance(u):
    """One Lax–Friedrichs step of the inner cells: (…, 2, cells, steps) to (…, 2, cells − 2, steps)."""
    depth, momentum = u.unbind(-3)
    flux = torch.stack([momentum, momentum**2 / depth + 0.5 * depth**2], dim=-3)
    return 0.5 * (u[..., 2:, :] + u[..., :-2, :]) - 0.5 * RATIO * (flux[..., 2:, :] - flux[..., :-2, :])


laws = [
    snapfm.Equality("balance", lambda u, p: u[:, 1:-1, 1:] - advance(u[..., :-1])),
    snapfm.Equality("initial", lambda u, p: u[..., 0] - p["u0"]),
    snapfm.Bounds(lower=torch.tensor([0.001, -torch.inf]).reshape(2, 1, 1)),
]
# The guess: the dam has not broken yet at any time, and ripples cover everything.
generator = torch.Generator().manual_seed(0)
height = torch.where(torch.arange(CELLS) < CELLS // 2, 1.0, 0.4).double() + 0.05 * smooth(8, CELLS, generator=generator)
u0 = torch.stack([height, torch.zeros_like(height)], dim=1)
u_hat = u0[..., None] + 0.02 * smooth(8, 2, CELLS, STEPS, generator=generator, axes=(-2, -1))
params = {"u0": u0}

project = snapfm.Projector(laws, (2, CELLS, STEPS), params)
result = project(u_hat, params).raise_for_status()


def draw(axes, u):
    """Draw the depth over space at some times, later ones darker."""
    for step in range(0, STEPS, 5):
        axes.plot(u[0, :, step], color="#2a6fb0", alpha=0.25 + 0.75 * step / STEPS)
    axes.set_ylim(0.2, 1.2)
    axes.set_xlabel("x")
    axes.set_ylabel("depth")


show(__file__, project, u_hat, params, result, draw)
