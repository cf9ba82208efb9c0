"""One process of the battery: reads the name of a problem per line, answers with a line of JSON per event.

Started and killed by benchmarks.cutest.battery. Every event is flushed, so that a process that is killed leaves what it knew.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.cutest.judge import judge
from benchmarks.cutest.methods import Ipopt, Ours
from benchmarks.cutest.problems import load


def main() -> None:
    seconds = float(sys.argv[1])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # problems and Ipopt print

    def say(**event: Any) -> None:
        out.write(json.dumps(event) + "\n")
        out.flush()

    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for line in sys.stdin:
        name = line.strip()
        say(event="begun", name=name)
        try:
            problem = load(name)
            starts = problem.starts()
        except Exception as error:
            say(event="unloadable", name=name, why=f"{type(error).__name__}: {error}"[:300])
            say(event="done", name=name)
            continue
        say(event="size", n=len(problem.x0), m=len(problem.c_lower), affine=bool(problem.linear.all()))
        for kind in (Ours, Ipopt):
            who = kind.__name__.lower()
            began = time.perf_counter()
            say(event="preparing", who=who)
            try:
                way = kind(problem)
            except Exception as error:
                say(event="refused", who=who, why=f"{type(error).__name__}: {error}"[:400])
                continue
            say(event="prepared", who=who, seconds=time.perf_counter() - began)
            if kind is Ours:  # kernels are compiled before the clock runs
                way.project(starts[0], 1e-3)
            for k, start in enumerate(starts):
                say(event="calling", who=who, start=k)
                try:
                    answer = way.project(start, seconds)
                    verdict = judge(problem, start, answer.x)
                except Exception as error:
                    say(event="answer", who=who, start=k, status="CRASH", why=f"{type(error).__name__}: {error}"[:300])
                    continue
                say(
                    event="answer", who=who, start=k, status=answer.status, seconds=answer.seconds, cpu=answer.cpu,
                    iterations=answer.iterations,
                    violation=verdict.violation, relative=verdict.relative, stationarity=verdict.stationarity,
                    distance=verdict.distance, feasible=verdict.feasible, solved=verdict.solved,
                )  # fmt: skip
        say(event="done", name=name)


if __name__ == "__main__":
    main()
