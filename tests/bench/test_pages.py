"""docs/tables.md and the table of the README are those of the committed runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tables_in_docs_and_readme_are_those_of_the_records():
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.tables_page", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert found.returncode == 0, f"run python -m benchmarks.tables_page; {found.stderr}"
