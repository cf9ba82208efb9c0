"""Planted methods: good, hanging, crashing, missing, refusing and lying ones. The runner's processes import them too."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from snapfm.errors import MissingDependency, UnsupportedLaw
from snapfm.laws import Params
from snapfm.project import Projector
from snapfm.solve.base import Solution

NOTES = "SNAPFM_TEST_NOTES"  # a file that methods write what they see into


class Good:
    """Our own projector under another name."""

    def __init__(self, projector: Projector) -> None:
        self.projector = projector

    def prepare(self, tolerance: float, count: int) -> None:
        note(f"prepare {tolerance:g} {count} threads {torch.get_num_threads()} {os.environ['OMP_NUM_THREADS']}")

    def run(self, u_hat: Tensor, params: Params, tolerance: float) -> Tensor:
        return self.projector(u_hat, params, tolerance=tolerance).u

    def solve(self, u_hat: Tensor, params: Params, tolerance: float) -> Solution:
        found = self.projector(u_hat, params, tolerance=tolerance)
        rows = torch.cat(list(found.multipliers.values()), dim=1)
        flat = found.u.flatten(1)
        residual = self.projector.structure.residual(found.u, params)
        return Solution(flat, rows, found.iterations, residual, found.stationarity, found.distance, found.status)


class Curved(Good):
    """Does nothing for two iterations, then everything."""

    def limited(self, u_hat: Tensor, params: Params, tolerance: float, iterations: int) -> Solution:
        found = self.solve(u_hat, params, tolerance)
        return found if iterations > 2 else replace(found, u=u_hat.flatten(1), multipliers=0 * found.multipliers)

    def phases(self, u_hat: Tensor, params: Params, tolerance: float) -> dict[str, float]:
        return {"derivatives": 0.25, "solve": 0.5}


class Lying(Good):
    """Gives its input back and calls it converged."""

    def solve(self, u_hat: Tensor, params: Params, tolerance: float) -> Solution:
        found = super().solve(u_hat, params, tolerance)
        return replace(found, u=u_hat.flatten(1).clone(), status=torch.zeros(len(u_hat), dtype=torch.int8))


class Hanging(Good):
    """Hangs at its second call, with a child that would live on."""

    calls = 0

    def run(self, u_hat: Tensor, params: Params, tolerance: float) -> Tensor:
        self._hang()
        return super().run(u_hat, params, tolerance)

    def solve(self, u_hat: Tensor, params: Params, tolerance: float) -> Solution:
        self._hang()
        return super().solve(u_hat, params, tolerance)

    def _hang(self) -> None:
        self.calls += 1
        if self.calls > 1:
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            note(f"child {child.pid}")
            time.sleep(600)


class Slow(Good):
    """Takes its time for every projection."""

    def run(self, u_hat: Tensor, params: Params, tolerance: float) -> Tensor:
        time.sleep(0.8)
        return super().run(u_hat, params, tolerance)


class Warm(Good):
    """Takes warm starts, and tells of every start."""

    def run(self, u_hat: Tensor, params: Params, tolerance: float) -> Tensor:
        note("cold")
        return super().run(u_hat, params, tolerance)

    def solve(self, u_hat: Tensor, params: Params, tolerance: float) -> Solution:
        note("cold")
        return super().solve(u_hat, params, tolerance)

    def again(self, u_hat: Tensor, params: Params, tolerance: float, last: Tensor) -> Tensor:
        assert last.shape == u_hat.shape
        note("warm")
        return super().run(u_hat, params, tolerance)


class Leaving(Good):
    """Ends the process."""

    def run(self, u_hat: Tensor, params: Params, tolerance: float) -> Tensor:
        print("out of cheese\nredo from start", file=sys.stderr, flush=True)
        os._exit(3)


class Faulting(Good):
    """Reads where nothing is."""

    def run(self, u_hat: Tensor, params: Params, tolerance: float) -> Tensor:
        ctypes.string_at(0)
        raise AssertionError("unreachable")


class Raising(Good):
    """Raises."""

    def run(self, u_hat: Tensor, params: Params, tolerance: float) -> Tensor:
        raise RuntimeError("the pivot is zero\nand a second line")


class Killing(Good):
    """Ends the runner, once."""

    def run(self, u_hat: Tensor, params: Params, tolerance: float) -> Tensor:
        if Path(os.environ[NOTES]).with_suffix(".armed").exists():
            Path(os.environ[NOTES]).with_suffix(".armed").unlink()
            note(f"killing {os.getpid()}")
            os.kill(os.getppid(), 9)
            time.sleep(600)
        return super().run(u_hat, params, tolerance)


def missing(projector: Projector) -> Good:
    raise MissingDependency("unobtainium is needed for it. Install it with: pip install unobtainium")


def refusing(projector: Projector) -> Good:
    raise UnsupportedLaw("Refusing expects no laws; got some. Use another.")


@dataclass(frozen=True)
class Method:
    build: Callable[[Projector], object]
    curve: bool = False


METHODS = {
    "ours": Method(Curved, curve=True),
    "good": Method(Good),
    "lying": Method(Lying),
    "hanging": Method(Hanging),
    "slow": Method(Slow),
    "warm": Method(Warm),
    "leaving": Method(Leaving),
    "faulting": Method(Faulting),
    "raising": Method(Raising),
    "killing": Method(Killing),
    "missing": Method(missing),
    "refusing": Method(refusing),
}


def note(words: str) -> None:
    if NOTES in os.environ:
        with open(os.environ[NOTES], "a", encoding="utf-8") as file:
            file.write(words + "\n")


SUITE = """
title = "Tiny"
catalog = "toys"
threads = 1
repeats = 2
budget = 120
methods = {methods}

[cases.burgers]
problem = "burgers-bc-mass"
settings = {{ nx = 11, nt = 9 }}
samples = 3
noisy = 0.01
{case}
{more}
"""


def suite_file(
    folder: Path,
    methods: list[str],
    case: str = "",
    more: str = "",
    name: str = "tiny",
    changes: dict[str, str] | None = None,
) -> Path:
    text = SUITE.format(methods=str(methods).replace("'", '"'), case=case, more=more)
    for old, new in (changes or {}).items():
        assert old in text
        text = text.replace(old, new)
    file = folder / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    return file
