"""Darcy flow: permeability a and pressure p of a porous medium, together. −∇·(a∇p) = 10, p = 0 at the edge, a ≥ 0.1."""

import torch
from show import show, smooth

import snapfm

N = 32  # points along each axis of the unit square; one field is (2, N, N): permeability and pressure


def balance(u, params):
    """What flows out of each inner point, minus the source."""
    a, p = u
    across = 0.5 * (a[1:] + a[:-1]) * (p[1:] - p[:-1]) * (N - 1)
    along = 0.5 * (a[:, 1:] + a[:, :-1]) * (p[:, 1:] - p[:, :-1]) * (N - 1)
    outflow = -(across[1:, 1:-1] - across[:-1, 1:-1]) - (along[1:-1, 1:] - along[1:-1, :-1])
    return outflow * (N - 1) - 10.0


laws = [
    snapfm.Equality("darcy", balance),
    snapfm.Equality("edge", lambda u, params: torch.cat([u[1, 0], u[1, -1], u[1, 1:-1, 0], u[1, 1:-1, -1]])),
    snapfm.Bounds(lower=torch.tensor([0.1, -torch.inf]).reshape(2, 1, 1)),
]
# The guess: a random permeability, and a pressure that knows nothing of it, with noise.
generator = torch.Generator().manual_seed(0)
a = torch.exp(0.5 * smooth(8, N, N, generator=generator, axes=(-2, -1)))
arch = torch.sin(torch.pi * torch.linspace(0, 1, N, dtype=torch.float64))
u_hat = torch.stack([a, (0.6 * arch[:, None] * arch).expand_as(a)], dim=1)
u_hat += 0.05 * torch.randn(u_hat.shape, generator=generator, dtype=torch.float64)

project = snapfm.Projector(laws, (2, N, N))
result = project(u_hat).raise_for_status()


def draw(axes, u):
    """Draw the pressure as lines over the permeability."""
    axes.imshow(u[0].T.numpy(), origin="lower", cmap="YlGnBu", vmin=0, vmax=3)
    axes.contour(u[1].T.numpy(), levels=8, colors="black", linewidths=0.7)
    axes.set_xticks([])
    axes.set_yticks([])


show(__file__, project, u_hat, None, result, draw)
