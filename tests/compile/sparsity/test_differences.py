"""Derivatives against differences: right ones pass for steep, noisy and badly scaled functions; wrong ones are named."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from snapfm.compile.sparsity.differences import check_slopes
from snapfm.errors import LawError

AT = np.array([0.3, 0.7, -0.2, 0.5, 0.1])


def check(function, slopes, at=AT) -> None:  # type: ignore[no-untyped-def]
    check_slopes("the Jacobian", "pattern", function, csr_array(slopes), at)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_right_slopes_pass_in_all_units(scale: float):
    check(lambda x: scale * np.sin(x), scale * np.diag(np.cos(AT)))
    check(lambda x: np.sin(x / scale), np.diag(np.cos(AT) / scale), AT * scale)


def test_steep_and_noisy_functions_pass():
    check(lambda x: np.exp(300 * x), np.diag(300 * np.exp(300 * AT)))
    check(lambda x: np.round(np.sin(x), 9), np.diag(np.cos(AT)))  # an error of 1e-9, as a solver's tolerance makes


def test_fields_of_mixed_units_pass():
    at = np.array([1e6, 1e-3, 1.0, 0.0, 250.0])
    check(lambda x: x**2 + x[::-1], np.diag(2 * at) + np.eye(5)[::-1], at)


def test_the_edge_of_a_domain_is_no_error():
    at = np.full(5, 1e-9)
    with np.errstate(invalid="ignore"):
        check(lambda x: np.sqrt(x), np.diag(0.5 / np.sqrt(at)), at)


@pytest.mark.parametrize("entry", [(0, 3), (4, 0)])
def test_a_missing_entry_is_named(entry: tuple[int, int]):
    matrix = np.eye(5)
    matrix[entry] = 0.01
    with pytest.raises(LawError, match=rf"row {entry[0]} changes by .* \(look at unknown {entry[1]}\)"):
        check(lambda x: matrix @ x, np.eye(5))


def test_a_wrong_slope_is_named():
    with pytest.raises(LawError, match=r"row 2 .* unknown 2"):
        check(np.sin, np.diag(np.cos(AT) * np.array([1, 1, 1.001, 1, 1])))
