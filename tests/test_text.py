from __future__ import annotations

import pytest

from snapfm.text import bytes_text, extents, meant, one_field, plural, scientific, seconds


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.0, "0"), (-0.0, "0"), (1.0, "1.0e+00"), (4.24e-8, "4.2e-08"), (9.96e-8, "1.0e-07"), (float("nan"), "nan")],
)
def test_violations_have_one_decimal_and_only_an_exact_zero_is_zero(value: float, written: str):
    assert scientific(value) == written


def test_durations():
    assert [seconds(value) for value in (0.0, 0.0042, 12.34)] == ["0 s", "4.2 ms", "12.3 s"]


def test_counts_agree_with_their_nouns():
    assert [plural(number, "row") for number in (0, 1, 2, 12345)] == ["0 rows", "1 row", "2 rows", "12 345 rows"]
    assert [plural(number, "entry", "entries") for number in (1, 2)] == ["1 entry", "2 entries"]


def test_shapes_are_products():
    assert [extents(shape) for shape in ((), (7,), (3, 4, 5))] == ["scalar", "7", "3×4×5"]


def test_a_name_close_to_a_known_one_is_asked_for():
    assert meant("heat-ic-mas", ["heat-ic-mass", "burgers-ic"]) == "Did you mean 'heat-ic-mass'? "
    assert meant("wave", ["heat-ic-mass", "burgers-ic"]) == ""


def test_small_memory_is_not_rounded_to_nothing():
    assert (bytes_text(400), bytes_text(99_000), bytes_text(1.25e6), bytes_text(0)) == (
        "0.4 kB",
        "99.0 kB",
        "1.2 MB",
        "0.0 kB",
    )


def test_a_field_of_one_axis_is_a_field_of_so_many():
    assert (one_field((6,)), one_field((3, 4))) == ("field of 6", "3×4 field")
