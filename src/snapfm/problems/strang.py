"""Simulate u_t = ρu(1 − u) + νu_xx with given boundary fluxes by Strang splitting, a whole batch at once.

Both halves are solved exactly: the logistic reaction point by point, and the diffusion of finite volumes around the
grid points (half cells at the ends) in its cosine modes. What remains is the splitting, of second order in dt, and the
finite volumes, of second order in dx. numpy inside, because torch has no cosine transform.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy.fft
import torch
from torch import Tensor

from snapfm.grid import Grid

Array = npt.NDArray[np.float64]


def strang_fields(
    grid: Grid, start: Tensor, flux: Tensor, rate: float, diffusivity: float, substeps: int = 1
) -> Tensor:
    """Evolve start (b, nx) with fluxes −νu_x = (g_L, g_R) at the ends (b, 2); give (b, nx, nt).

    The trapezoidal mass grows by g_L − g_R per unit of time to rounding, apart from the reaction (math.md, eq.
    reaction-diffusion). `substeps` divide the time between two slices.
    """
    step = grid.spacing("t") / substeps
    decay, gain = _diffusion(grid, diffusivity, step)
    inflow = _inverse(gain * _boundary(grid, flux.numpy()))
    u = start.numpy().copy()
    slices = [u]
    for _ in range(grid.axis("t").size - 1):
        for _ in range(substeps):
            u = react(u, rate, 0.5 * step)
            u = _inverse(decay * _forward(u)) + inflow
            u = react(u, rate, 0.5 * step)
        slices.append(u)
    return torch.from_numpy(np.stack(slices, axis=2))


def react(u: Array, rate: float, step: float) -> Array:
    """Solve u' = ρu(1 − u) exactly over one step."""
    growth = math.exp(rate * step)
    return u * growth / (1.0 + u * (growth - 1.0))


def _diffusion(grid: Grid, diffusivity: float, step: float) -> tuple[Array, Array]:
    """Give, per cosine mode, what is left of it after a step and what a steady source of size one adds to it."""
    axis = grid.axis("x")
    half_angle = 0.5 * np.pi * np.arange(axis.size) / (axis.size - 1)
    exponent = -step * diffusivity * (2.0 / axis.spacing * np.sin(half_angle)) ** 2
    exponent[0] = -1.0  # the mean does not decay; any number keeps the quotient below finite
    decay, gain = np.exp(exponent), step * np.expm1(exponent) / exponent
    decay[0], gain[0] = 1.0, step
    return decay, gain


def _boundary(grid: Grid, flux: Array) -> Array:
    """Give the cosine modes of the boundary fluxes, spread over the half cells at the ends."""
    axis = grid.axis("x")
    alternating = np.where(np.arange(axis.size) % 2, -1.0, 1.0)
    return 2.0 / axis.spacing * (flux[:, :1] - alternating * flux[:, 1:])


def _forward(u: Array) -> Array:
    return np.asarray(scipy.fft.dct(u, type=1, axis=1))


def _inverse(modes: Array) -> Array:
    return np.asarray(scipy.fft.idct(modes, type=1, axis=1))
