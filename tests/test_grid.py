"""Axes, spacing and quadrature weights."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from snapfm.errors import ShapeError, SnapfmError, UnknownName
from snapfm.grid import Axis, Grid

EPS = torch.finfo(torch.float64).eps


def grid() -> Grid:
    return Grid((Axis("x", 0.0, 2 * math.pi, 9, periodic=True), Axis("y", -1.0, 1.0, 5), Axis("t", 0.0, 1.0, 4)))


def test_spacing_counts_intervals_not_points():
    assert Axis("x", 1.0, 3.0, 5).spacing == 0.5
    assert grid().spacing("y") == 0.5
    assert grid().spacing("x") == 2 * math.pi / 8


def test_points_hold_both_ends():
    axis = Axis("x", -1.0, 2.0, 4)
    assert axis.points().tolist() == [-1.0, 0.0, 1.0, 2.0]
    assert axis.points().dtype == torch.float64
    assert axis.points(torch.float32).dtype == torch.float32


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("left", [0.5, 0.5, 0.5, 0.5, 0.0]),
        ("trapezoid", [0.25, 0.5, 0.5, 0.5, 0.25]),
        ("full", [0.5, 0.5, 0.5, 0.5, 0.5]),
    ],
)
def test_weights_by_hand(rule: str, expected: list[float]):
    axis = Axis("y", -1.0, 1.0, 5)
    assert axis.weights(rule).tolist() == expected
    assert axis.weights(rule, torch.float32).dtype == torch.float32


def test_an_unknown_rule_is_refused_rather_than_read_as_another():
    with pytest.raises(UnknownName) as caught:
        Axis("y", -1.0, 1.0, 5).weights("simpson")
    told = str(caught.value)
    for part in ("expects one of ['left', 'trapezoid', 'full']", "got 'simpson'"):
        assert part in told


def test_trapezoids_integrate_straight_lines_exactly():
    axis = Axis("x", 1.0, 4.0, 7)
    integral = float((axis.weights("trapezoid") * (2 * axis.points() - 1)).sum())
    assert integral == pytest.approx(12.0, rel=axis.size * EPS)  # x² − x from 1 to 4


@pytest.mark.parametrize("rule", ["left", "trapezoid"])
def test_waves_over_a_full_period_integrate_exactly(rule: str):
    axis = grid().axis("x")
    wave = torch.sin(axis.points() + 0.3)
    assert abs(float((axis.weights(rule) * wave).sum())) <= axis.size * EPS * 2 * math.pi
    assert float((axis.weights(rule) * wave**2).sum()) == pytest.approx(math.pi, rel=axis.size * EPS)


def test_a_grid_knows_its_shape_and_its_axes_by_name():
    assert grid().shape == (9, 5, 4)
    assert grid().axis("t") == Axis("t", 0.0, 1.0, 4)
    assert grid().axis("x").periodic
    assert not grid().axis("t").periodic


def test_an_unknown_axis_is_told_with_the_known_ones():
    with pytest.raises(UnknownName) as caught:
        grid().spacing("z")
    assert isinstance(caught.value, KeyError)
    assert str(caught.value) == "grid.axis(name) expects one of ['x', 'y', 't']; got 'z'. Use an axis of the grid."


@pytest.mark.parametrize(
    ("start", "stop", "size", "came"),
    [
        (0.0, 1.0, 1, "got size=1"),
        (0.0, 1.0, 0, "got size=0"),
        (1.0, 1.0, 5, "start=1.0, stop=1.0"),
        (2.0, 1.0, 5, "start=2.0, stop=1.0"),
        (0.0, float("nan"), 5, "stop=nan"),
    ],
)
def test_an_axis_without_extent_is_refused(start: float, stop: float, size: int, came: str):
    with pytest.raises(ShapeError) as caught:
        Axis("x", start, stop, size)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, SnapfmError)
    told = str(caught.value)
    for part in (
        "Axis('x') expects at least 2 points and stop > start",
        came,
        "Give the end points in increasing order.",
    ):
        assert part in told


def test_grids_are_values():
    assert grid() == grid()
    assert hash(grid()) == hash(grid())
    with pytest.raises(dataclasses.FrozenInstanceError):
        grid().axes = ()  # type: ignore[misc]
