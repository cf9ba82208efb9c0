"""What cannot be a law is refused when it is made; what can is taken in every form people write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from snapfm import Bounds, Equality, Inequality
from snapfm.errors import LawError, ShapeError, SnapfmError
from snapfm.grid import Axis, Grid
from snapfm.laws import dirichlet, local_flux, neumann
from snapfm.project import Projector

NAN, INF = float("nan"), float("inf")


def law(u: Tensor, params: object) -> Tensor:
    return u


def told(make: Callable[[], Any], error: type[SnapfmError] = LawError) -> str:
    with pytest.raises(error) as caught:
        make()
    return str(caught.value)


# Names and functions.


@pytest.mark.parametrize("kind", [Equality, Inequality])
def test_swapped_arguments_are_told_as_such(kind: type):
    name = kind.__name__
    assert told(lambda: kind(law, "mass")) == (
        f"{name}(name, function) expects the name first; got the function first and 'mass' second. Swap the two: "
        f"{name}('mass', function)."
    )


@pytest.mark.parametrize("name", ["", "  ", None, 3, ["mass"]])
def test_a_name_is_a_word(name: Any):
    for make in (lambda: Equality(name, law), lambda: Bounds(lower=0.0, name=name)):
        assert told(make) == (
            f"A law expects a non-empty name; got {name!r}. Name it after what it states, such as 'mass': reports use it."
        )


@pytest.mark.parametrize(
    ("function", "came"),
    [(torch.zeros(3), "Tensor"), (None, "NoneType"), (torch.nn.Linear, "the class Linear"), (1, "int")],
)
def test_a_function_is_called(function: Any, came: str):
    assert told(lambda: Inequality("mass", function)) == (
        f"Inequality('mass', function) expects a callable function(u, params) -> residual; got {came}. Wrap it: lambda u, p: ..."
    )


@pytest.mark.parametrize(
    ("function", "came"), [(lambda u: u, "(u)"), (lambda: 1, "()"), (lambda u, a, b: u, "(u, a, b)")]
)
def test_a_function_takes_the_field_and_its_params(function: Any, came: str):
    assert told(lambda: Equality("mass", function)) == (
        "Equality('mass', function) expects a function of the field and its params, function(u, params); got one that takes "
        f"{came}. Write lambda u, p: ..., also where no params are read."
    )


@pytest.mark.parametrize(
    "function", [law, lambda u, p, scale=2.0: u, lambda *both: both[0], torch.sub, torch.nn.Bilinear(1, 1, 1)]
)
def test_whatever_takes_two_arguments_is_a_function(function: Any):
    assert Equality("mass", function).function is function


# Patterns.

EXPECTED = (
    "Equality('mass', pattern=(rows, columns)) expects two equally long lists of whole numbers >= 0: the row and the column of "
    "every entry"
)
INDEX = "Index the flattened residual and the flattened field, from 0."


@pytest.mark.parametrize(
    ("pattern", "error", "rest"),
    [
        (3, LawError, f"got int. {INDEX}"),
        ("ab", LawError, f"got str. {INDEX}"),
        ({0: 1, 1: 2}, LawError, f"got dict. {INDEX}"),
        (torch.tensor(1), LawError, f"got Tensor. {INDEX}"),
        (([0.5], [1]), LawError, f"got list that holds something else. {INDEX}"),
        (([0], [True]), LawError, f"got list that holds something else. {INDEX}"),
        (([0], ["a"]), LawError, f"got list that holds something else. {INDEX}"),
        (([[0], [1, 2]], [1]), LawError, f"got list that holds something else. {INDEX}"),
        ((None, [1]), LawError, f"got NoneType that holds something else. {INDEX}"),
        (
            [(0, 1), (1, 2), (2, 2)], LawError,
            "got 3 items. Turn a list of pairs into two lists: pattern=tuple(zip(*pairs)); an array of pairs: pattern=pairs.T.",
        ),
        (([0, 1], [1]), ShapeError, "got lengths 2 and 1. Give both for every entry."),
        (([0, -1], [1, 1]), ShapeError, f"got -1. {INDEX}"),
        (([0], [-4]), ShapeError, f"got -4. {INDEX}"),
    ],
)  # fmt: skip
def test_a_pattern_is_two_lists_of_indices(pattern: Any, error: type[SnapfmError], rest: str):
    assert told(lambda: Equality("mass", law, pattern), error) == f"{EXPECTED}; {rest}"


@pytest.mark.parametrize(
    "pattern",
    [
        ([0, 1], [0, 1]), [[0, 1], [0, 1]], ((0, 1), (0, 1)), (np.arange(2), torch.arange(2)), np.array([[0, 1], [0, 1]]),
        torch.tensor([[0, 1], [0, 1]]), (range(2), range(2)), tuple(zip(*[(0, 0), (1, 1)])),
    ],
    ids=["lists", "list", "tuples", "arrays", "array", "tensor", "ranges", "pairs"],
)  # fmt: skip
def test_lists_of_any_make_are_a_pattern(pattern: Any):
    assert Projector([Equality("mass", law, pattern)], (2,)).structure.nnz == 2


# Bounds.

NO_LOWER, NO_UPPER = (f"Where a point has no limit write float('{sign}inf')." for sign in ("-", ""))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"lower": NAN}, f"Bounds(lower=…) expects numbers; got nan. {NO_LOWER}"),
        ({"upper": torch.tensor(NAN)}, f"Bounds(upper=…) expects numbers; got nan. {NO_UPPER}"),
        ({"lower": 0.0, "upper": NAN}, f"Bounds(upper=…) expects numbers; got nan. {NO_UPPER}"),
        ({"lower": torch.tensor([0.0, NAN, NAN])}, f"Bounds(lower=…) expects numbers; got NaN at 2 of 3 points. {NO_LOWER}"),
        ({"lower": INF}, f"Bounds(lower=…) expects a limit that leaves room; got inf, which no field obeys. {NO_LOWER}"),
        (
            {"upper": torch.tensor([1.0, -INF])},
            f"Bounds(upper=…) expects a limit that leaves room; got -inf, which no field obeys. {NO_UPPER}",
        ),
        (
            {"lower": 1j},
            "Bounds(lower=…) expects real numbers; got torch.complex64. Bound real and imaginary parts, as channels of a real "
            "field.",
        ),
        ({"upper": True}, "Bounds(upper=…) expects real numbers; got torch.bool. Write 0.0 or 1.0."),
        ({"upper": torch.ones(3) > 0}, "Bounds(upper=…) expects real numbers; got torch.bool. Write 0.0 or 1.0."),
        (
            {"lower": "positive"},
            "Bounds(lower=…) expects a number, or a tensor of numbers; got the text 'positive'. The name comes last: "
            "Bounds(lower=0.0, name='positive').",
        ),
        (
            {"upper": lambda u: 1.0},
            "Bounds(upper=…) expects a number, or a tensor of numbers; got function. A limit that depends on params or on other "
            "points is an Inequality.",
        ),
        (
            {"lower": {"u0": 1.0}},
            "Bounds(lower=…) expects a number, or a tensor of numbers; got dict. A limit that depends on params or on other "
            "points is an Inequality.",
        ),
    ],
)  # fmt: skip
def test_limits_are_real_numbers_that_leave_room(limits: dict[str, Any], message: str):
    assert told(lambda: Bounds(**limits)) == message


def test_limits_that_do_not_broadcast_are_refused():
    assert told(lambda: Bounds(torch.zeros(3), torch.ones(4)), ShapeError) == (
        "Bounds(lower, upper) expects limits that broadcast to one field; got shapes (3,) and (4,). Give numbers, or tensors of "
        "the field's shape."
    )


@pytest.mark.parametrize(
    "limits",
    [(0, 1), (-INF, INF), (torch.zeros(3, 1), torch.ones(5)), (np.zeros(5), [1.0] * 5), (None, 0.5), (1.0, 1.0)],
)
def test_limits_of_any_make_are_bounds(limits: Any):
    found = Projector([Bounds(*limits)], (3, 5)).limits
    assert found.lower.shape == found.upper.shape == (15,)
    assert bool((found.lower <= found.upper).all())


# Ready-made laws.


def test_a_claim_is_no_number_of_steps():
    grid = Grid((Axis("x", 0.0, 1.0, 5), Axis("t", 0.0, 1.0, 4)))
    assert told(lambda: local_flux(grid, True)) == (
        "local_flux(steps) expects a whole number from 1 to 3, the steps of the grid; got True. Leave the law out for none, or "
        "give the grid more times."
    )


def test_a_side_is_left_or_right():
    words = "expects 'left' or 'right'; got 'top'. 'left' is the first point of the x axis, 'right' the last."
    assert told(lambda: dirichlet(side="top")) == f"dirichlet(side) {words}"  # type: ignore[arg-type]
    assert told(lambda: neumann("top")) == f"neumann(side) {words}"  # type: ignore[arg-type]
