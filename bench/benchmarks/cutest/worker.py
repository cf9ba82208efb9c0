"""One process of the battery: reads a problem, a method and the first start per line, answers with a line of JSON per event.

Started and killed by benchmarks.cutest.battery. Every event is flushed, so that a process that is killed leaves what it knew.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

import snapfm
from benchmarks.cutest.judge import judge
from benchmarks.cutest.methods import METHODS, Way
from benchmarks.cutest.problems import Feasible, load

Say = Callable[..., None]


def main() -> None:
    seconds = float(sys.argv[1])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # problems and Ipopt print

    def say(**event: Any) -> None:
        out.write(json.dumps(event) + "\n")
        out.flush()

    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    compile_all()
    say(event="ready")
    loaded = lru_cache(maxsize=1)(load)
    for line in sys.stdin:
        name, who, first = line.split()
        work(loaded, name, who, int(first), seconds, say)
        say(event="done")


def work(loaded: Callable[[str], Feasible], name: str, who: str, first: int, seconds: float, say: Say) -> None:
    """Prepare one method for one problem and call it from the starts that are left."""
    say(event="loading")
    try:
        problem = loaded(name)
    except Exception as error:
        say(event="unloadable", why=f"{type(error).__name__}: {error}"[:300])
        return
    say(event="size", n=len(problem.x0), m=len(problem.c_lower), affine=bool(problem.linear.all()),
        equations=int((problem.c_lower == problem.c_upper).sum()))  # fmt: skip
    say(event="preparing")
    began = time.perf_counter()
    try:
        way: Way = METHODS[who](problem)
    except Exception as error:
        say(event="refused", why=f"{type(error).__name__}: {error}"[:400])
        return
    say(event="prepared", preparing=time.perf_counter() - began)
    for start, at in list(enumerate(problem.starts()))[first:]:
        say(event="calling", start=start)
        try:
            answer = way.project(at, seconds)
        except Exception as error:
            say(event="answer", start=start, status="CRASH", why=f"{type(error).__name__}: {error}"[:300])
            continue
        say(event="judging", start=start)
        verdict = judge(problem, at, answer.x)
        say(
            event="answer", start=start, status=answer.status, seconds=answer.seconds, cpu=answer.cpu,
            iterations=answer.iterations, reformulated=answer.reformulated,
            violation=verdict.violation, relative=verdict.relative, stationarity=verdict.stationarity,
            distance=verdict.distance, feasible=verdict.feasible, solved=verdict.solved,
        )  # fmt: skip


def compile_all() -> None:
    """Compile what calls may need, before any clock runs: nothing obeys these laws, so every attempt is made."""

    def value(u: Any, p: Any) -> Any:
        return np.array([u[0] ** 2 + u[1] ** 2 + 1.0, u[0] - u[1]])

    def jacobian(u: Any, p: Any) -> Any:
        return np.array([[2.0 * u[0], 2.0 * u[1]], [1.0, -1.0]])

    def hessian(u: Any, p: Any, y: Any) -> Any:
        return 2.0 * y[0] * np.eye(2)

    below = snapfm.Oracle("below", value, jacobian, hessian, lower=None)
    equal = snapfm.Oracle("equal", value, jacobian, hessian)
    for laws in ([equal], [below, snapfm.Bounds(-1.0, 3.0)]):
        snapfm.Projector(laws, (2,))(torch.tensor([[1.0, 2.0]], dtype=torch.float64), seconds=60.0)


if __name__ == "__main__":
    main()
