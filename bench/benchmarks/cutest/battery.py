"""Run problems through worker processes that can be killed; outcomes are kept whole, a line per problem, and runs resume.

A method that has to be killed, or dies, loses the start it was at; it goes on with the next one, and so do the other methods.
"""

from __future__ import annotations

import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmarks.cutest.methods import METHODS
from benchmarks.cutest.problems import SIZES

PREPARING = 60.0  # seconds for loading a problem, for preparing a method, and for judging an answer
COMPILING = 900.0  # seconds for the first process of a new version, which compiles all kernels
GRACE = 10.0  # seconds past the budget before a call counts as endless and its process is killed
LOST = 3  # processes that a method may lose on one problem before the rest of its starts are given up

Event = dict[str, Any]


class Process(Protocol):
    """A process that works: takes orders, tells events; None if it told nothing in time, "" if it ended."""

    def order(self, line: str) -> None:
        """Hand over a line."""
        ...

    def next(self, seconds: float) -> str | None:
        """Return the next line."""
        ...

    def kill(self) -> None:
        """End it, whatever it does."""
        ...


def run_all(
    names: Sequence[str], file: Path, seconds: float, share: int = 0, shares: int = 1, within: float = math.inf
) -> None:
    """Run the problems that the file does not have yet, or one of several shares of them. Written: file, a line per problem.

    Several processes may write to one file, each with its own share. After `within` seconds no further problem is begun.
    """
    known = {outcome["name"] for outcome in outcomes(file)}
    battery, began = Battery(seconds), time.monotonic()
    for number, name in enumerate(names):
        if time.monotonic() - began > within:
            break
        if name not in known and number % shares == share:
            append(file, battery.run(name))
    battery.end()


def outcomes(file: Path) -> list[dict[str, Any]]:
    """Read all outcomes; a line that was cut off when a machine went down is left out."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}") and _whole(line)]


def append(file: Path, outcome: dict[str, Any]) -> None:
    """Add one line, in one write: lines of several processes do not mix."""
    cut = file.exists() and file.stat().st_size and not file.read_bytes().endswith(b"\n")
    line = ("\n" if cut else "") + json.dumps(outcome) + "\n"
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
        os.fsync(handle)
    finally:
        os.close(handle)


class Battery:
    """Runs all methods on one problem after the other; `begin` starts a process."""

    def __init__(self, seconds: float, begin: Any = None) -> None:
        self.seconds, self._begin = seconds, begin or (lambda: Worker(seconds))
        self._process: Process | None = None

    def run(self, name: str) -> dict[str, Any]:
        """Return what every method answered from every start."""
        outcome: dict[str, Any] = {"name": name, "seconds": self.seconds}
        for who in METHODS:
            outcome[who] = {"answers": [None] * len(SIZES)}
            lost = 0
            while (first := _next(outcome[who])) is not None and lost < LOST and "unloadable" not in outcome:
                lost += not self._work(outcome, name, who, first)
        return outcome

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _work(self, outcome: dict[str, Any], name: str, who: str, first: int) -> bool:
        """Let a process work on one method; return whether it came to the end."""
        if self._process is None:
            self._process = self._begin()
            if not self._process.next(COMPILING):
                self.end()
                raise RuntimeError("a worker of the battery does not start; run python -m benchmarks.cutest.worker 1")
        process = self._process
        process.order(f"{name} {who} {first}")
        doing: Event = {"event": "loading"}
        while True:
            line = process.next(self.seconds + GRACE if doing["event"] == "calling" else PREPARING)
            if not line:
                self.end()
                _lose(outcome, outcome[who], doing, "DIED" if line == "" else "KILLED")
                return False
            doing = json.loads(line)
            if doing["event"] == "done":
                return True
            _note(outcome, outcome[who], doing)


class Worker:
    """benchmarks.cutest.worker in a process of its own."""

    def __init__(self, seconds: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cutest.worker", str(seconds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def order(self, line: str) -> None:
        """Hand over a line; a process that has ended is noticed by what it does not tell."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass

    def next(self, seconds: float) -> str | None:
        """Return the next line."""
        try:
            return self._lines.get(timeout=seconds)
        except queue.Empty:
            return None

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")


def _next(own: dict[str, Any]) -> int | None:
    """Return the first start without an answer; None if there is none, or none will come."""
    if "refused" in own:
        return None
    return next((k for k, answer in enumerate(own["answers"]) if answer is None), None)


def _note(outcome: dict[str, Any], own: dict[str, Any], event: Event) -> None:
    told = {key: value for key, value in event.items() if key not in ("event", "start")}
    if event["event"] == "unloadable":
        outcome["unloadable"] = event["why"]
    elif event["event"] == "size":
        outcome |= told
    elif event["event"] == "prepared":
        own |= told
    elif event["event"] == "refused":
        own["refused"] = event["why"]
    elif event["event"] == "answer":
        own["answers"][event["start"]] = told


def _lose(outcome: dict[str, Any], own: dict[str, Any], doing: Event, how: str) -> None:
    """Note what a process was doing when it died or had to be killed."""
    if doing["event"] in ("calling", "judging"):
        own["answers"][doing["start"]] = {"status": how if doing["event"] == "calling" else "UNJUDGED"}
    elif doing["event"] == "loading":
        outcome["unloadable"] = how
    else:
        own["refused"] = f"{how} while {doing['event']}"


def _whole(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
