"""Rotations: the poses of rigid bodies. RᵀR = I for every 3 × 3 matrix of a stack, from matrices that stretch and shear."""

import torch
from show import show

import snapfm

COUNT = 9  # bodies; one field is (9, 3, 3)
UPPER = torch.triu_indices(3, 3)  # RᵀR is symmetric: six of its nine entries say everything


def orthogonal(r, p):
    """The upper triangles of RᵀR − I."""
    gram = r.transpose(1, 2) @ r - torch.eye(3, dtype=r.dtype)
    return gram[:, UPPER[0], UPPER[1]]


laws = [snapfm.Equality("orthogonal", orthogonal)]
generator = torch.Generator().manual_seed(0)
true = torch.linalg.qr(torch.randn(16, COUNT, 3, 3, generator=generator, dtype=torch.float64)).Q
true = true * torch.linalg.det(true)[..., None, None]  # no mirror images
u_hat = true + 0.2 * torch.randn(true.shape, generator=generator, dtype=torch.float64)

project = snapfm.Projector(laws, (COUNT, 3, 3))
result = project(u_hat).raise_for_status()


def draw(axes, r):
    """Draw the unit cube as each matrix maps it, seen from above."""
    corners = torch.tensor([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=torch.float64)
    edges = [(i, j) for i in range(8) for j in range(i) if (corners[i] - corners[j]).abs().sum() == 2]
    for body, matrix in enumerate(r):
        x, y, _ = (corners @ matrix.T + torch.tensor([4.0 * (body % 3), 4.0 * (body // 3), 0.0])).T
        for i, j in edges:
            axes.plot([x[i], x[j]], [y[i], y[j]], color="#2a6fb0", linewidth=1)
    axes.set_aspect("equal")
    axes.axis("off")


show(__file__, project, u_hat, None, result, draw)
