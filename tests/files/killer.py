"""Run a command that writes FILE.zarr, kill it by SIGKILL at random moments, run it again, and compare with a run left alone.

A script: `python killer.py FOLDER MODULES COMMAND…`, where MODULES, separated by commas, are imported once; each attempt is
a fork that runs COMMAND --out FILE.zarr and is killed, without warning, either between two operations on files (the n-th
that the interpreter reports) or after a while. Prints the number of kills.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from snapfm.cli import main

OPERATIONS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
ATTEMPTS = 3  # in each of three rounds

folder, modules, *command = Path(sys.argv[1]), sys.argv[2].split(","), *sys.argv[3:]
torch.set_num_threads(1)
for module in modules:
    importlib.import_module(module)


def run(name: str) -> int:
    """Run the command in this process; return its exit code."""
    sys.argv = ["snapfm", *command, "--out", str(folder / name)]
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 9


def attempt(name: str, operation: int | None = None, seconds: float | None = None) -> tuple[int, int]:
    """Run the command in a fork, killed before an operation or after a while; return its exit code and its operations."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        seen = 0

        def count(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal seen
            if event in OPERATIONS and name in str(arguments[0]):
                seen += 1
                if seen == operation:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        code = run(name)
        os.write(writer, str(seen).encode())
        os._exit(code)
    os.close(writer)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(reader) as pipe:
        return code, int(pipe.read() or 0)


def tree(name: str) -> dict[str, bytes]:
    """Read all files of a store."""
    root = folder / name
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}


began = time.perf_counter()
code, operations = attempt("whole.zarr")
lasting = time.perf_counter() - began
assert code == 0, code
whole = tree("whole.zarr")
dice = random.Random(0)
kills = 0
for turn, most in enumerate((operations // 3, operations, None)):
    name = f"killed{turn}.zarr"
    for _ in range(ATTEMPTS):
        if most is None:
            code, _ = attempt(name, seconds=dice.uniform(0.0, lasting))
        else:
            code, _ = attempt(name, operation=dice.randint(1, most))
        assert code in (0, -signal.SIGKILL), code
        kills += code != 0
        # Nothing there, or the whole of it: never a file that only looks whole.
        assert not (folder / name).exists() or tree(name) == whole, f"{name} appeared before it was whole"
    assert attempt(name)[0] == 0
    assert tree(name) == whole, f"{name} differs from a run that was left alone"
    assert not (folder / (name + ".part")).exists()
print(kills)
