"""Ten times the samples take no more memory: one block is held at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench.tests.files.tiny import write_model

pytest.importorskip("neuralop")
pytest.importorskip("zarr")

# Peak memory of one process after 200 samples, then after 2 000 more: what the first run needs is in both.
DRIVER = """
import resource, sys
from pathlib import Path
from snapfm.files import generate
from snapfm_bench.files import SampleRecipe

def peak(count):
    settings = {"nx": 64, "nt": 64}
    recipe = SampleRecipe("heat-ic-mass", count, sys.argv[1], steps=1, batch=40, settings=settings, threads=1)
    assert generate(recipe, Path(sys.argv[2], f"{count}.zarr")).converged == count
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

print(peak(200), peak(2000))
"""
FIELDS = 1800 * 64 * 64 * 8  # bytes that 2 000 samples have more than 200: 59 MB


def test_memory_does_not_grow_with_the_count(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "heat-ic-mass", nx=64, nt=64)
    run = subprocess.run(
        [sys.executable, "-c", DRIVER, str(model), str(tmp_path)], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    few, many = map(int, run.stdout.split())
    assert many - few < FIELDS / 4
