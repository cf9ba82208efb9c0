"""What ptxas makes of the PTX, where it is installed: code for three architectures within the registers of a thread."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib import util
from pathlib import Path

import pytest

from snapfm.device.artifact import shipped

ARCHITECTURES = ("sm_80", "sm_89", "sm_90")
MOST_REGISTERS = 255  # of the hardware: above that numbers are kept in memory
MOST_SPILLED = 64  # bytes of a thread: a few numbers


def _ptxas() -> str | None:
    """Find ptxas: on the path, in CUDA_HOME, in the package nvidia-cuda-nvcc, or in triton."""
    places = [Path(os.environ[name]) / "bin" / "ptxas" for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    for package, inside in (
        ("nvidia", "cu13/bin/ptxas"),
        ("nvidia", "cuda_nvcc/bin/ptxas"),
        ("triton", "backends/nvidia/bin/ptxas"),
    ):
        spec = util.find_spec(package)
        places += [Path(place) / inside for place in (spec.submodule_search_locations or ())] if spec else []
    return shutil.which("ptxas") or next((str(place) for place in places if place.exists()), None)


@pytest.mark.slow
@pytest.mark.skipif(_ptxas() is None, reason="ptxas is not installed (package nvidia-cuda-nvcc)")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_entry_is_assembled_within_its_registers(architecture, tmp_path):
    for name, ptx in shipped().ptx.items():
        (tmp_path / f"{name}.ptx").write_text(ptx)
        asked = [
            str(_ptxas()),
            "-v",
            f"-arch={architecture}",
            str(tmp_path / f"{name}.ptx"),
            "-o",
            str(tmp_path / "out"),
        ]
        told = subprocess.run(asked, capture_output=True, text=True)
        assert told.returncode == 0, told.stderr
        registers = [int(one) for one in re.findall(r"Used (\d+) registers", told.stderr)]
        spilled = [int(one) for one in re.findall(r"(\d+) bytes spill stores", told.stderr)]
        assert registers
        assert max(registers) <= MOST_REGISTERS
        assert max(spilled, default=0) <= MOST_SPILLED, name
