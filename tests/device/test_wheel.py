"""The wheel, installed where nothing of CUDA is: it imports, finds its PTX, and asks for no device."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = """
import sys
from importlib.abc import MetaPathFinder

class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("cuda", "cupy", "numba_cuda", "nvmath") or name.startswith("numba.cuda"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
import torch
import snapfm
import snapfm.cli, snapfm.linear, snapfm.sampling
from snapfm.device.artifact import shipped
from snapfm.device.launch import machine_of
from snapfm.project.cpu_fallback import prepared_for

assert "newton" in shipped().ptx
assert machine_of(torch.device("cpu")) is None
maps = open("/proc/self/maps").read() if sys.platform == "linux" else ""
assert "libcuda.so" not in maps
print(snapfm.__file__)
"""


@pytest.mark.slow
def test_a_wheel_needs_nothing_of_cuda(tmp_path):
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    metadata = next(site.glob("*.dist-info/METADATA")).read_text()
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert needed
    assert not any(name in line for line in needed for name in ("cuda", "nvmath", "nvidia", "cupy"))
    told = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(site)}
    )
    assert told.returncode == 0, told.stderr
    assert str(site) in told.stdout
