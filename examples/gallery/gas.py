"""Compressible gas: a shock tube that conserves mass, momentum and energy, with positive density and positive pressure."""

import torch
from show import show

import snapfm

CELLS, STEPS, RATIO, GAMMA = 48, 20, 0.3, 1.4  # one field is (3, 48, 20): density, momentum, energy; RATIO is dt/dx


def pressure(u):
    """What is left of the energy without motion."""
    density, momentum, energy = u.unbind(-3)
    return (GAMMA - 1) * (energy - 0.5 * momentum**2 / density)


def advance(u):
    """One Lax–Friedrichs step of the inner cells: (…, 3, cells, steps) to (…, 3, cells − 2, steps)."""
    density, momentum, energy = u.unbind(-3)
    speed, push = momentum / density, pressure(u)
    flux = torch.stack([momentum, momentum * speed + push, (energy + push) * speed], dim=-3)
    return 0.5 * (u[..., 2:, :] + u[..., :-2, :]) - 0.5 * RATIO * (flux[..., 2:, :] - flux[..., :-2, :])


laws = [
    snapfm.Equality("conservation", lambda u, p: u[:, 1:-1, 1:] - advance(u[..., :-1])),
    snapfm.Inequality("pressure", lambda u, p: 0.001 - pressure(u)),
    snapfm.Bounds(lower=torch.tensor([0.001, -torch.inf, -torch.inf]).reshape(3, 1, 1), name="density"),
]
# The guess: a true run of the shock tube, spoiled by noise in every cell.
generator = torch.Generator().manual_seed(0)
left = torch.arange(CELLS) < CELLS // 2
jump = 0.8 + 0.4 * torch.rand(8, 1, generator=generator, dtype=torch.float64)
density, push = torch.where(left, jump, 0.125), torch.where(left, jump, 0.1)
slices = [torch.stack([density, torch.zeros_like(density), push / (GAMMA - 1)], dim=1)[..., None]]
for _ in range(STEPS - 1):
    inner = advance(slices[-1])
    slices.append(torch.cat([inner[:, :, :1], inner, inner[:, :, -1:]], dim=2))
u_hat = torch.cat(slices, dim=-1)
u_hat = u_hat + 0.05 * torch.randn(u_hat.shape, generator=generator, dtype=torch.float64)

project = snapfm.Projector(laws, (3, CELLS, STEPS))
result = project(u_hat).raise_for_status()


def draw(axes, u):
    """Draw density and pressure at the last step."""
    axes.plot(u[0, :, -1], color="#2a6fb0", label="density")
    axes.plot(pressure(u)[:, -1], color="#c2410c", label="pressure")
    axes.axhline(0, color="#6b7280", linewidth=0.8)
    axes.set_ylim(-0.2, 1.4)
    axes.set_xlabel("x")
    axes.legend(frameon=False, fontsize=8)


show(__file__, project, u_hat, None, result, draw)
