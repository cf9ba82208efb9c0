"""Emulated: a device on the CPU. Translates PTX to C, compiles it once, and runs launches in a chosen order of threads.

The translation of an entry is kept in a temporary folder, under a hash of what it was made from.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

import numpy as np
from tests.device.emulated.parse import parse
from tests.device.emulated.translate import KINDS, translate

from snapfm.errors import MissingDependency

_RUNTIME = Path(__file__).with_name("runtime.c")
CHECKED, COUNTED = "-DCHECKED", "-DCOUNTED"
_FLAGS = ("-O0", "-w", "-shared", "-fPIC", "-mfma", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv")
_REPORT = 7 + len(KINDS)


class Order(IntEnum):
    """In which order threads run between two places where they meet."""

    ASCENDING = 0
    DESCENDING = 1
    RANDOM = 2


@dataclass(frozen=True)
class Report:
    """What a launch did: barriers passed, accesses to memory; races, and accesses outside of what it was given, with lines."""

    barriers: int
    reads: int
    writes: int
    races: int
    first_race: int
    strays: int
    first_stray: int
    counts: tuple[int, ...]  # of instructions of the first threads of all teams, by kind; zero unless they are counted


class Diverged(RuntimeError):
    """Threads of a team met at different places."""


class Executable:
    """One entry, translated and compiled; `meetings` are the lines of the PTX where threads meet."""

    def __init__(self, ptx: str, *flags: str) -> None:
        code, self.meetings = translate(parse(ptx))
        self._library = ctypes.CDLL(str(_compiled(_RUNTIME.read_text() + code, flags)))

    def run(
        self, blocks: int, width: int, height: int, arguments: Sequence[int | float], order: Order = Order.ASCENDING,
        seed: int = 1, left_out: Sequence[int] = (), memory: Sequence[np.ndarray] = (),
    ) -> Report:  # fmt: skip
        """Run blocks of width × height threads on some memory; the meetings `left_out` are skipped."""
        begins = (ctypes.c_void_p * len(memory))(*(one.ctypes.data for one in memory))
        self._library.allow(len(memory), begins, (ctypes.c_long * len(memory))(*(one.nbytes for one in memory)))
        cells = [(ctypes.c_double if isinstance(one, float) else ctypes.c_int64)(one) for one in arguments]
        pointers = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(one) for one in cells))
        report, places = (ctypes.c_long * _REPORT)(), (ctypes.c_int * len(left_out))(*left_out)
        diverged = self._library.launch(
            blocks, width, height, pointers, int(order), ctypes.c_uint64(seed), len(left_out), places, report
        )
        if diverged:
            raise Diverged("threads of a team are expected to meet at the same place; got different ones.")
        return Report(*report[:7], tuple(report[7:]))


@cache
def executable(ptx: str, *flags: str) -> Executable:
    """Return an entry, compiled at first use; CHECKED finds races and strays, COUNTED counts instructions."""
    return Executable(ptx, *flags)


def _compiled(code: str, more: tuple[str, ...]) -> Path:
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise MissingDependency("a C compiler is needed to emulate a device. Install gcc, or set CC.")
    flags = (*_FLAGS, *more)
    name = hashlib.sha256("\n".join([code, *flags]).encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"snapfm-emulated-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / f"{name}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            source, made = Path(work) / "entry.c", Path(work) / "entry.so"
            source.write_text(code)
            subprocess.run([compiler, *flags, str(source), "-o", str(made), "-lm"], check=True)
            made.replace(library)
    return library
