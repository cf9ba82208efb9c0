"""Metric.of_fields: whose variances, floors, and mistakes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from snapfm import Metric
from snapfm.errors import ParamsError, SettingError, ShapeError, SnapfmError

SIZES = torch.tensor([1.0, 300.0, 2.5e5], dtype=torch.float64)[:, None, None]


def fields() -> Tensor:
    drawn = torch.randn(8, 3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return SIZES * (2.0 + drawn)


@pytest.mark.parametrize(
    ("per", "over"),
    [("variable", (0, 2, 3)), ("point", (0,)), (1, (0, 1, 3)), ((0, 2), (0, 2)), ([0, -1], (0, 2)), ((), (0, 1, 2, 3))],
)
def test_variances_are_those_over_all_other_axes(per: Any, over: tuple[int, ...]):
    u = fields()
    wanted = u.var(over, keepdim=True)[0].expand(3, 5, 4)
    torch.testing.assert_close(Metric.of_fields(u, per).diagonal, wanted, rtol=1e-12, atol=0.0)


def test_variables_are_the_default():
    assert torch.equal(Metric.of_fields(fields()).diagonal, Metric.of_fields(fields(), 0).diagonal)
    assert Metric.of_fields(fields()[:, 0, 0]).uniform  # one axis: one variable


def test_what_never_changes_is_stiff_in_its_own_units():
    u = fields()
    u[:, 1] = 7.0
    u[:, :, 0] = 0.0  # at a wall, in every variable
    u[:, 1, 0] = 7.0
    by_variable, by_point = Metric.of_fields(u).diagonal, Metric.of_fields(u, "point").diagonal
    assert by_variable[1, 0, 0] == pytest.approx(1e-6 * 49.0)
    torch.testing.assert_close(by_point[0, 0], 1e-6 * by_point[0].mean().expand(4), rtol=1e-5, atol=0.0)
    torch.testing.assert_close(by_point[2, 0], 1e-6 * by_point[2].mean().expand(4), rtol=1e-5, atol=0.0)
    u[:, 1] = 0.0
    assert float(Metric.of_fields(u).diagonal.min()) > 0.0


@pytest.mark.parametrize("size", [1e-100, 1e-9, 1e9, 1e100])
def test_fields_of_any_size(size: float):
    torch.testing.assert_close(
        Metric.of_fields(size * fields()).diagonal / size**2, Metric.of_fields(fields()).diagonal, rtol=1e-12, atol=0.0
    )


def test_one_field_has_the_variance_of_its_points():
    u = fields()[:1].float()
    torch.testing.assert_close(Metric.of_fields(u).diagonal[:, 0, 0], u[0].double().var((1, 2)), rtol=1e-6, atol=0.0)
    assert Metric.of_fields(u, "point").shape == (3, 5, 4)


@pytest.mark.parametrize(
    ("given", "per", "error", "told"),
    [
        ([1.0], "variable", ShapeError, r"expects a batch of fields \(b, \*shape\), real numbers; got list\. One field is field"),
        (torch.zeros(3), "variable", ShapeError, r"got \(3,\), torch\.float32"),
        (torch.ones(3, 4, dtype=torch.int64), "variable", ShapeError, r"got \(3, 4\), torch\.int64"),
        (torch.zeros(3, 4), "variable", ParamsError, "expects finite numbers that are not all zero; got others. Leave out"),
        (torch.full((3, 4), torch.nan), "variable", ParamsError, "expects finite numbers"),
        (torch.ones(3, 4), "level", SettingError, "expects 'variable', 'point', or axes of one field, below 1; got 'level'"),
        (torch.ones(3, 4), 1, SettingError, "below 1; got 1. Axis 0 is the first after the batch axis"),
        (torch.ones(3, 4), (0, 0.5), SettingError, r"got \(0, 0\.5\)"),
    ],
)  # fmt: skip
def test_mistakes(given: Any, per: Any, error: type[SnapfmError], told: str):
    with pytest.raises(error, match=told):
        Metric.of_fields(given, per)
