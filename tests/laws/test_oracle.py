"""An Oracle when it is made: rows from limits, what its functions get, and messages in three parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from snapfm import Oracle
from snapfm.errors import LawError, ShapeError


def value(u: Any, p: Any) -> Any:
    return u[:2] * 2.0


def jacobian(u: Any, p: Any) -> Any:
    return np.eye(2, 3) * 2.0


U = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


def test_without_limits_the_value_is_the_residual():
    assert Oracle("law", value, jacobian).residual(U, {}).tolist() == [2.0, 4.0]


def test_limits_become_rows_upper_ones_and_equalities_first():
    law = Oracle("law", value, jacobian, lower=[1.0, 3.0], upper=[5.0, 3.0])
    assert law.residual(U, {}).tolist() == [-3.0, 1.0, -1.0]
    assert law.split((2,)).equality.tolist() == [False, True, False]
    assert Oracle("law", value, jacobian, lower=None, upper=3.0).residual(U, {}).tolist() == [-1.0, 1.0]
    assert Oracle("law", value, jacobian, lower=3.0, upper=[np.inf, 7.0]).residual(U, {}).tolist() == [-3.0, 1.0, -1.0]


@pytest.mark.parametrize(("arrays", "kind"), [("numpy", np.ndarray), ("torch", torch.Tensor)])
def test_functions_get_copies_in_float64(arrays: str, kind: type):
    seen = []

    def writes(u: Any, p: Any) -> Any:
        seen.append((u, p))
        u[0] = 9.0
        return [u[1]]

    u, params = U.float(), {"a": torch.ones(2), "b": torch.arange(2)}
    law = Oracle("law", writes, jacobian, arrays=arrays, reads=["b"])
    assert law.residual(u, params).dtype == torch.float32
    ((field, given),) = seen
    assert isinstance(field, kind)
    assert str(field.dtype).endswith("float64")
    assert list(given) == ["b"]
    assert u.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Oracle("", value, jacobian), ("non-empty name",)),
        (lambda: Oracle(value, "law", jacobian), ("expects the name first", "Swap the two")),
        (lambda: Oracle("law", 3, jacobian), ("expects a callable", "got int")),
        (lambda: Oracle("law", value, None), ("jacobian) expects a callable jacobian(u, params)", "got NoneType", "Wrap it")),
        (lambda: Oracle("law", value, lambda u: u), ("function jacobian(u, params)", "takes (u)", "these 2 arguments")),
        (lambda: Oracle("law", value, jacobian, lambda u, p: u), ("hessian(u, params, multipliers)", "takes (u, p)", "these 3")),
        (lambda: Oracle("law", value, jacobian, pattern=[(0, 0), (1, 1), (1, 2)]), ("pattern=(rows, columns)", "3 items", "zip")),
        (lambda: Oracle("law", value, jacobian, hessian_pattern=([0], [0])), ("expects a hessian", "got none")),
        (lambda: Oracle("law", value, jacobian, lower=1.0), ("Oracle(lower, upper) expects lower <= upper", "gap of -1", "Swap")),
        (lambda: Oracle("law", value, jacobian, lower=None, upper=None), ("at least one limit", "got none", "Give lower")),
        (lambda: Oracle("law", value, jacobian, lower=[0, 0], upper=[0, 0, 0]), ("to one value", "(2,) and (3,)")),
        (lambda: Oracle("law", value, jacobian, arrays="jax"), ("'numpy' or 'torch'", "got 'jax'", "leave it out")),
        (lambda: Oracle("law", value, jacobian, reads="u0"), ("list of names", "got 'u0'", "Write reads=['u0']")),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_three_parts(make: Callable[[], Oracle], told: tuple[str, ...]):
    with pytest.raises((LawError, ShapeError)) as caught:
        make()
    for part in told:
        assert part in str(caught.value)


def test_limits_that_do_not_fit_the_value_are_told():
    with pytest.raises(ShapeError, match=r"broadcast to the value, of shape \(2,\); got shape \(3,\)"):
        Oracle("law", value, jacobian, lower=None, upper=[0.0, 0.0, 0.0]).residual(U, {})
