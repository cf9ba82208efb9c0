"""The hook of hatchling that compiles the kernels while a wheel is built, and puts them into it.

The wheel is then one for this system and Python. SNAPFM_COMPILE says for which processors:
  host     this machine's, as `pip install .` does; the default
  common   those that most machines have, for wheels that are handed on (`make wheel`)
  0        none: the wheel is one for all systems, and kernels are compiled when they are first called
Editable installations and source distributions hold no machine code. Where compiling fails, a line says so and the wheel has
none.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.requirements import Requirement

CHOICES = ("host", "common", "0")
_V3 = "avx avx2 bmi bmi2 cx16 f16c fma lzcnt movbe popcnt sahf sse3 sse4.1 sse4.2 ssse3 xsave"
# Processors that wheels to be handed on have code for, as LLVM calls them, and what they have.
_COMMON = {
    "x86_64": {"x86-64-v3": _V3, "x86-64-v4": f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"},
    "aarch64": {"generic": ""},
    "arm64": {"apple-m1": ""},
}


class MachineCode(BuildHookInterface):
    """Add the machine code, and say what the wheel is for."""

    _place: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Change what is built; hatchling calls this."""
        asked = os.environ.get("SNAPFM_COMPILE", "host")
        if asked not in CHOICES:
            raise ValueError(f"SNAPFM_COMPILE expects one of {', '.join(CHOICES)}; got {asked!r}. Set one of them.")
        if asked == "0" or version != "standard":
            return
        self._place = tempfile.mkdtemp()
        try:
            self._compile(Path(self._place), asked)
        except Exception as trouble:
            last = str(getattr(trouble, "stderr", None) or trouble).strip().rpartition("\n")[2]
            self.app.display_warning(
                f"snapfm: the kernels could not be compiled; they will be when they are first called. ({last})"
            )
            return
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        build_data["pure_python"] = False
        build_data["tag"] = f"{python}-{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["force_include"][f"{self._place}/objects"] = "snapfm/kernels/objects"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was put into the wheel; hatchling calls this when it is written."""
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)

    def _compile(self, place: Path, asked: str) -> None:
        environment = self._environment()
        levels: dict[str, str | None] = {"": None} if asked == "host" else {**runnable()}
        for level, features in levels.items():
            what = f"kernels for {level or 'this processor'}"
            self.app.display_info(f"snapfm: compiling {what}, about a minute (SNAPFM_COMPILE=0 leaves it out)")
            began, chosen = perf_counter(), {}
            if level:
                chosen = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": "", "SNAPFM_CACHE": str(place / level)}
            command = [sys.executable, "-m", "snapfm.kernels.numba.ahead", str(place / "objects")]
            subprocess.run(
                command if features is None else [*command, features],
                cwd=place, env={**environment, **chosen}, check=True, text=True,
                stderr=None if sys.stderr.isatty() else subprocess.PIPE,
            )  # fmt: skip
            self.app.display_info(f"snapfm: {what} compiled in {perf_counter() - began:.0f} s")

    def _environment(self) -> dict[str, str]:
        """Return variables with which Python finds the sources, and the numba that will call what is compiled, if there is one.

        Machine code is valid for one version of numba. Pip hides the environment it installs into from builds, behind PYTHONPATH,
        and gives them the latest numba; one that is installed and is new enough stays.
        """
        source = str(Path(self.root) / "src")
        outside = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
        ask = [sys.executable, "-c", "import scipy, numba; print(numba.__version__)"]
        there = subprocess.run(ask, env=outside, cwd=tempfile.gettempdir(), capture_output=True, text=True)
        asked = {one.name: one.specifier for one in map(Requirement, self.metadata.core.dependencies)}["numba"]
        if there.returncode == 0 and asked.contains(there.stdout.strip(), prereleases=True):
            return {**outside, "PYTHONPATH": source}
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))}


def runnable() -> dict[str, str]:
    """Return the common processors that this machine is at least."""
    from llvmlite import binding

    has = {name for name, there in binding.get_host_cpu_features().items() if there}
    levels = _COMMON.get(platform.machine().replace("AMD64", "x86_64"), {})
    return {level: features for level, features in levels.items() if set(features.split()) <= has}
