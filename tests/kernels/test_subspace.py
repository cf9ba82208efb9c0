"""Small problems on quadrics against their closed forms, and products of batches against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from snapfm.kernels.subspace import add_images, add_scaled, dots, least_curvature, nearest_on_quadrics

EVERY, NONE = np.ones(1, bool), np.zeros(1, bool)


def nearest(constant, slope, curvature, equality):
    """Solve one problem from zero: y, multipliers, whether it was solved."""
    y, mu, solved = np.zeros((1, len(slope[0]))), np.zeros((1, len(constant))), np.zeros(1, bool)
    nearest_on_quadrics(
        np.array([constant]), np.array([slope]), np.array([curvature]), equality, y, mu, solved
    )  # fmt: skip
    return y[0], mu[0], bool(solved[0])


@pytest.mark.parametrize("radius", [1e-3, 0.5, 0.9, 1.1, 3.0, 1e3])
def test_a_sphere_is_met_along_its_radius(radius: float):
    center = np.array([0.6, -0.8])  # ½‖y + center‖² = ½ radius²
    y, mu, solved = nearest([0.5 - 0.5 * radius**2], [center], [np.eye(2)], EVERY)
    assert solved
    np.testing.assert_allclose(y, (radius - 1.0) * center, atol=1e-12 * max(1.0, radius))
    np.testing.assert_allclose(mu, 1.0 / radius - 1.0, rtol=1e-10)


def test_a_sphere_out_of_reach_is_not_solved():
    assert not nearest([2.0], [np.array([1.0])], [np.eye(1)], EVERY)[2]  # 2 + y + ½y² = 0


def test_rows_are_measured_in_their_own_units():
    y, mu, solved = nearest([1e-9], [np.array([2e-9, 0.0])], [np.zeros((2, 2))], EVERY)
    assert solved
    np.testing.assert_allclose(y, [-0.5, 0.0], atol=1e-15)
    np.testing.assert_allclose(mu, 0.5 / 2e-9)


def test_an_inequality_that_holds_is_left_alone():
    y, mu, solved = nearest([-1.0], [np.array([1.0, 2.0])], [np.eye(2)], NONE)
    assert solved
    assert not y.any()
    assert not mu.any()


def test_the_active_set_is_found():
    flat = np.zeros((3, 2, 2))
    slope = [np.array([-1.0, 0.0]), np.array([0.0, -1.0]), np.array([-1.0, -1.0])]
    # y₁ ≥ 1, y₂ ≥ −1, y₁ + y₂ ≥ ½: only the first binds
    y, mu, solved = nearest([1.0, -1.0, 0.5], slope, flat, np.zeros(3, bool))
    assert solved
    np.testing.assert_allclose(y, [1.0, 0.0], atol=1e-14)
    np.testing.assert_allclose(mu, [1.0, 0.0, 0.0], atol=1e-14)


def test_directions_of_zero_change_no_bit():
    rng = np.random.default_rng(0)
    slope, half = rng.standard_normal((2, 3)), rng.standard_normal((2, 3, 3))
    bend = half @ half.transpose(0, 2, 1)
    one = nearest([-1.0, -2.0], slope, bend, np.ones(2, bool))
    other = nearest(
        [-1.0, -2.0], np.pad(slope, ((0, 0), (0, 2))), np.pad(bend, ((0, 0), (0, 2), (0, 2))), np.ones(2, bool)
    )
    assert one[2]
    np.testing.assert_array_equal(one[0], other[0][:3])
    np.testing.assert_array_equal(one[1], other[1])


def test_products_of_batches():
    rng = np.random.default_rng(1)
    one, other, out = rng.standard_normal((3, 50)), rng.standard_normal((3, 50)), np.empty(3)
    dots(one, other, out)
    np.testing.assert_allclose(out, (one * other).sum(axis=1), rtol=1e-12)
    one[1, 7] = np.nan
    expected = other.copy()
    add_scaled(np.array([2.0, 0.0, -1.0]), one, other)
    np.testing.assert_array_equal(other[1], expected[1])
    np.testing.assert_allclose(other[0], expected[0] + 2.0 * one[0])


@pytest.mark.parametrize("shared", [True, False])
def test_hessians_by_their_lower_triangle(shared: bool):
    rng = np.random.default_rng(2)
    size, lanes = 5, 3
    row, column = np.tril_indices(size)
    value = rng.standard_normal((2, 1 if shared else lanes, len(row)))
    whole = np.zeros((2, lanes, size, size))
    whole[:, :, row, column] = whole[:, :, column, row] = value
    source, out = rng.standard_normal((lanes, size)), np.zeros((lanes, size))
    add_images(row, column, value[0], source, out)
    np.testing.assert_allclose(out, np.einsum("lij,lj->li", whole[0], source), rtol=1e-12)
    weight, least = 0.1 * rng.standard_normal((lanes, 2)), np.empty(lanes)
    least_curvature(row, column, weight, value, size, least)
    matrix = np.eye(size) + np.einsum("lk,klij->lij", weight, whole)
    diagonal = np.einsum("lii->li", matrix)
    beside = np.abs(matrix).sum(axis=2) - np.abs(diagonal)
    np.testing.assert_allclose(least, (diagonal - beside).min(axis=1), rtol=1e-12)
