"""Probability densities: nowhere negative, one in total, with the mean and the covariance that are known."""

import torch
from show import show, smooth

import snapfm

N = 32  # points along each axis of [−1, 1]²; one field is (32, 32): a density
X = torch.linspace(-1, 1, N, dtype=torch.float64)
CELL = (2 / (N - 1)) ** 2


def moments(u):
    """The means of x, y, x², y² and xy under a density."""
    in_x, in_y = u.sum(1) * CELL, u.sum(0) * CELL
    return torch.stack([in_x @ X, in_y @ X, in_x @ X**2, in_y @ X**2, X @ u @ X * CELL])


laws = [
    snapfm.Equality("total", lambda u, p: u.sum() * CELL - 1.0),
    snapfm.Equality("moments", lambda u, p: moments(u) - p["moments"]),
    snapfm.Bounds(lower=0.0, name="positive"),
]
# The guess: the right bump with smooth errors and noise, negative in many places.
generator = torch.Generator().manual_seed(0)
bump = torch.exp(-((X[:, None] - 0.2) ** 2 + (X - 0.1) ** 2 + X[:, None] * X) / 0.1)
bump = bump / (bump.sum() * CELL)
params = {"moments": moments(bump)[None]}
u_hat = bump + 0.3 * smooth(16, N, N, generator=generator, axes=(-2, -1))
u_hat += 0.1 * torch.randn(u_hat.shape, generator=generator, dtype=torch.float64)

project = snapfm.Projector(laws, (N, N), params)
result = project(u_hat, params).raise_for_status()


def draw(axes, u):
    """Draw the density; what is negative is red."""
    axes.imshow(u.T.numpy(), origin="lower", cmap="RdBu", vmin=-2, vmax=2)
    axes.set_xticks([])
    axes.set_yticks([])


show(__file__, project, u_hat, params, result, draw)
