"""Molecules: a chain of atoms with fixed bond lengths and angles, its center at the origin, and no two atoms too close."""

from itertools import pairwise

import torch
from show import show

import snapfm

ATOMS, BOND, ANGLE, CLOSEST = 20, 1.0, 1.6, 1.2  # ANGLE: the distance to the next atom but one; one field is (20, 3)
ONE, OTHER = torch.triu_indices(ATOMS, ATOMS, offset=3)  # pairs that neither a bond nor an angle joins

laws = [
    snapfm.Equality("bonds", lambda x, p: (x[1:] - x[:-1]).square().sum(-1) - BOND**2),
    snapfm.Equality("angles", lambda x, p: (x[2:] - x[:-2]).square().sum(-1) - ANGLE**2),
    snapfm.Equality("center", lambda x, p: x.mean(0)),
    snapfm.Inequality("clash", lambda x, p: CLOSEST**2 - (x[ONE] - x[OTHER]).square().sum(-1)),
]
# The guess: a random walk that leans one way, with noise.
generator = torch.Generator().manual_seed(0)
step = 0.6 * torch.randn(16, ATOMS, 3, generator=generator, dtype=torch.float64) + torch.tensor([0.7, 0.0, 0.0])
u_hat = torch.cumsum(step, dim=1)
u_hat = u_hat - u_hat.mean(1, keepdim=True)

project = snapfm.Projector(laws, (ATOMS, 3))
result = project(u_hat).raise_for_status()


def draw(axes, x):
    """Draw the chain from above; bonds of the wrong length are orange."""
    for one, other in pairwise(x):
        right = abs(float((other - one).norm()) - BOND) < 1e-3
        axes.plot([one[0], other[0]], [one[1], other[1]], color="#2a6fb0" if right else "#d1662c", linewidth=2)
    axes.scatter(x[:, 0], x[:, 1], s=60, color="#e5e7eb", edgecolor="#374151", zorder=3)
    axes.set_aspect("equal")
    axes.axis("off")


show(__file__, project, u_hat, None, result, draw)
