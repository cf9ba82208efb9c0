"""Incompressible flow: nothing piles up in any cell, and the flow has the kinetic energy that was measured."""

import torch
from show import show, smooth

import snapfm

# One field is (2, 32, 32): the velocities through the faces of a periodic grid.
laws = [
    snapfm.Equality("divergence", lambda u, p: (u[0] - u[0].roll(1, 0)) + (u[1] - u[1].roll(1, 1))),
    snapfm.Equality("energy", lambda u, p: 0.5 * u.square().sum() / 32**2 - p["energy"]),
]
generator = torch.Generator().manual_seed(0)
u_hat = smooth(16, 2, 32, 32, generator=generator, axes=(-2, -1))
u_hat += 0.2 * torch.randn(u_hat.shape, generator=generator, dtype=torch.float64)
params = {"energy": torch.linspace(0.8, 0.4, 16, dtype=torch.float64)}  # one measurement per sample

project = snapfm.Projector(laws, (2, 32, 32), params)
result = project(u_hat, params).raise_for_status()


def draw(axes, u):
    """Draw arrows over the divergence of each cell."""
    across, along = u
    pile = (across - across.roll(1, 0)) + (along - along.roll(1, 1))
    axes.imshow(pile.T.numpy(), origin="lower", cmap="RdBu", vmin=-1, vmax=1)
    axes.quiver(
        range(0, 32, 2), range(0, 32, 2), across.T[::2, ::2].numpy(), along.T[::2, ::2].numpy(), scale=25, width=0.006
    )
    axes.set_xticks([])
    axes.set_yticks([])


show(__file__, project, u_hat, params, result, draw)
