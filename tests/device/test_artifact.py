"""The PTX in the package: made from the sources that are here, and the same when it is made again."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from snapfm.device.artifact import Artifact, shipped, sources
from snapfm.device.build import build
from snapfm.errors import MissingDependency

ROOT = Path(__file__).parents[2]


def test_the_ptx_was_made_from_these_sources():
    assert shipped().sources == sources(), "kernels changed: run `make ptx`"


def test_every_entry_is_for_any_device_since_compute_80():
    for name, ptx in shipped().ptx.items():
        assert re.search(r"^\.target sm_80$", ptx, re.M), name
        assert len(re.findall(r"^\.visible \.entry", ptx, re.M)) == 1, name


def test_the_ptx_holds_no_path_and_reads_back():
    artifact = shipped()
    assert not any(re.search(r"^\s*\.(file|loc)\b", ptx, re.M) for ptx in artifact.ptx.values())
    assert Artifact.unpacked(artifact.packed()) == artifact


def test_the_compiler_is_the_one_of_the_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pinned = dict(one.split("==") for one in extras["cuda-build"])
    assert shipped().compiler == f"numba-cuda {pinned['numba-cuda']}"
    for name, ptx in shipped().ptx.items():
        assert re.findall(r"^// Cuda compilation tools, .* V(\S+)$", ptx, re.M) == [pinned["nvidia-nvvm"]], name


@pytest.mark.slow
def test_the_ptx_is_the_same_when_it_is_built_again():
    assert build() == shipped().packed()


def test_without_numba_cuda_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("snapfm.errors.find_spec", lambda _: None)
    with pytest.raises(MissingDependency, match=r"numba_cuda is needed for .* pip install 'snapfm\[cuda-build\]'"):
        build()


def test_nothing_of_cuda_is_imported_with_the_package():
    code = (
        "import sys, torch\n"
        "before = set(sys.modules)  # torch imports CUDA's bindings where they are installed\n"
        "import snapfm.device.artifact, snapfm.device.build\n"
        "from snapfm import *  # all public names\n"
        "print([m for m in sys.modules if m not in before and (m.split('.')[0] in ('numba_cuda', 'cuda', 'nvmath', 'cupy') "
        "or m.startswith(('numba.cuda', 'snapfm.device.target', 'snapfm.device.entries', 'snapfm.device.systems')))])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
