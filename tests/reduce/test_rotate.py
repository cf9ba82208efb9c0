"""Rotations: pairs tied by an affine row are rotated so that the row reads one of them; values and lengths stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.compile.cells import evaluated
from torch import Tensor

from snapfm.compile import CompiledLaws, RowKind, compile_laws
from snapfm.compile.lower import Tape
from snapfm.compile.sparsity.reads import reads
from snapfm.laws import Equality
from snapfm.reduce.rotate import Rotations, _matrix, find_rotations, rotated

Rows = Callable[[Tensor], list[Tensor]]


def compiled(rows: Rows, unknowns: int = 5) -> CompiledLaws:
    return compile_laws([Equality("law", lambda u, p: torch.stack(rows(u)))], (unknowns,))


def find(
    rows: Rows, unknowns: int = 5, free: tuple[int, ...] | None = None, bounded: tuple[int, ...] = ()
) -> Rotations:
    laws = compiled(rows, unknowns)
    found = reads(laws.scalar.tape, laws.scalar.rows)
    nonlinear = np.isin(np.arange(unknowns), found.nonlinear.indices)
    marks = np.ones(unknowns, bool) if free is None else np.isin(np.arange(unknowns), free)
    limits = np.isin(np.arange(unknowns), bounded)
    return find_rotations(
        laws.scalar.tape, laws.scalar.rows, found, marks, limits, laws.kinds == RowKind.AFFINE, nonlinear
    )


def edge(u: Tensor) -> list[Tensor]:
    return [u[4] - u[3], torch.sin(u[4]) * u[3] + u[0], 3 * u[0] - 4 * u[1] + 1.0, u[1] ** 2]


def test_pairs_and_their_angles():
    rotations = find(edge)
    assert (rotations.rows.tolist(), rotations.first.tolist(), rotations.second.tolist()) == ([0, 2], [3, 0], [4, 1])
    np.testing.assert_allclose(rotations.cos, [-np.sqrt(0.5), 0.6], rtol=1e-15)
    np.testing.assert_allclose(rotations.sin, [np.sqrt(0.5), -0.8], rtol=1e-15)


def test_rows_over_the_new_unknowns_have_the_same_values():
    laws, rotations = compiled(edge), find(edge)
    tape, rows = rotated(laws.scalar.tape, laws.scalar.rows, rotations)
    new = np.array([0.3, -1.2, 0.7, 0.4, 2.0])
    u = _matrix(rotations, Tape(5))[1:, 1:] @ new
    assert np.linalg.norm(u) == pytest.approx(np.linalg.norm(new), rel=1e-15)  # nearest means the same
    before = evaluated(laws.scalar.tape, laws.scalar.rows, u)
    np.testing.assert_allclose(evaluated(tape, rows, new), before, atol=1e-14)


def test_the_row_reads_the_first_of_its_pair_exactly():
    laws, rotations = compiled(edge), find(edge)
    _, rows = rotated(laws.scalar.tape, laws.scalar.rows, rotations)
    assert rows[[0]].indices.tolist() == [4]  # cell 0 is the constant
    assert rows[0, 4] == pytest.approx(np.sqrt(2.0))
    assert [cell for cell in rows[[2]].indices if 0 < cell < 6] == [1]
    assert rows[2, 1] == pytest.approx(5.0)


def test_angles_of_random_pairs():
    """Any coefficients, of very different size: the rotated row keeps their length and nothing of the second."""
    rng = np.random.default_rng(0)
    for a, b in rng.standard_normal((20, 2)) * 10.0 ** rng.integers(-8, 8, (20, 2)):
        rows: Rows = lambda u, a=a, b=b: [a * u[0] + b * u[1], u[0] ** 2]  # noqa: E731
        rotations = find(rows, 2)
        assert rotations.cos**2 + rotations.sin**2 == pytest.approx(1.0, rel=1e-14)
        _, new = rotated(compiled(rows, 2).scalar.tape, compiled(rows, 2).scalar.rows, rotations)
        assert new[[0]].indices.tolist() == [1]
        assert new[0, 1] == pytest.approx(np.hypot(a, b), rel=1e-14)


@pytest.mark.parametrize(
    "rows",
    [
        lambda u: [u[0] - u[1], u[2] ** 2],  # neither moves anything but linear rows
        lambda u: [u[0] - u[1] + u[2], u[0] ** 2],  # three unknowns
        lambda u: [u[0], u[0] ** 2],  # one
        lambda u: [u[0] - u[1] ** 2, u[0] ** 2],  # not affine
        lambda u: [u[0] * u[1]],
    ],
)
def test_rows_that_need_no_turn(rows: Rows):
    assert len(find(rows)) == 0


def test_unknowns_with_limits_are_not_rotated():
    """A limit on one unknown would become one on both."""
    assert len(find(edge, bounded=(3,))) == 1
    assert len(find(edge, bounded=(0, 4))) == 0


def test_known_unknowns_do_not_count():
    rows: Rows = lambda u: [u[0] - u[1] + u[2], u[0] ** 2]  # noqa: E731
    rotations = find(rows, free=(0, 1, 3, 4))
    assert (rotations.first.tolist(), rotations.second.tolist()) == ([0], [1])


def test_no_unknown_is_rotated_twice():
    """A chain of ties: the first takes 0 and 1, so the second is left, and the third may go on."""
    rotations = find(lambda u: [u[0] - u[1], u[1] - u[2], u[2] - u[3], (u**2).sum()])
    assert rotations.rows.tolist() == [0, 2]
    assert sorted([*rotations.first, *rotations.second]) == [0, 1, 2, 3]


def test_nothing_to_turn():
    rotations = find(lambda u: [u[0] ** 2], 1)
    assert len(rotations) == len(rotations.cos) == len(rotations.rows) == 0
