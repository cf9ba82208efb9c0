"""The parts of a layout that all files of a problem share: about the problem, its fields, and what was drawn for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from snapfm.data.source import Variable
from snapfm.data.words import FIELDS, PARAMS, UNITS
from snapfm.errors import DataError
from snapfm.grid import Grid
from snapfm.problems import Problem


def about(problem: Problem) -> dict[str, Any]:
    """Name a problem, its equation and its laws, as attributes of a file."""
    return {
        "problem": problem.name,
        "equation": problem.equation,
        "summary": problem.summary,
        "laws": [law.name for law in problem.laws],
    }


def field(problem: Problem, dtype: str) -> Variable:
    """Describe the fields of a problem."""
    words = {"long_name": FIELDS[problem.equation], "units": UNITS}
    return Variable(dtype, words, problem.grid.shape, tuple(axis.name for axis in problem.grid.axes))


def drawn(grid: Grid, example: Mapping[str, Tensor], dtype: str) -> dict[str, Variable]:
    """Describe what was drawn for each field; the example has a leading batch axis."""
    variables = {}
    for name, value in example.items():
        shape = tuple(value.shape[1:])
        words = {"long_name": PARAMS[name], "units": UNITS}
        variables[name] = Variable(dtype, words, shape, _space(grid, shape, name))
    return variables


def _space(grid: Grid, shape: tuple[int, ...], name: str) -> tuple[str, ...]:
    """Name the axes of a drawn value: none for a number, those of space for a state."""
    space = grid.axes[:-1]
    if shape == ():
        return ()
    if shape == tuple(axis.size for axis in space):
        return tuple(axis.name for axis in space)
    raise DataError(
        f"problem.draw_… expects '{name}' to be a number or a state {[axis.size for axis in space]} per sample; "
        f"got shape {list(shape)}. Draw it in one of these shapes."
    )
