"""Every kind of law is a Law, and a list that mixes them passes for a list of laws: to Python here, to mypy in `make types`."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

import pytest

from snapfm import Bounds, Equality, Inequality, Law, Oracle

ROOT = Path(__file__).parents[2]
PROGRAM = "tests/laws/mixed_laws.py"


@pytest.mark.parametrize("kind", [Bounds, Equality, Inequality, Oracle])
def test_every_kind_is_a_law(kind: type):
    assert issubclass(kind, Law)


def test_a_program_with_mixed_laws_runs_and_is_checked_strictly():
    assert float(runpy.run_path(str(ROOT / PROGRAM))["total"]) == pytest.approx(2.0)  # two samples of mass one
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert checked["strict"]
    assert PROGRAM in checked["files"]
