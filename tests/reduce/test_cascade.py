"""Cascade: which rows become substitutions, in what order, and which cannot."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from tests.compile.cells import evaluated
from torch import Tensor

from snapfm.compile import compile_laws
from snapfm.compile.derivatives import Scalar
from snapfm.compile.sparsity.reads import reads
from snapfm.laws import Equality
from snapfm.reduce.cascade import Cascade, cascade

Function = Callable[[Tensor, dict[str, Tensor]], list[Tensor]]
PARAMS = {"a": torch.full((1,), 2.0, dtype=torch.float64)}


def lowered(rows: Function, unknowns: int) -> Scalar:
    return compile_laws([Equality("law", lambda u, p: torch.stack(rows(u, p)))], (unknowns,), PARAMS).scalar


def run(rows: Function, unknowns: int = 4, usable: list[bool] | None = None) -> Cascade:
    scalar = lowered(rows, unknowns)
    marks = np.ones(scalar.rows.shape[0], bool) if usable is None else np.array(usable)
    return cascade(scalar.tape, scalar.rows, reads(scalar.tape, scalar.rows), marks)


def levels(found: Cascade) -> list[tuple[list[int], list[int], list[float]]]:
    return [(level.rows.tolist(), level.unknowns.tolist(), level.weights.tolist()) for level in found.levels]


def chain(u: Tensor, p: dict[str, Tensor]) -> list[Tensor]:
    """Start, two explicit steps, nonlinear in what is known, and a total of it all; rows not in the order of use."""
    return [u[2] * 2 - torch.sin(u[1]) * u[0], u.sum() - 1.0, u[0] - 3.0, -u[1] + u[0] ** 2]


def test_each_step_determines_the_next():
    found = run(chain)
    assert levels(found) == [([2], [0], [1.0]), ([3], [1], [-1.0]), ([0], [2], [2.0]), ([1], [3], [1.0])]
    assert ((~found.free).sum(), found.implied.tolist(), found.free.tolist()) == (4, [], [False] * 4)
    assert found.pinned_rows().tolist() == [2, 3, 0, 1]


def test_substitutions_in_their_order_solve_the_rows():
    scalar, found = lowered(chain, 4), run(chain)
    u = np.array([0.3, -0.2, 5.0, 1.0])
    for level in found.levels:
        rest = evaluated(scalar.tape, scalar.rows, u)[level.rows]
        u[level.unknowns] -= rest / level.weights
    np.testing.assert_allclose(evaluated(scalar.tape, scalar.rows, u), 0.0, atol=1e-14)


def test_many_rows_of_one_level():
    found = run(lambda u, p: [*(u[:3] - p["a"]), u.sum()])
    assert [len(level.rows) for level in found.levels] == [3, 1]


def test_contradictory_pins():
    """The first is used; the others have nothing left to say, and are judged with the answer."""
    found = run(lambda u, p: [u[1] - 1.0, u[1] + 1.0, 5 * u[1]])
    assert levels(found) == [([0], [1], [1.0])]
    assert found.implied.tolist() == [1, 2]
    assert found.free.tolist() == [True, False, True, True]


def test_rows_of_known_unknowns_are_implied():
    found = run(lambda u, p: [u[0], u[1], torch.sin(u[0]) * u[1] - 1.0, u[0] + u[1]])
    assert found.pinned_rows().tolist() == [0, 1]
    assert found.implied.tolist() == [2, 3]


def test_unknown_inside_an_operation_is_not_determined():
    """A square, a square beside a linear term, a multiple by a param: none has a slope that never changes."""
    for row in (lambda u, p: u[0] ** 2 - 1.0, lambda u, p: u[0] + u[0] ** 2, lambda u, p: p["a"] * u[0] - 1.0):
        found = run(lambda u, p, row=row: [row(u, p), u[0] * u[1] + u[2]])
        assert found.levels == ()
        assert found.implied.tolist() == []
        assert found.free.all()


def test_unknown_that_cancels_is_not_read():
    found = run(lambda u, p: [u[0] + u[1] - u[0], u[2] + u[3]])
    assert levels(found) == [([0], [1], [1.0])]


def test_rows_that_are_not_usable_determine_nothing():
    """An inequality pins nothing, even where it is alone; one with nothing left is implied."""
    found = run(lambda u, p: [u[0], u[1] - 1.0, u[1] + 1.0], usable=[False, True, False])
    assert found.pinned_rows().tolist() == [1]
    assert found.implied.tolist() == [2]
    assert found.free.tolist() == [True, False, True, True]


def test_a_circle_is_left_alone():
    found = run(lambda u, p: [u[0] - u[1], u[1] - u[2], u[2] - u[0]])
    assert found.levels == ()
    assert found.free.all()


def test_rows_of_params_alone_are_implied():
    found = run(lambda u, p: [p["a"] - 1.0, u[0] * u[1]])
    assert found.implied.tolist() == [0]


def test_one_row_of_one_unknown_and_none_at_all():
    assert levels(run(lambda u, p: [-4 * u[0] + 8.0], 1)) == [([0], [0], [-4.0])]
    nothing = compile_laws([], (3,)).scalar
    found = cascade(nothing.tape, nothing.rows, reads(nothing.tape, nothing.rows), np.zeros(0, bool))
    assert (found.levels, (~found.free).sum(), found.implied.tolist()) == ((), 0, [])
