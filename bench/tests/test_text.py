from __future__ import annotations

import pytest

from snapfm_bench.text import percent, spread, times, two


def test_shares_are_percent():
    assert percent(0.034) == "3.4 %"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"), (0.0344, "0.034"), (0.996, "1.0"), (1.25, "1.2"), (9.96, "10"), (56.7, "57"), (99.6, "100"),
        (1234.0, "1,200"),
    ],
)  # fmt: skip
def test_multiples_have_two_digits(value: float, written: str):
    assert two(value) == written
    assert times(value) == f"{written}×"


def test_a_spread_that_two_digits_do_not_show_is_left_out():
    assert spread(0.331, 0.334) == ""
    assert spread(0.331, 0.36) == "0.33 to 0.36"
    assert times(None) == "–"
