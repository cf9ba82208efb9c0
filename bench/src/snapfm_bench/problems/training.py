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

from snapfm.seeds import base_seed, draw
from snapfm_bench.problems import burgers, heat, navier_stokes, reaction_diffusion
from snapfm_bench.problems.base import Problem, uniform

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

# Those of plain models. They see more initial states of reaction-diffusion, since nothing else makes them follow new ones.
PLAIN_SETS = {
    "heat": TrainingSet(steps=8_000, rows=100, columns=100),
    "burgers": TrainingSet(steps=10_000, rows=80, columns=80),
    "reaction-diffusion": TrainingSet(steps=10_000, rows=640, columns=16),
    "navier-stokes": TrainingSet(steps=8_000, rows=1024, columns=1, truth=4096),
}
IMAGES = {"heat": 2, "burgers": 1, "reaction-diffusion": 2, "navier-stokes": 8}  # of each field, see with_images


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


# Settings of the problem whose training distribution a plain model learns, where they differ from the defaults.
PLAIN_SETTINGS: dict[str, dict[str, Any]] = {"navier-stokes": {"training": "wide", "resolution": RESOLUTION}}


def table(equation: str, rows: int, columns: int, generator: torch.Generator, plain: bool = False) -> Tensor:
    """Draw training fields of an equation (rows × columns, *shape), float64, row by row.

    What a row's condition leaves open depends on the column alone. A plain model needs no such columns: for Navier–Stokes
    it gets flows from wide initial states, each with its own forcing.
    """
    seed = base_seed(generator)
    if equation == "navier-stokes":
        return _wide_navier_stokes(seed, rows, columns) if plain else _navier_stokes(seed, rows, columns)
    condition, build, setting = _CONDITIONS[equation]
    problems = [build(**{setting: value}) for value in draw(seed, 0, rows, condition).tolist()]
    return torch.cat([problem.draw_truth(seed, _COLUMNS, columns)[0] for problem in problems])


def _navier_stokes(seed: int, rows: int, columns: int) -> Tensor:
    states = draw(seed, 0, rows, lambda random: navier_stokes.random_state(random, RESOLUTION))
    phases = _phases(seed, columns)
    grid = navier_stokes.navier_stokes_grid()
    return navier_stokes.navier_stokes_fields(states.repeat_interleave(columns, 0), phases.repeat(rows), grid)


def _wide_navier_stokes(seed: int, rows: int, columns: int) -> Tensor:
    states = draw(seed, 0, rows, lambda random: navier_stokes.wide_state(random, RESOLUTION))
    phases = _phases(seed, rows * columns).view(columns, rows).T.flatten()  # those of a row lie in distant parts
    grid = navier_stokes.navier_stokes_grid()
    return navier_stokes.navier_stokes_fields(states.repeat_interleave(columns, 0), phases, grid)


def _phases(seed: int, count: int) -> Tensor:
    """Draw one forcing phase from each of `count` equal parts: so few drawn freely would shift the mean of all fields."""
    low, high = navier_stokes.FORCE_PHASE
    within = draw(seed, _COLUMNS, count, lambda random: uniform(random, (0.0, 1.0)))
    return low + (high - low) * (torch.arange(count) + within) / count


def with_images(equation: str, fields: Tensor, seed: int) -> Tensor:
    """Add fields that are as likely as the given ones (b, *shape), by the symmetries of the training distribution.

    Heat and reaction–diffusion: the mirror image in x. Navier–Stokes: some of the 64 images of each flow. Burgers has none.
    Plain models learn from more fields in this way, at no cost of simulation.
    """
    images = IMAGES[equation]
    if equation != "navier-stokes":
        return torch.cat([fields, fields.flip(1)][:images])
    picks = draw(seed, 2 * _COLUMNS, len(fields) * images, lambda random: torch.randint(2**31, (3,), generator=random))
    return torch.stack([_flow_image(fields[i // images], *pick) for i, pick in enumerate(picks.tolist())])


def _flow_image(flow: Tensor, shift: int, turn: int, mirror: int) -> Tensor:
    """Return a flow (n, n, nt) that obeys the equation too: shifted along the forcing's crests, turned or mirrored.

    The forcing sin(2π(x + y) + φ) does not change along the antidiagonal. A half turn, followed by a quarter of its period,
    takes φ to π/2 − φ, which is as likely. Swapping the axes reverses the vorticity; half a period makes up for it.
    """
    n = len(flow)
    flow = torch.roll(flow, (shift % n, -shift % n), (0, 1))
    if turn % 2:
        flow = torch.roll(flow.flip(0, 1), (1 + n // 4, 1), (0, 1))  # a flip takes point j to n − 1 − j, not to −j
    if mirror % 2:
        flow = torch.roll(-flow.transpose(0, 1), n // 2, 0)
    return flow
