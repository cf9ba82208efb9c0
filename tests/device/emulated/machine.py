"""Emulated: a device on the CPU. Translates PTX to C, compiles it once, and runs launches in a chosen order of threads.

The translation of an entry is kept in a temporary folder, under a hash of what it was made from.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
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

_HERE, _SOURCES = Path(__file__).parent, ("parse.py", "translate.py", "runtime.c")
CHECKED, COUNTED, UNCHECKED = "-DCHECKED", "-DCOUNTED", "-DUNCHECKED"  # only the second makes another program
_FLAGS = (
    "-O0", "-w", "-shared", "-fPIC", "-mfma", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-U_FORTIFY_SOURCE",
)  # fmt: skip
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
    reached: frozenset[int]  # meetings, by number


class Diverged(RuntimeError):
    """Threads of a team met at different places."""


class Executable:
    """One entry, translated and compiled; `meetings` are the lines of the PTX where threads meet."""

    def __init__(self, ptx: str, *flags: str) -> None:
        library, self.meetings = _compiled(ptx, tuple(flag for flag in flags if flag == COUNTED))
        self._library, self._checks = ctypes.CDLL(str(library)), int(CHECKED in flags)

    def run(
        self, blocks: int, width: int, height: int, arguments: Sequence[int | float], order: Order = Order.ASCENDING,
        seed: int = 1, left_out: Sequence[int] = (), memory: Sequence[np.ndarray] = (), constant: Sequence[np.ndarray] = (),
        hasty: bool = False,
    ) -> Report:  # fmt: skip
        """Run blocks of width × height threads on some memory, and some that is not to be written.

        The meetings `left_out` are skipped. With `hasty` a launch ends at its first race.
        """
        if self._checks:
            self._allow([(one, 0) for one in memory] + [(one, 1) for one in constant])
        cells = [(ctypes.c_double if isinstance(one, float) else ctypes.c_int64)(one) for one in arguments]
        pointers = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(one) for one in cells))
        report, places = (ctypes.c_long * _REPORT)(), (ctypes.c_int * len(left_out))(*left_out)
        seen = (ctypes.c_char * (len(self.meetings) + 1))()
        outcome = self._library.launch(
            blocks, width, height, pointers, int(order), ctypes.c_uint64(seed), len(left_out), places, self._checks,
            int(hasty), report, seen, len(self.meetings),
        )  # fmt: skip
        if outcome == 1:
            raise Diverged("threads of a team are expected to meet at the same place; got different ones.")
        if outcome == 2:
            raise ValueError(f"a block is expected to have at most 1024 threads; got {width} × {height}.")
        reached = frozenset(k for k in range(len(self.meetings)) if seen[k] != b"\0")
        return Report(*report[:7], tuple(report[7:]), reached)

    def _allow(self, memory: list[tuple[np.ndarray, int]]) -> None:
        """Say what may be touched, and what may not be written."""
        kept: list[list[int]] = []  # first byte, the one after the last, whether it is constant
        for begin, end, constant in sorted(
            (one.ctypes.data, one.ctypes.data + one.nbytes, constant) for one, constant in memory if one.nbytes
        ):
            if kept and begin < kept[-1][1]:  # views of one array
                kept[-1][1:] = [max(kept[-1][1], end), kept[-1][2] & constant]
            else:
                kept.append([begin, end, constant])
        begins = (ctypes.c_void_p * len(kept))(*(begin for begin, _, _ in kept))
        sizes = (ctypes.c_long * len(kept))(*(end - begin for begin, end, _ in kept))
        if self._library.allow(len(kept), begins, sizes, bytes(constant for _, _, constant in kept)):
            raise ValueError(f"a launch is expected to have at most 4096 arrays; got {len(kept)}.")


@cache
def executable(ptx: str, *flags: str) -> Executable:
    """Return an entry, compiled at first use; CHECKED finds races and strays, COUNTED counts instructions."""
    return Executable(ptx, *flags)


def _compiled(ptx: str, more: tuple[str, ...]) -> tuple[Path, list[int]]:
    """Translate and compile, or find what was made of the same PTX by the same translation."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise MissingDependency("a C compiler is needed to emulate a device. Install gcc, or set CC.")
    flags = (*_FLAGS, *more)
    made_of = [ptx, *flags, *(_HERE.joinpath(name).read_text() for name in _SOURCES)]
    name = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"snapfm-emulated-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library, lines = folder / f"{name}.so", folder / f"{name}.json"
    if not library.exists():
        code, meetings = translate(parse(ptx))
        with tempfile.TemporaryDirectory(dir=folder) as work:
            source, made, told = (Path(work) / one for one in ("entry.c", "entry.so", "entry.json"))
            source.write_text(_HERE.joinpath("runtime.c").read_text() + code)
            told.write_text(json.dumps(meetings))
            subprocess.run([compiler, *flags, str(source), "-o", str(made), "-lm"], check=True)
            told.replace(lines)
            made.replace(library)
    return library, json.loads(lines.read_text())
