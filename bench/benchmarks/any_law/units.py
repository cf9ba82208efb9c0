"""`python -m benchmarks.any_law.units [STEM …]`: the same problems in other units, with statuses as they were.

Every variable, or every unknown by itself, is written in units of a random power of ten, with the diagonal metric in which
nearest means what it did: the same mathematical problem. Prints the statuses of all cases, at the sizes for tests, and both
where they differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

import benchmarks.any_law.cases  # noqa: F401  registers the cases
from benchmarks.any_law.case import CASES, LEVELS, Case, Setting
from snapfm import Bounds, Equality, Inequality, Metric, Projector
from snapfm.laws import Law, Params

DECADES = 6  # units lie between 1e-6 and 1e6
SAMPLES = 2


def units_of(setting: Setting, by: str, seed: int) -> Tensor:
    """Draw a power of ten for every entry of a field's first axis (`by` "variable"), or for every unknown ("point")."""
    shape = tuple(setting.truth.shape[1:])
    own = shape if by == "point" else (shape[0], *[1] * (len(shape) - 1))
    power = torch.randint(-DECADES, DECADES + 1, own, generator=torch.Generator().manual_seed(seed))
    return (10.0 ** power.double()).expand(shape)


def rescaled(setting: Setting, units: Tensor) -> tuple[Setting, Metric]:
    """Write a setting for fields v = units · u; return the metric of v that is the plain one of u."""
    laws = tuple(_of_scaled(law, units) for law in setting.laws)
    return replace(setting, laws=laws, truth=setting.truth * units), Metric(units**2)


def _of_scaled(law: Law, units: Tensor) -> Law:
    if isinstance(law, Bounds):
        lower, upper = (None if limit is None else units * limit for limit in (law.lower, law.upper))
        return replace(law, lower=lower, upper=upper)
    assert isinstance(law, (Equality, Inequality))
    return replace(law, function=_function(law.function, units))


def _function(function: Callable[[Tensor, Params], Tensor], units: Tensor) -> Callable[[Tensor, Params], Tensor]:
    return lambda v, params: function(v / units, params)


def statuses(case: Case, by: str | None, seed: int = 0) -> dict[str, list[int]]:
    """Project a case at its size for tests; return the statuses of its samples by level."""
    setting, found = case.setting(case.tiny, SAMPLES), dict[str, list[int]]()
    inputs = {level: case.input(setting, level) for level in LEVELS}
    metric = None
    if by is not None:
        units = units_of(setting, by, seed)
        setting, metric = rescaled(setting, units)
        inputs = {level: u_hat * units for level, u_hat in inputs.items()}
    example = {name: value[:1] for name, value in setting.params.items()}
    tolerance = {law.name: case.tolerance for law in setting.laws if not isinstance(law, Bounds)}
    shape = setting.truth.shape[1:]
    project = Projector(setting.laws, shape, example, tolerance, metric=metric, seconds=20.0, progress=False)
    for level, u_hat in inputs.items():
        found[level] = project(u_hat, setting.params).status.tolist()
    return found


def main() -> None:
    """Compare all cases, or those of some stems."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stem", nargs="*")
    parser.add_argument("--by", choices=("variable", "point"), default="variable")
    asked = parser.parse_args()
    first = {case.stem: case for case in CASES.values()}
    for stem in asked.stem or first:
        plain, other = (statuses(first[stem], by) for by in (None, asked.by))
        print(f"{stem}: {plain if plain == other else f'{plain} in its units, {other} in others'}", flush=True)


if __name__ == "__main__":
    main()
