"""`snapfm data` killed by SIGKILL at random moments, again and again, ends with the bits of a run that was left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("zarr")

KILLER = Path(__file__).with_name("killer.py")
MODULES = "snapfm_bench.problems,snapfm_bench.files.simulated,zarr,zarr.storage,zarr.codecs,rich.progress"
COMMAND = ["data", "heat-ic-mass", "--count", "70", "--set", "nx=23", "--set", "nt=11"]


def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    line = [sys.executable, str(KILLER), str(tmp_path), MODULES, *COMMAND]
    run = subprocess.run(line, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) >= 3  # kills; how many it takes to the end depends on the machine
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [*(f"killed{i}.zarr" for i in range(3)), "whole.zarr"]
