"""The wheel, built and installed in a fresh environment: what it needs, what it holds, and that it works there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import torch

from snapfm import Equality, Projector
from snapfm.kernels.numba import cache as kept

ROOT = Path(__file__).parents[1]
PROJECT = """
import torch, snapfm
project = snapfm.Projector([snapfm.Equality("mass", lambda u, p: u.sum() - 1.0)], (3,))
print(float(project(torch.zeros(1, 3, dtype=torch.float64)).u.sum()))
"""
NEVER = """
from snapfm.kernels.numba.compiling import Kernel
def never(self, *given):
    raise AssertionError(f"{self.__name__} was compiled")
Kernel._make = never
"""


def run(*command: str | Path, **variables: str) -> str:
    """Run a command with what a user's shell has: nothing of this repository."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [str(word) for word in command], env={**clean, **variables}, cwd=ROOT.parent, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def built(folder: Path, **variables: str) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, env={**os.environ, **variables}, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    return wheel


def installed(wheel: Path, folder: Path) -> Path:
    """Install a wheel in a new environment, which borrows its dependencies from this one; return the folder of its commands."""
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    here = sysconfig.get_path("purelib")
    own = Path(run(commands / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (own / "borrowed.pth").write_text(
        here
    )  # its folder only: .pth files in there, of this repository too, are not followed
    run(sys.executable, "-m", "pip", "--python", commands / "python", "install", "-q", "--no-deps", "--no-index", wheel)
    return commands


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def names(requirements: list[str]) -> set[str]:
    return {
        "".join(letter if letter.isalnum() or letter in "-_" else " " for letter in one).split()[0]
        for one in requirements
    }


def test_it_is_for_every_system_and_needs_six_packages(wheel: Path, metadata: Message):
    assert wheel.name.endswith("-py3-none-any.whl")
    asked = metadata.get_all("Requires-Dist", [])
    plain = [one for one in asked if "extra ==" not in one]
    assert names(plain) == {"torch", "numpy", "scipy", "numba", "rich", "typer"}
    assert any(one.replace(" ", "").startswith("torch>=2.6") for one in plain)
    assert metadata["Requires-Python"] == ">=3.11"


def test_the_extra_all_holds_what_users_may_want_and_every_extra_is_used(metadata: Message):
    extras = set(metadata.get_all("Provides-Extra", []))
    assert extras == {"all", "data", "dev", "docs", "plot", "ray"}
    asked = metadata.get_all("Requires-Dist", [])
    needs = {extra: names([one for one in asked if f"extra == '{extra}'" in one]) for extra in extras}
    assert all(needs.values())
    assert needs["all"] == set().union(*(needs[one] for one in ("data", "plot", "ray")))


def test_it_holds_the_package_and_nothing_else(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        found = archive.namelist()
    assert {name.split("/")[0] for name in found if ".dist-info/" not in name} == {"snapfm"}
    assert {"snapfm/py.typed", "snapfm/__main__.py"} <= set(found)
    assert not [name for name in found if "/objects/" in name or name.endswith((".nbi", ".nbc"))]


def test_it_works_in_a_fresh_environment(wheel: Path, tmp_path: Path):
    commands = installed(wheel, tmp_path / "environment")
    where = run(commands / "python", "-c", "import snapfm; print(snapfm.__file__)").strip()
    assert Path(where).is_relative_to(tmp_path)
    assert abs(float(run(commands / "python", "-c", PROJECT)) - 1.0) < 1e-9
    version = f"snapfm {wheel.name.split('-')[1]}\n"
    assert run(commands / "snapfm", "--version") == run(commands / "python", "-m", "snapfm", "--version") == version


def test_with_machine_code_nothing_is_compiled(tmp_path: Path):
    """Kernels that this process has kept are shipped: the installed wheel projects without a compiler and without a cache."""
    project = Projector([Equality("mass", lambda u, p: u.sum() - 1.0)], (3,))
    project(torch.zeros(1, 3, dtype=torch.float64))
    own = kept.own()
    assert own is not None
    level = tmp_path / "objects" / kept.stamp() / "this"
    level.mkdir(parents=True)
    for file in own.glob(f"*.{kept.OBJECT}"):
        shutil.copy(file, level)
    (level / kept.FEATURES).write_text("")
    wheel = built(tmp_path / "dist", SNAPFM_OBJECTS=str(tmp_path / "objects"))
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{python}-{python}-" in wheel.name
    commands = installed(wheel, tmp_path / "environment")
    assert abs(float(run(commands / "python", "-c", NEVER + PROJECT, SNAPFM_CACHE="off")) - 1.0) < 1e-9
