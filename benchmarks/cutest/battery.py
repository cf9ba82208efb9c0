"""Run problems through worker processes that can be killed; outcomes are kept whole, a line per problem, and runs resume."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.cutest.problems import SIZES

PREPARING = 20.0  # seconds for preparing a problem, and for loading it
GRACE = 10.0  # seconds past the budget before a call counts as endless and its process is killed


def run_all(names: list[str], file: Path, seconds: float, share: int = 0, shares: int = 1) -> None:
    """Run the problems that the file does not have yet. Written: file, a line per problem."""
    known = {json.loads(line)["name"] for line in file.read_text().splitlines()} if file.exists() else set()
    worker = None
    for number, name in enumerate(names):
        if name in known or number % shares != share:
            continue
        if worker is None or worker.dead:
            worker = Worker(seconds)
        outcome = worker.run(name)
        with file.open("a") as out:
            out.write(json.dumps(outcome) + "\n")
    if worker is not None:
        worker.end()


class Worker:
    """A process that works on one problem after the other."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.dead = seconds, False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cutest.worker", str(seconds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def run(self, name: str) -> dict[str, Any]:
        """Work on a problem until it is done, dies or takes too long; return everything it told."""
        assert self._process.stdin is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        outcome: dict[str, Any] = {"name": name, "seconds": self.seconds, "ours": _blank(), "ipopt": _blank()}
        doing: dict[str, Any] = {"event": "begun"}
        while True:
            allowed = self.seconds + GRACE if doing["event"] == "calling" else 3 * PREPARING
            try:
                line = self._lines.get(timeout=allowed)
            except queue.Empty:
                return self._lost(outcome, doing, "KILLED")
            if not line:
                return self._lost(outcome, doing, "DIED")
            event = json.loads(line)
            if event["event"] == "done":
                return outcome
            doing = event
            self._note(outcome, event)

    def end(self) -> None:
        """Let the process end."""
        if not self.dead:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()

    def _note(self, outcome: dict[str, Any], event: dict[str, Any]) -> None:
        kind, who = event.pop("event"), event.pop("who", None)
        if kind in ("size", "unloadable"):
            outcome |= event
        elif kind == "prepared":
            outcome[who]["preparing"] = event["seconds"]
        elif kind == "refused":
            outcome[who]["refused"] = event["why"]
        elif kind == "answer":
            outcome[who]["answers"][event.pop("start")] = event
        event["event"], event["who"] = kind, who
        if kind == "calling":
            event["began"] = time.monotonic()

    def _lost(self, outcome: dict[str, Any], doing: dict[str, Any], why: str) -> dict[str, Any]:
        """End a process that does not answer, and say what it was doing."""
        self.dead = True
        self._process.kill()
        self._process.wait()
        who = doing.get("who")
        if who is None:
            return outcome | {"unloadable": why}
        if doing["event"] == "calling":
            outcome[who]["answers"][doing["start"]] = {"status": why}
        else:
            outcome[who]["refused"] = f"{why} while {doing['event']}"
        return outcome

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")


def _blank() -> dict[str, Any]:
    return {"answers": [None] * len(SIZES)}
