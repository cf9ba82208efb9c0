from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_says_what_the_records_say():
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.projection_page", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, f"run python -m benchmarks.projection_page; {run.stderr}"
