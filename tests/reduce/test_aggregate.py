"""Aggregates of unknowns that rows see only through their sum and sum of squares: found, and aggregated to two without loss."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.compile.cells import evaluated
from torch import Tensor

from snapfm.compile import compile_laws
from snapfm.compile.derivatives import Scalar
from snapfm.laws import Equality
from snapfm.reduce.aggregate import Aggregates, aggregated, find_aggregates

Rows = Callable[[Tensor], list[Tensor]]


def lowered(rows: Rows, unknowns: int) -> Scalar:
    return compile_laws([Equality("law", lambda u, p: torch.stack(rows(u)))], (unknowns,)).scalar


def find(rows: Rows, unknowns: int = 6, usable: tuple[int, ...] | None = None) -> list[list[int]]:
    scalar = lowered(rows, unknowns)
    marks = np.ones(unknowns, bool) if usable is None else np.isin(np.arange(unknowns), usable)
    aggregates, _ = find_aggregates(scalar.tape, scalar.rows, np.arange(scalar.rows.shape[0]), marks)
    assert aggregates.first == unknowns
    return [aggregates.members[a:b].tolist() for a, b in zip(aggregates.ptr, aggregates.ptr[1:])]


EVERYTHING = [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (lambda u: [(u**2).sum()], [EVERYTHING]),
        (lambda u: [(u**2).sum(), u.sum()], [EVERYTHING]),
        (lambda u: [(u * (1 - u)).sum() - 3.0], [EVERYTHING]),
        (lambda u: [((u - 0.5) * (2 * u + 1)).sum()], [EVERYTHING]),
        (lambda u: [(u**2).sum() + u[:3].sum()], [[0, 1, 2], [3, 4, 5]]),
        (lambda u: [(u**2).sum(), u[0] + 2 * u[1]], [[2, 3, 4, 5]]),
        (lambda u: [(u[:3] ** 2).sum() + 2 * (u[3:] ** 2).sum()], [[0, 1, 2], [3, 4, 5]]),
        (lambda u: [(u[:3] ** 2).sum(), (u[3:] ** 2).sum()], [[0, 1, 2], [3, 4, 5]]),
        (lambda u: [(u**2).sum(), u[0] * u[1]], [[2, 3, 4, 5]]),  # a product strikes both off
        (lambda u: [(u**2).sum(), torch.sin(u[5])], [[0, 1, 2, 3, 4]]),
        (lambda u: [(u**2).sum(), (u[0] ** 2 + 1.0).sqrt()], [[1, 2, 3, 4, 5]]),  # a square that is read again
        (lambda u: [u.sum()], []),  # nothing is squared
        (lambda u: [(u**3).sum()], []),
        (lambda u: [(u[:2] ** 2).sum(), (u[2:4] ** 2).sum(), (u[4:] ** 2).sum()], []),  # two of two are no gain
        (lambda u: [(u[0] ** 2).reshape(())], []),
    ],
)
def test_groups(rows: Rows, expected: list[list[int]]):
    assert find(rows) == expected


def test_unknowns_that_are_not_usable_stay_out():
    assert find(lambda u: [(u**2).sum()], usable=(0, 2, 3, 5)) == [[0, 2, 3, 5]]
    assert find(lambda u: [(u**2).sum()], usable=()) == []


def test_one_unknown_and_no_rows():
    assert find(lambda u: [u[0] ** 2], 1) == []
    nothing = compile_laws([], (3,)).scalar
    aggregates, _ = find_aggregates(nothing.tape, nothing.rows, np.zeros(0, int), np.ones(3, bool))
    assert len(aggregates) == 0


@pytest.mark.parametrize(
    "rows",
    [
        lambda u: [(u**2).sum() - 2.0, 3 * u.sum() + 1.0],
        lambda u: [(u * (1 - u)).sum() - 3.0, u[:3].sum()],
        lambda u: [((u - 0.5) * (2 * u + 1)).sum() + u[0] * u[1], torch.exp(u[5]) - u[:5].sum()],
    ],
)
def test_two_coordinates_stand_for_a_group(rows: Rows):
    """Rows over √c·mean and the distance from the mean have the values they had over the members."""
    scalar = lowered(rows, 6)
    aggregates, quadratic = find_aggregates(scalar.tape, scalar.rows, np.arange(2), np.ones(6, bool))
    assert len(aggregates)
    tape, condensed_rows = aggregated(scalar.tape, scalar.rows, np.arange(2), aggregates, quadratic)
    assert tape.unknowns == 6 + 2 * len(aggregates)
    u = np.array([0.3, -1.0, 0.8, 2.0, 0.1, -0.4])
    before = evaluated(scalar.tape, scalar.rows, u)
    np.testing.assert_allclose(evaluated(tape, condensed_rows, with_coordinates(u, aggregates)), before, atol=1e-13)
    assert not np.isin(condensed_rows.indices - tape.first_unknown, aggregates.members).any()  # members are not read


def test_rows_that_are_not_open_stay_over_the_members():
    scalar = lowered(lambda u: [(u**2).sum(), u[0] + u[1] ** 2], 6)
    aggregates, quadratic = find_aggregates(scalar.tape, scalar.rows, np.array([0]), np.ones(6, bool))
    tape, rows = aggregated(scalar.tape, scalar.rows, np.array([0]), aggregates, quadratic)
    u = np.array([0.3, -1.0, 0.8, 2.0, 0.1, -0.4])
    after = evaluated(tape, rows, with_coordinates(u, aggregates))
    np.testing.assert_allclose(after, evaluated(scalar.tape, scalar.rows, u), atol=1e-13)
    assert tape.first_unknown in rows[[1]].indices


def with_coordinates(u: np.ndarray, aggregates: Aggregates) -> np.ndarray:
    """Put the coordinates of every group behind the unknowns, which keep their values."""
    found = [u]
    for a, b in zip(aggregates.ptr, aggregates.ptr[1:]):
        mine = u[aggregates.members[a:b]]
        found.append(np.array([np.sqrt(len(mine)) * mine.mean(), np.linalg.norm(mine - mine.mean())]))
    return np.concatenate(found)
