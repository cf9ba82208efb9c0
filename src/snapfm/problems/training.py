"""Training sets of each equation: their size, and their fields as a table of rows × columns.

Rows differ in what an initial condition fixes, columns in what it leaves open, like the paper's 80 initial states × 80
boundary values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from snapfm.problems import burgers, heat, navier_stokes, reaction_diffusion
from snapfm.problems.base import Problem, uniform
from snapfm.seeds import base_seed, draw

_COLUMNS = 2**40  # index of the first column's random stream; those of the rows count from 0
RESOLUTION = 32  # points per axis of the Navier-Stokes simulation: a few 1e-4 off at worst, for a tenth of the time


@dataclass(frozen=True)
class TrainingSet:
    """What a model of an equation is trained on, and for how many steps, unless the options say otherwise.

    Fields come as a table of rows × columns; `imposed` names the axes along which laws fix the first slice. `truth`
    counts the fresh fields that samples are compared with: more than the samples, so that their mean is more accurate.
    """

    steps: int
    rows: int
    columns: int
    imposed: tuple[int, ...] = (-1,)
    truth: int = 4096
    small: Mapping[str, Any] = field(default_factory=dict)  # further training settings of the small network

    @property
    def pairing(self) -> Literal["rows", "crossed"]:
        """How noise is paired: laws that fix one axis fix the rows; laws that fix two fix rows or columns."""
        return "rows" if len(self.imposed) == 1 else "crossed"


# As many fields as the paper's, but for Navier-Stokes, whose simulation would take longer than the training, and
# reaction-diffusion, where noise has to be paired with two fluxes within a row.
TRAINING_SETS = {
    "heat": TrainingSet(steps=3000, rows=100, columns=100),
    "burgers": TrainingSet(
        steps=4000, rows=80, columns=80, imposed=(-1, 0), small={"pairing": "crossed", "own": 0.25, "least_gap": 0.1}
    ),
    "reaction-diffusion": TrainingSet(steps=3000, rows=320, columns=32),
    "navier-stokes": TrainingSet(steps=3000, rows=500, columns=8, truth=512),
}


# How the first three equations draw what an initial condition fixes, and which setting of which builder imposes it.
_CONDITIONS: dict[str, tuple[Callable[[torch.Generator], Tensor], Callable[..., Problem], str]] = {
    "heat": (lambda random: uniform(random, heat.PHASE), heat.heat_ic_mass, "phase"),
    "burgers": (lambda random: uniform(random, burgers.POSITION), burgers.burgers_ic, "position"),
    "reaction-diffusion": (
        lambda random: torch.randint(2**31, (), generator=random),
        reaction_diffusion.reaction_diffusion_ic_mass,
        "initial_seed",
    ),
}


def table(equation: str, rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Draw training fields of an equation (rows × columns, *shape), float64, row by row.

    What a row's condition leaves open depends on the column alone.
    """
    seed = base_seed(generator)
    if equation == "navier-stokes":
        return _navier_stokes(seed, rows, columns)
    condition, build, setting = _CONDITIONS[equation]
    problems = [build(**{setting: value}) for value in draw(seed, 0, rows, condition).tolist()]
    return torch.cat([problem.draw_truth(seed, _COLUMNS, columns)[0] for problem in problems])


def _navier_stokes(seed: int, rows: int, columns: int) -> Tensor:
    states = draw(seed, 0, rows, lambda random: navier_stokes.random_state(random, RESOLUTION))
    # One phase from each of as many equal parts: so few drawn freely would shift the mean of all fields.
    low, high = navier_stokes.FORCE_PHASE
    within = draw(seed, _COLUMNS, columns, lambda random: uniform(random, (0.0, 1.0)))
    phases = low + (high - low) * (torch.arange(columns) + within) / columns
    grid = navier_stokes.navier_stokes_grid()
    return navier_stokes.navier_stokes_fields(states.repeat_interleave(columns, 0), phases.repeat(rows), grid)
