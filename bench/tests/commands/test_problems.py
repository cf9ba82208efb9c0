"""`snapfm problems` against the published sizes of the benchmark."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from snapfm.cli.app import app
from snapfm_bench.problems import names

# name: (field, equality rows, inequality rows, affine rows, redundant rows)
PUBLISHED = {
    "heat-ic-mass": ([100, 100], 199, 0, 199, 0),
    "heat-ic-mass-pde-energy": ([100, 100], 689, 99, 689, 0),
    "burgers-bc-mass": ([101, 101], 302, 0, 202, 0),
    "burgers-ic": ([101, 101], 101, 0, 101, 0),
    "burgers-ic-mass": ([101, 101], 202, 0, 202, 1),
    "burgers-ic-mass-flux": ([101, 101], 697, 0, 202, 1),
    "reaction-diffusion-ic-mass": ([64, 100], 163, 0, 64, 0),  # 128 points: bench/tests/problems/test_registry.py
    "navier-stokes-ic-mass-enstrophy": ([16, 16, 50], 354, 0, 305, 0),
}


@pytest.fixture(scope="module")
def listed() -> dict[str, dict]:
    answer = CliRunner().invoke(app, ["problems", "--json"], catch_exceptions=False)
    return {row["name"]: row for row in json.loads(answer.stdout)}


def test_all_are_listed(listed: dict[str, dict]):
    assert sorted(listed) == names()
    assert PUBLISHED.keys() <= listed.keys()


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_the_published_ones(name: str, listed: dict[str, dict]):
    row = listed[name]
    inequalities = row["rows"] - row["equality_rows"]
    found = (row["shape"], row["equality_rows"], inequalities, row["affine_rows"], row["redundant_rows"])
    assert found == PUBLISHED[name]
    assert row["affine_rows"] + row["nonlinear_rows"] == row["rows"]


def test_nothing_is_cut_off_in_80_columns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    answer = CliRunner().invoke(app, ["problems"], catch_exceptions=False)
    assert "…" not in answer.output.partition("problem ")[2]
    assert all(len(line.rstrip()) <= 80 for line in answer.output.splitlines())
    assert all(name in answer.output for name in names())
