"""Simulate u_t + ½(u²)_x = 0 by Godunov's finite volumes, a whole batch at once.

Every grid point is a cell. The first cell holds the left value, the last copies its neighbour; the cells between them
change by what flows through their faces, so their mass is balanced to rounding. The face flux is the one of the laws.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from snapfm.grid import Grid
from snapfm.laws.flux import godunov

FirstSlice: TypeAlias = Literal["initial", "boundary"]

_COURANT = 1.0  # Godunov's scheme is monotone as long as no wave crosses more than one cell per sub-step
_TILE = 256  # samples at once: larger arrays leave the cache, and torch splits them among threads at a loss
_ROUNDING = 1e-9  # dt/dx of equal spacings may round to just above one, which must not cost a second sub-step


def godunov_fields(grid: Grid, start: Tensor, left: Tensor, first: FirstSlice = "initial") -> tuple[Tensor, Tensor]:
    """Evolve start (b, nx) with left values (b,) to fields (b, nx, nt) and outflow (b, nt − 1) (math.md, eq. burgers).

    The outflow is the time integral of the face fluxes, right minus left, around the inner cells: their mass falls by
    it. Where initial and boundary values disagree at the ends of the first slice, `first` says which it shows.
    Sub-steps are counted per sample from its own largest speed, which never grows.
    """
    speed = torch.maximum(start.abs().amax(1), left.abs())
    courant = speed * grid.spacing("t") / grid.spacing("x") / _COURANT
    substeps = torch.ceil(courant - _ROUNDING).clamp(min=1).long()
    fields = start.new_empty(*start.shape, grid.axis("t").size)
    outflow = start.new_empty(len(start), grid.axis("t").size - 1)
    for count in sorted(set(substeps.tolist())):
        members = torch.nonzero(substeps == count)[:, 0]
        for tile in range(0, len(members), _TILE):
            group = members[tile : tile + _TILE]
            fields[group], outflow[group] = _evolve(grid, start[group], left[group], first, count)
    return fields, outflow


def _evolve(grid: Grid, start: Tensor, left: Tensor, first: FirstSlice, substeps: int) -> tuple[Tensor, Tensor]:
    dx, dt = grid.spacing("x"), grid.spacing("t") / substeps
    u = start.clone()
    if first == "boundary":
        _bound(u, left)
    slices, outflows = [u.clone()], []
    for _ in range(grid.axis("t").size - 1):
        outflow = u.new_zeros(len(u))
        for _ in range(substeps):
            through = godunov(u[:, :-1], u[:, 1:])
            u[:, 1:-1] -= dt / dx * (through[:, 1:] - through[:, :-1])
            outflow += dt * (through[:, -1] - through[:, 0])
            _bound(u, left)
        slices.append(u.clone())
        outflows.append(outflow)
    return torch.stack(slices, dim=2), torch.stack(outflows, dim=1)


def _bound(u: Tensor, left: Tensor) -> None:
    """Impose the left value and the right zero gradient. Written: u."""
    u[:, 0] = left
    u[:, -1] = u[:, -2]
