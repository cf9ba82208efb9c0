"""How a data file describes the fields of a problem: variables, coordinates and attributes, after the CF conventions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from snapfm.errors import DataError
from snapfm.files.layout import UNITS, Coordinate, Variable
from snapfm.grid import Grid
from snapfm_bench.problems import Problem

# Descriptions of the variables of a file, by name. All quantities are dimensionless, as the equations are.
FIELDS = {
    "heat": "temperature",
    "burgers": "velocity",
    "reaction-diffusion": "concentration",
    "navier-stokes": "vorticity",
}
AXES = {"x": "position along x", "y": "position along y", "t": "physical time"}
PARAMS = {
    "u0": "initial state",
    "alpha": "diffusivity",
    "phase": "phase of the initial sine",
    "position": "position of the initial step",
    "left": "value at the left end",
    "flux_left": "diffusive flux at the left end, along x",
    "flux_right": "diffusive flux at the right end, along x",
    "force_phase": "phase of the forcing",
}


def about(problem: Problem) -> dict[str, Any]:
    """Return the name, equation and laws of a problem as attributes of a file."""
    return {
        "problem": problem.name,
        "equation": problem.equation,
        "summary": problem.summary,
        "laws": [law.name for law in problem.laws],
    }


def coordinates(grid: Grid) -> tuple[Coordinate, ...]:
    """Describe the axes of a grid."""
    return tuple(
        Coordinate(
            axis.name,
            axis.points().numpy(),
            {"long_name": AXES[axis.name], "units": UNITS, "spacing": axis.spacing, "periodic": axis.periodic},
        )
        for axis in grid.axes
    )


def field_variable(problem: Problem, dtype: str) -> Variable:
    """Describe the fields of a problem."""
    words = {"long_name": FIELDS[problem.equation], "units": UNITS}
    return Variable(dtype, words, problem.grid.shape, tuple(axis.name for axis in problem.grid.axes))


def drawn(grid: Grid, example: Mapping[str, Tensor], dtype: str) -> dict[str, Variable]:
    """Describe the values drawn for each field: numbers, or states over space. The example has a leading batch axis."""
    space = {(): (), tuple(axis.size for axis in grid.axes[:-1]): tuple(axis.name for axis in grid.axes[:-1])}
    variables = {}
    for name, value in example.items():
        shape = tuple(value.shape[1:])
        if shape not in space:
            raise DataError(
                f"problem.draw_… expects '{name}' to be a number or a state {[axis.size for axis in grid.axes[:-1]]} per "
                f"sample; got shape {list(shape)}. Draw it in one of these shapes."
            )
        variables[name] = Variable(dtype, {"long_name": PARAMS[name], "units": UNITS}, shape, space[shape])
    return variables
