"""Compile kernels before anyone calls them, side by side, from a table of the argument types that projections use.

`snapfm kernels` fills the user's cache with it. `python -m snapfm.kernels.numba.ahead FOLDER` also copies the machine code to a
folder for a wheel: the build of the package runs it, in an environment without torch. tests/kernels/tour.py writes the table.
Imports kernels only.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from llvmlite import binding  # type: ignore[import-untyped]
from numba import types
from numba.core import config

from snapfm import progress
from snapfm.kernels.numba import cache as kept

TABLE = Path(__file__).with_name("signatures.txt")
_MOST = 8  # processes: each takes a few hundred megabytes
_KERNELS = __package__.rpartition(".")[0]


def listed() -> list[str]:
    """Return the lines of the table, such as `lanes.fill(int64[:, ::1], …)`, in the order to compile them side by side.

    The one with most arguments takes a third of the time, and comes first. The next largest come last: begun beside it, they
    would wait for the functions that they have in common.
    """
    *others, largest = sorted(TABLE.read_text(encoding="utf-8").splitlines(), key=len)
    return [largest, *others]


def parsed(line: str) -> tuple[Any, tuple[Any, ...]]:
    """Return the kernel and the argument types that a line of the table stands for."""
    kernel, _, arguments = line.partition("(")
    return _found(kernel), eval(f"({arguments[:-1]},)", {**vars(types), "named": _named})


def compile_all(workers: int | None = None) -> int:
    """Compile and keep every kernel of the table, unless it is kept already; return their number."""
    lines = listed()
    at_once = workers or min(_MOST, os.cpu_count() or 1)
    line = progress.Line(f"compiling kernels, {at_once} at once") if sys.stderr.isatty() else None
    # Spawned, not forked: the caller may have threads.
    with ProcessPoolExecutor(at_once, get_context("spawn"), initializer=_quiet) as pool:
        try:
            for done, one in enumerate(as_completed([pool.submit(_compile, line) for line in lines]), 1):
                one.result()
                if line is not None:
                    line.report(f"{done} of {len(lines)}")
        finally:
            pool.shutdown(cancel_futures=True)
            if line is not None:
                line.end()
    return len(lines)


def _compile(line: str) -> None:
    kernel, arguments = parsed(line)
    kernel.compile(arguments)


def _quiet() -> None:
    """Say nothing in this process: the one that started it has a line for all, and gets what is raised."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _found(name: str) -> Any:
    module, _, own = name.rpartition(".")
    return getattr(import_module(f"{_KERNELS}.{module}"), own)


def _named(name: str, *members: Any) -> Any:
    """Return the type of a named tuple."""
    return types.BaseTuple.from_types(members, _found(name))


def _copy(folder: Path, features: str) -> None:
    """Compile all, and copy the machine code to where an installation looks for it."""
    with tempfile.TemporaryDirectory() as place:
        if kept.own() is None:
            os.environ["SNAPFM_CACHE"] = place  # of this process and those it starts
            kept.own.cache_clear()
        compile_all()
        own = kept.own()
        target = folder / kept.stamp() / (getattr(config, "CPU_NAME", None) or binding.get_host_cpu_name())
        target.mkdir(parents=True)
        for file in own.glob(f"*.{kept.OBJECT}") if own else ():
            shutil.copy(file, target)
    if not any(target.iterdir()):
        raise RuntimeError(f"expected machine code in {own}; found none. This version of numba may not be known.")
    (target / kept.FEATURES).write_text(features, encoding="ascii")


if __name__ == "__main__":
    has = " ".join(name for name, there in binding.get_host_cpu_features().items() if there)
    _copy(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else has)
