"""Monotone curves: dose and response. Responses rise from 0 to 1, never fall, and reach one half at a known dose."""

import torch
from show import show

import snapfm

DOSES, HALF = 64, 24  # one field is (64,): the response to each dose; one half is reached at dose 24

laws = [
    snapfm.Inequality("monotone", lambda u, p: u[:-1] - u[1:]),
    snapfm.Equality("ends", lambda u, p: torch.stack([u[0], u[-1] - 1.0])),
    snapfm.Equality("half", lambda u, p: u[HALF] - 0.5),
]
generator = torch.Generator().manual_seed(0)
dose = torch.arange(DOSES, dtype=torch.float64)
steepness = 2 + 6 * torch.rand(16, 1, generator=generator, dtype=torch.float64)
u_hat = torch.sigmoid((dose - 28) / steepness)
u_hat = u_hat + 0.08 * torch.randn(u_hat.shape, generator=generator, dtype=torch.float64)

project = snapfm.Projector(laws, (DOSES,))
result = project(u_hat).raise_for_status()


def draw(axes, u):
    """Draw the curve, and where it has to be one half."""
    axes.plot(dose, u, color="#2a6fb0")
    axes.plot([HALF], [0.5], "o", color="#111111", markersize=4)
    axes.set_ylim(-0.3, 1.3)
    axes.set_xlabel("dose")
    axes.set_ylabel("response")


show(__file__, project, u_hat, None, result, draw)
