"""`snapfm data` and `snapfm sample` killed by SIGKILL at random moments, again and again, end with the bits of whole runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench.tests.files.tiny import GRID, write_model

pytest.importorskip("neuralop")
xarray = pytest.importorskip("xarray")

KILLER = Path(__file__).parents[3] / "tests" / "files" / "killer.py"
DATA_MODULES = "snapfm_bench.problems,snapfm_bench.files.simulated,zarr,zarr.storage,zarr.codecs,rich.progress"
MODULES = "snapfm.files,torch._dynamo,neuralop.models,safetensors.torch,zarr,zarr.storage,zarr.codecs,rich.progress"
COMMAND = ["data", "heat-ic-mass", "--count", "70", "--set", "nx=23", "--set", "nt=11"]
COUNT = 47  # in blocks of six, the last of them short


def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    line = [sys.executable, str(KILLER), str(tmp_path), DATA_MODULES, *COMMAND]
    run = subprocess.run(line, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) >= 3  # kills; how many it takes to the end depends on the machine
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [*(f"killed{i}.zarr" for i in range(3)), "whole.zarr"]


@pytest.mark.slow
def test_killed_at_random_moments_no_sample_is_lost_or_repeated(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "heat-ic-mass", **GRID)
    settings = [word for name, value in (GRID | {"phase": "none"}).items() for word in ("--set", f"{name}={value}")]
    options = ["--count", str(COUNT), "--steps", "2", "--batch", "6", "--model", str(model), *settings]
    files = tmp_path / "files"
    files.mkdir()
    line = [sys.executable, str(KILLER), str(files), MODULES, "sample", "heat-ic-mass", *options]
    run = subprocess.run(line, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) >= 3  # kills; how many it takes to the end depends on the machine
    assert sorted(entry.name for entry in files.iterdir()) == [*(f"killed{i}.zarr" for i in range(3)), "whole.zarr"]
    for file in files.iterdir():
        with xarray.open_zarr(file) as data:
            assert data.sample.values.tolist() == list(range(COUNT))
            assert data.status.values.tolist() == [0] * COUNT
            assert len({field.tobytes() for field in data.u.values}) == COUNT
            assert len({state.tobytes() for state in data.u0.values}) == COUNT
