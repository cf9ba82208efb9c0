"""The wheel, built and installed in a fresh environment: what it needs, what it holds, and that it works there."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from types import ModuleType

import pytest

import snapfm
from snapfm.kernels.numba import ahead

ROOT = Path(__file__).parents[1]
PROJECT = """
import torch, snapfm
project = snapfm.Projector([snapfm.Equality("product", lambda u, p: u[0] * u[1] - 1.0)], (3,))
print(float(project(torch.ones(1, 3, dtype=torch.float64) / 2).u[0, :2].prod()))
"""
NEVER = """
from snapfm.kernels.numba.compiling import Kernel
def never(self, *given):
    raise AssertionError(f"{self.__name__} was compiled")
Kernel._make = never
"""
TRIED = """
import snapfm
try:
    snapfm.problem("heat-ic-mass")
except snapfm.errors.MissingDependency as missing:
    print(missing)
"""


def run(*command: str | Path, **variables: str) -> str:
    """Run a command with what a user's shell has: nothing of this repository."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [str(word) for word in command], env={**clean, **variables}, cwd=ROOT.parent, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def built(folder: Path, *, of: str = ".", **variables: str) -> tuple[Path, str]:
    """Build a wheel; return it, and what the build said."""
    ran = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT / of, env={**os.environ, **variables}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    return wheel, ran.stdout + ran.stderr


def read(wheel: Path) -> Message:
    """Return the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def contents(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def installed(wheel: Path, folder: Path) -> Path:
    """Install a wheel in a new environment, which borrows its dependencies from this one; return the folder of its commands."""
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    own = Path(run(commands / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for place in Path(sysconfig.get_path("purelib")).iterdir():  # all but what is of this repository, the bench too
        if "snapfm" not in place.name and not (own / place.name).exists():
            (own / place.name).symlink_to(place)
    run(sys.executable, "-m", "pip", "--python", commands / "python", "install", "-q", "--no-deps", "--no-index", wheel)
    return commands


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"), SNAPFM_COMPILE="0")[0]


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    return read(wheel)


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


def test_networks_are_a_matter_of_the_bench_alone(metadata: Message, tmp_path: Path):
    """neuraloperator brings telemetry along, and flow_matching must not be used commercially."""
    bench = read(built(tmp_path, of="bench")[0])
    plain = names([one for one in bench.get_all("Requires-Dist", []) if "extra ==" not in one])
    assert {"snapfm", "neuraloperator"} <= plain
    ours = names(metadata.get_all("Requires-Dist", []))
    assert not ours & {"neuraloperator", "wandb", "snapfm-bench", "flow_matching", "flow-matching", "torchcfm", "POT"}
    theirs = names(bench.get_all("Requires-Dist", []))
    assert not theirs & {"flow_matching", "flow-matching", "torchcfm", "POT"}


def test_one_version_everywhere(metadata: Message):
    version = snapfm.__version__
    bench = tomllib.loads((ROOT / "bench/pyproject.toml").read_text())["project"]["version"]
    citation = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert citation is not None
    assert newest is not None
    assert {metadata["Version"], bench, citation[1], newest[1]} == {version}


def test_it_holds_the_package_and_nothing_else(wheel: Path):
    found = contents(wheel)
    assert {name.split("/")[0] for name in found if ".dist-info/" not in name} == {"snapfm"}
    assert {"snapfm/py.typed", "snapfm/__main__.py", "snapfm/kernels/numba/signatures.txt"} <= set(found)
    assert not [name for name in found if "/objects/" in name or name.endswith((".nbi", ".nbc"))]


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the library alone."""
    return installed(wheel, tmp_path_factory.mktemp("library") / "environment")


def test_it_works_in_a_fresh_environment(wheel: Path, commands: Path):
    where = run(commands / "python", "-c", "import snapfm; print(snapfm.__file__)").strip()
    assert Path(where).is_relative_to(commands.parent)
    assert abs(float(run(commands / "python", "-c", PROJECT)) - 1.0) < 1e-9
    version = f"snapfm {wheel.name.split('-')[1]}\n"
    assert run(commands / "snapfm", "--version") == run(commands / "python", "-m", "snapfm", "--version") == version


def test_without_the_bench_the_library_says_what_to_install(commands: Path):
    assert "kernels" in run(commands / "snapfm", "--help")
    said = run(commands / "python", "-c", TRIED)
    assert "snapfm_bench is needed for snapfm.problem" in said
    assert "pip install" in said


def test_a_build_compiles_the_kernels_with_the_numba_that_will_call_them(tmp_path: Path):
    """Pip shows a build another numba than the one it installs beside. The wheel projects without a compiler and a cache."""
    hiding = tmp_path / "shown to the build" / "numba"
    hiding.mkdir(parents=True)
    (hiding / "__init__.py").write_text("raise ImportError('not the one that is installed')")
    wheel, said = built(tmp_path / "dist", SNAPFM_COMPILE="host", PYTHONPATH=str(hiding.parent))
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{python}-{python}-" in wheel.name, said
    assert sum(name.endswith(".object") for name in contents(wheel)) >= len(ahead.listed())
    commands = installed(wheel, tmp_path / "environment")
    assert abs(float(run(commands / "python", "-c", NEVER + PROJECT, SNAPFM_CACHE="off")) - 1.0) < 1e-9


def test_where_kernels_cannot_be_compiled_a_line_says_so_and_the_wheel_has_none(tmp_path: Path):
    wheel, said = built(tmp_path, SNAPFM_COMPILE="host", SNAPFM_CACHE=str(tmp_path), NUMBA_DISABLE_JIT="1")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "the kernels could not be compiled" in said
    assert not [name for name in contents(wheel) if "/objects/" in name]


@pytest.fixture
def hook() -> ModuleType:
    """The hook of the build, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("machine_code", ROOT / "scripts" / "machine_code.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_common_processors_that_this_machine_cannot_run_are_left_out(hook: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("platform.machine", lambda: "AMD64")
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: dict.fromkeys(hook._V3.split(), True))
    assert list(hook.runnable()) == ["x86-64-v3"]
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert hook.runnable() == {}
