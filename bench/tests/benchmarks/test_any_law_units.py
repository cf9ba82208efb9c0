"""Cases of the any-law benchmark in other units: the same problem, with the same statuses."""

from __future__ import annotations

import pytest
import torch
from benchmarks.any_law.case import CASES, broken
from benchmarks.any_law.units import rescaled, statuses, units_of

# One case of every kind; `python -m benchmarks.any_law.units` compares all of them.
STEMS = ("bounded_heat", "shallow_water", "unit_vectors", "total_variation", "schrodinger_steps", "particles")


@pytest.mark.parametrize("by", ["variable", "point"])
@pytest.mark.parametrize("stem", STEMS)
def test_statuses_do_not_depend_on_units(stem: str, by: str):
    case = next(one for one in CASES.values() if one.stem == stem)
    assert statuses(case, by, seed=1) == statuses(case, None)


def test_it_is_the_same_problem():
    case = CASES["unit_vectors_32"]
    setting = case.setting(case.tiny, 2)
    units = units_of(setting, "point", 0)
    assert units.shape == setting.truth.shape[1:]
    assert set(units.log10().round().flatten().tolist()) <= set(range(-6, 7))
    other, metric = rescaled(setting, units)
    assert broken(other) <= case.slack
    moved = 0.1 * torch.ones_like(setting.truth)
    torch.testing.assert_close(((units * moved) ** 2 / metric.diagonal), moved**2)
