"""Hot times of this tree against those of another checkout, by turns in one run: `python -m benchmarks.before PATH`.

Two processes, one with the sources of each tree, are asked in turn for the median of a few hot calls, so that whatever the
machine does meanwhile meets both. The six problems, certified calls and moves, fields near truth and fields with much noise.
Appends a record; `ratio` is the median over rounds of this tree's time over the other's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

import snapfm

PROBLEMS = {
    "heat-ic-mass": 32,
    "heat-ic-mass-pde-energy": 32,
    "burgers-bc-mass": 32,
    "burgers-ic-mass-flux": 32,
    "reaction-diffusion-ic-mass": 32,
    "navier-stokes-ic-mass-enstrophy": 2,
}
NOISES = {"near": 0.01, "noisy": 0.3}
CALLS = ("certified", "move")
ROUNDS, HOT, WARM_UP = 9, 15, 6
ROOT = Path(__file__).parents[2]


def main(other: Path) -> None:
    """Compare, print and record."""
    from benchmarks.record import append, commit  # not above: the other tree, which this file also runs in, may lack it

    trees = {"here": ROOT, "there": other.resolve()}
    servers = {name: _start(tree) for name, tree in trees.items()}
    rows = []
    for problem in PROBLEMS:
        for noise in NOISES:
            for server in servers.values():
                _ask(server, {"problem": problem, "noise": noise})
            for call in CALLS:
                seconds: dict[str, list[float]] = {name: [] for name in servers}
                for turn in range(ROUNDS):
                    for name in sorted(servers, reverse=turn % 2 == 1):
                        seconds[name].append(_ask(servers[name], {"call": call}))
                ratio = statistics.median(a / b for a, b in zip(seconds["here"], seconds["there"]))
                rows.append({"problem": problem, "input": noise, "call": call, "ratio": ratio, **seconds})
                here, there = (1e3 * statistics.median(seconds[name]) for name in ("here", "there"))
                print(
                    f"{problem:34} {noise:6} {call:10} {here:8.3f} ms against {there:8.3f} ms: {ratio:.3f}", flush=True
                )
    commits = {name: commit(tree) for name, tree in trees.items()}
    worst = max(row["ratio"] for row in rows)
    print(
        f"largest ratio {worst:.3f}; recorded in {append('before', {'commits': commits, 'largest_ratio': worst, 'rows': rows})}"
    )


def _start(tree: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tree / "src"), str(ROOT)])},
    )  # fmt: skip


def _ask(server: subprocess.Popen[str], question: dict[str, str]) -> Any:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(question) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


def serve() -> None:
    """Answer questions, one line each, until there are no more."""
    calls = {}
    for line in sys.stdin:
        question = json.loads(line)
        if "problem" in question:
            calls = _calls(question["problem"], NOISES[question["noise"]])
            answer: object = "ready"
        else:
            answer = _median(calls[question["call"]])
        print(json.dumps(answer), flush=True)


def _calls(name: str, noise: float) -> dict[str, Any]:
    problem, generator = snapfm.problem(name), torch.Generator().manual_seed(0)
    fields, params = problem.truth(PROBLEMS[name], generator)
    u_hat = fields + noise * torch.randn(fields.shape, generator=generator, dtype=fields.dtype)
    example = {key: value[:1] for key, value in params.items()}
    project = snapfm.Projector(problem.laws, problem.grid.shape, example, tolerance=1e-5)
    calls = {"certified": lambda: project(u_hat, params), "move": lambda: project.move(u_hat, params)}
    for call in calls.values():
        for _ in range(WARM_UP):
            call()
    return calls


def _median(call: Any) -> float:
    seconds = []
    for _ in range(HOT):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        main(Path(sys.argv[1]))
