"""Training fields as tables: what an initial condition fixes goes down the rows, what it leaves open along the columns.

The training distribution of each equation, drawn as products like the paper's 80 initial states × 80 boundary values.
May import problems, which it asks for the fields of one row under the row's condition.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from snapfm.problems import burgers, heat, navier_stokes, reaction_diffusion
from snapfm.problems.base import Problem
from snapfm.problems.draws import uniform
from snapfm.seeds import base_seed, draw

_COLUMNS = 2**40  # keeps the columns' random numbers apart from those of the rows, which count from 0
RESOLUTION = 32  # points per axis of the Navier-Stokes simulation: a few 1e-4 off at worst, for a tenth of the time


def table(equation: str, rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Draw training fields of an equation (rows × columns, *shape), float64, row by row."""
    return _TABLES[equation](base_seed(generator), rows, columns)


def _heat(seed: int, rows: int, columns: int) -> Tensor:
    phases = draw(seed, 0, rows, lambda random: uniform(random, heat.PHASE))
    return _rows([heat.heat_ic_mass(phase=phase) for phase in phases.tolist()], seed, columns)


def _burgers(seed: int, rows: int, columns: int) -> Tensor:
    positions = draw(seed, 0, rows, lambda random: uniform(random, burgers.POSITION))
    return _rows([burgers.burgers_ic(position=position) for position in positions.tolist()], seed, columns)


def _reaction_diffusion(seed: int, rows: int, columns: int) -> Tensor:
    seeds = draw(seed, 0, rows, lambda random: torch.randint(2**31, (), generator=random))
    build = reaction_diffusion.reaction_diffusion_ic_mass
    return _rows([build(initial_seed=initial) for initial in seeds.tolist()], seed, columns)


def _navier_stokes(seed: int, rows: int, columns: int) -> Tensor:
    states = draw(seed, 0, rows, lambda random: navier_stokes.random_state(random, RESOLUTION))
    # One phase from each of as many equal parts: so few drawn freely would shift the mean of all fields.
    low, high = navier_stokes.FORCE_PHASE
    within = draw(seed, _COLUMNS, columns, lambda random: uniform(random, (0.0, 1.0)))
    phases = low + (high - low) * (torch.arange(columns) + within) / columns
    grid = navier_stokes.navier_stokes_grid()
    return navier_stokes.navier_stokes_fields(states.repeat_interleave(columns, 0), phases.repeat(rows), grid)


def _rows(problems: list[Problem], seed: int, columns: int) -> Tensor:
    """Simulate each row under its condition; what conditions leave open depends on the column alone."""
    return torch.cat([problem.draw_truth(seed, _COLUMNS, columns)[0] for problem in problems])


_TABLES: dict[str, Callable[[int, int, int], Tensor]] = {
    "heat": _heat,
    "burgers": _burgers,
    "reaction-diffusion": _reaction_diffusion,
    "navier-stokes": _navier_stokes,
}
