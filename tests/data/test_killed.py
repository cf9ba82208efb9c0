"""`snapfm data` killed by SIGKILL at random moments, again and again, ends with the bits of a run that was left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("zarr")

# One process imports everything once; each attempt is a fork of it that runs the command and is killed, without
# warning, either between two operations on files (the n-th that the interpreter reports) or after a while.
DRIVER = """
import os, random, signal, sys, time
from pathlib import Path

import torch
torch.set_num_threads(1)
import snapfm.problems, snapfm.data.write, zarr, zarr.storage, zarr.codecs, rich.progress
from snapfm.cli import main

folder = Path(sys.argv[1])
OPERATIONS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}

def command(name):
    sys.argv = ["snapfm", "data", "heat-ic-mass", "--count", "70", "--set", "nx=23", "--set", "nt=11",
                "--out", str(folder / name)]
    sys.stdout = sys.stderr = open(os.devnull, "w")
    main()

def attempt(name, operation=None, seconds=None):
    child = os.fork()
    if child == 0:
        seen = 0
        def count(event, arguments):
            nonlocal seen
            if event in OPERATIONS and name in str(arguments[0]):
                seen += 1
                if seen == operation:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
        try:
            command(name)
        except SystemExit as stop:
            os._exit(stop.code or 0)
        os._exit(9)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def check(name):
    # Nothing there, or the whole of it: never a file that only looks whole.
    if (folder / name).exists():
        assert same(name), f"{name} appeared before it was whole"

def tree(name):
    root = folder / name
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}

def same(name):
    return tree(name) == tree("whole.zarr")

assert attempt("whole.zarr") == 0
dice = random.Random(0)
kills = 0
for round in range(3):
    name = f"killed{round}.zarr"
    for _ in range(6):
        if round == 2:
            code = attempt(name, seconds=dice.uniform(0.0, 0.25))
        else:
            code = attempt(name, operation=dice.randint(1, (100, 330)[round]))
        assert code in (0, -signal.SIGKILL), code
        kills += code != 0
        check(name)
    assert attempt(name) == 0
    assert same(name), f"{name} differs from a run that was left alone"
    assert not (folder / (name + ".part")).exists()
print(kills)
"""


def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) >= 10
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [*(f"killed{i}.zarr" for i in range(3)), "whole.zarr"]
