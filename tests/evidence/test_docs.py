"""The pages in docs and the table of the README are those of the committed records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "page",
    [
        "audit_page",
        "exact_page",
        "inequalities_page",
        "many_machines_page",
        "projection_page",
        "quality_page",
        "tables_page",
    ],
)
def test_a_page_is_that_of_the_records(page: str):
    found = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{page}", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert found.returncode == 0, f"run python -m benchmarks.{page}; {found.stderr}"
