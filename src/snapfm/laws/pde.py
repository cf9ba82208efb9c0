"""PDEs at every grid point: the heat equation by three schemes, Burgers' equation by fluxes through cell faces and its entropy.

The implicit and spectral rows of the heat equation leave out the point that the periodic condition fixes. With it, their
sum over space would repeat the conservation of mass, and dependent rows have no unique multipliers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from snapfm.errors import LawError
from snapfm.grid import Grid
from snapfm.laws.base import Equality, Inequality, Params
from snapfm.laws.checks import Check, is_count

NumericalFlux: TypeAlias = Callable[[Tensor, Tensor], Tensor]
FluxName: TypeAlias = Literal["smoothed", "split", "godunov"]

SMOOTHING = 1e-6  # ε of the smoothed flux: far below the fields' order one, far above float64 rounding


def forward_euler(grid: Grid, diffusivity: float, steps: int | None = 5) -> Equality:
    """State u_t = κu_xx by forward Euler on the inner points of the first `steps` steps (math.md, eq. heat-euler).

    Fields are (nx, nt). Stable data need κ dt/dx² <= 1/2.
    """
    count = checked_steps(grid, steps, "forward_euler(steps)")
    dx, dt = grid.spacing("x"), grid.spacing("t")

    def residual(u: Tensor, params: Params) -> Tensor:
        now, later = u[:, :count], u[:, 1 : count + 1]
        return (later - now)[1:-1] / dt - diffusivity / dx**2 * _second_difference(now)

    return Equality("pde", residual)


def crank_nicolson(grid: Grid, steps: int | None = 5, param: str = "alpha") -> Equality:
    """State u_t = αu_xx by Crank–Nicolson with α = params[param] per sample (math.md, eq. heat-crank-nicolson).

    Fields are (nx, nt), the param is (b,); a row for each inner point of the first `steps` steps, all of them for
    None. Written as an increment, in the units of the field. Second order in dx and dt, stable for any α.
    """
    count = checked_steps(grid, steps, "crank_nicolson(steps)")
    ratio = grid.spacing("t") / (2.0 * grid.spacing("x") ** 2)

    def residual(u: Tensor, params: Params) -> Tensor:
        now, later = u[:, :count], u[:, 1 : count + 1]
        return (later - now)[1:-1] - ratio * params[param] * _second_difference(now + later)

    return Equality("pde", residual)


def heat_kernel(grid: Grid, steps: int | None = 5, param: str = "alpha") -> Equality:
    """Advance each slice to the next by the exact heat kernel, mode by mode (math.md, eq. heat-kernel).

    Fields are (nx, nt), the param is (b,). Every resolved solution obeys it to rounding. Each row reads a whole
    slice.
    """
    count = checked_steps(grid, steps, "heat_kernel(steps)")
    axis, dt = grid.axis("x"), grid.spacing("t")
    points = axis.size - 1
    base = 2.0 * math.pi / (axis.stop - axis.start)

    def residual(u: Tensor, params: Params) -> Tensor:
        waves = base * torch.arange(points // 2 + 1, dtype=u.dtype, device=u.device)
        decay = torch.exp(-params[param] * dt * waves**2)
        spectrum = torch.fft.rfft(u[:-1, :count], dim=0)
        moved: Tensor = torch.fft.irfft(decay[:, None] * spectrum, n=points, dim=0)
        return u[1:-1, 1 : count + 1] - moved[1:]

    return Equality("pde", residual)


def local_flux(grid: Grid, steps: int | None = 5, flux: FluxName = "smoothed") -> Equality:
    """State Burgers' equation: every inner point changes by the fluxes through its two faces (math.md, eq. flux).

    Fields are (nx, nt); nx − 2 rows per step. Covers the first `steps` time steps, all of them for None. Explicit in
    time with λ = dt/dx of the grid.
    """
    count = checked_steps(grid, steps, "local_flux(steps)")
    face = numerical_flux(flux)
    ratio = grid.spacing("t") / grid.spacing("x")

    def residual(u: Tensor, params: Params) -> Tensor:
        now, later = u[:, :count], u[1:-1, 1 : count + 1]
        through = face(now[:-1], now[1:])
        return later - now[1:-1] + ratio * (through[1:] - through[:-1])

    return Equality("flux", residual)


def oleinik(grid: Grid, convexity: float = 1.0) -> Inequality:
    """State Oleinik's entropy condition: no slope above 1/(Et), E = `convexity` <= f'' of the flux (math.md, eq. oleinik).

    Fields are (nx, nt); nx − 1 rows per time after the first. E = 1 is that of u²/2. Godunov's scheme spreads a
    rarefaction from its sonic corner half as fast: fields of the scheme obey E = 1/2 without exception, and E = 1 to
    first order in dx. There are no rows at t = 0, where any slope is allowed.
    """
    if not convexity > 0.0:
        raise LawError(f"oleinik(convexity) expects a positive number; got {convexity!r}. That of u²/2 is 1.")
    times = grid.axis("t").points()
    later = int((times <= 0.0).sum())
    rise = grid.spacing("x") / (convexity * times[later:])

    def residual(u: Tensor, params: Params) -> Tensor:
        return (u[1:, later:] - u[:-1, later:]) - rise.to(u)

    return Inequality("entropy", residual)


# Numerical fluxes F(left, right) of f(u) = u²/2, without branches on values so that they can be traced. The simulator of
# Burgers' equation uses the same functions.


def godunov(left: Tensor, right: Tensor) -> Tensor:
    """Return the exact Godunov flux of u²/2 (math.md, eq. godunov).

    It is the smallest u²/2 between left and right in a rarefaction and the largest in a shock. For a convex flux both equal
    the larger of the flux from the left state to the right and from the right state to the left. It is zero at a sonic
    rarefaction, so expansion shocks dissolve.
    """
    return 0.5 * torch.maximum(left.clamp(min=0.0) ** 2, right.clamp(max=0.0) ** 2)


def engquist_osher(left: Tensor, right: Tensor) -> Tensor:
    """Return the Engquist–Osher flux of u²/2 with smoothed parts ½(x ± √(x² + ε²)) (math.md, eq. engquist-osher).

    Smooth everywhere, and a sum of functions of one unknown each. Differs from Godunov's only at transonic shocks.
    """
    rightward = 0.5 * (left + torch.sqrt(left**2 + SMOOTHING**2))
    leftward = 0.5 * (right - torch.sqrt(right**2 + SMOOTHING**2))
    return 0.5 * rightward**2 + 0.5 * leftward**2


def split(left: Tensor, right: Tensor) -> Tensor:
    """Return the Engquist–Osher flux of u²/2 without smoothing (math.md, eq. engquist-osher with ε = 0).

    Its derivative is continuous, while Godunov's jumps at transonic shocks, where the nearest field may lie on a kink and takes
    more iterations. The two are equal everywhere else, so fields of one sign obey both.
    """
    return 0.5 * left.clamp(min=0.0) ** 2 + 0.5 * right.clamp(max=0.0) ** 2


FLUXES: dict[FluxName, NumericalFlux] = {"smoothed": engquist_osher, "split": split, "godunov": godunov}


def numerical_flux(name: FluxName) -> NumericalFlux:
    """Look up a numerical flux by name."""
    if name not in FLUXES:
        raise LawError(f"flux expects one of {sorted(FLUXES)}; got {name!r}. Use 'godunov' for the exact one.")
    return FLUXES[name]


def checked_steps(grid: Grid, steps: int | None, argument: str) -> int:
    """Return the number of time steps a law covers, all of them for None; `argument` is how the caller wrote it."""
    largest = grid.axis("t").size - 1
    if steps is None:
        return largest
    Check(
        lambda steps: is_count(steps) and steps <= largest, f"a whole number from 1 to {largest}, the steps of the grid",
        "Leave the law out for none, or give the grid more times.", LawError,
    ).apply(argument, steps)  # fmt: skip
    return steps


def _second_difference(u: Tensor) -> Tensor:
    """Take the second difference over x at the inner points."""
    return u[2:] - 2.0 * u[1:-1] + u[:-2]
