"""`snapfm kernels`: compile the kernels now, side by side, rather than one by one at their first use."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from snapfm.errors import SnapfmError

_MOST = 8  # processes: each takes a few hundred megabytes
_V3 = "avx avx2 bmi bmi2 cx16 f16c fma lzcnt movbe popcnt sahf sse3 sse4.1 sse4.2 ssse3 xsave"
# Processors that machine code is shipped for, as LLVM calls them, and what they have.
_LEVELS = {
    "x86_64": {"x86-64-v3": _V3, "x86-64-v4": f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"},
    "aarch64": {"generic": ""},
    "arm64": {"apple-m1": ""},
}


def kernels(
    ship: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write machine code for common processors, to be put into a wheel."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes at once; by default one a core.")] = None,
) -> None:
    """Compile the kernels now and keep them, so that no later call has to wait for it."""
    at_once = workers or min(_MOST, os.cpu_count() or 1)
    if ship is None:
        from snapfm.kernels.numba.cache import own

        if (folder := own()) is None:
            raise SnapfmError(
                "snapfm kernels expects a cache folder that it may write; found none. Set SNAPFM_CACHE to a folder."
            )
        spent = _toured(at_once, {})
        typer.echo(f"{_counted(folder)} kernels in {folder}, {spent:.0f} s")
        return
    for level, features in _runnable().items():
        with tempfile.TemporaryDirectory() as place:
            spent = _toured(at_once, {"SNAPFM_CACHE": place, "NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""})
            target = _shipped(Path(place), ship, level, features)
        size = sum(file.stat().st_size for file in target.iterdir())
        typer.echo(f"{_counted(target)} kernels for {level}, {size / 1e6:.1f} MB, in {target}, {spent:.0f} s")


def _runnable() -> dict[str, str]:
    """Return the levels that this machine can run, as compiling runs what was compiled."""
    from llvmlite import binding  # type: ignore[import-untyped]

    has = {name for name, there in binding.get_host_cpu_features().items() if there}
    levels = _LEVELS.get(platform.machine().replace("AMD64", "x86_64"), {})
    return {level: features for level, features in levels.items() if set(features.split()) <= has}


def _toured(workers: int, environment: dict[str, str]) -> float:
    """Make the tour in several processes, which share what they keep; return the seconds it took."""
    from snapfm.cli.tour import STOPS

    began, stops = perf_counter(), list(STOPS)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "snapfm.cli.tour", *stops[first::workers]],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
        )
        for first in range(min(workers, len(stops)))
    ]
    try:
        failed = [
            stop for number, process in enumerate(processes) if process.wait() != 0 for stop in stops[number::workers]
        ]
    finally:
        for process in processes:
            process.kill()
    if failed:
        raise SnapfmError(f"snapfm kernels expects its tour to end; it failed at {failed}. See what it printed above.")
    return perf_counter() - began


def _shipped(made: Path, ship: Path, level: str, features: str) -> Path:
    """Copy machine code to the folder where an installation looks for it."""
    from snapfm.kernels.numba.cache import FEATURES, OBJECT, stamp

    target = ship / stamp() / level
    target.mkdir(parents=True, exist_ok=True)
    for file in made.glob(f"*/*.{OBJECT}"):
        shutil.copyfile(file, target / file.name)  # what is kept only its owner may read
    (target / FEATURES).write_text(features, encoding="ascii")
    return target


def _counted(folder: Path) -> int:
    from snapfm.kernels.numba.cache import OBJECT

    return sum(1 for _ in folder.glob(f"*.{OBJECT}"))
