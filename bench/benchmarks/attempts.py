"""What each attempt is worth: `python -m benchmarks.attempts [SUITE …]` counts samples tried and rescued, over all suites.

An attempt that rescues fewer than one in two hundred of the samples that reach it does not earn its lines. Suites: the problems
with six kinds of input, the any-law cases at the size for tests and at their own, random problems, the kinds of the certificates'
audit, and CUTEst. Appends a record. Nothing is timed; calls have a limit of seconds, so that no law holds up the rest.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import snapfm
from benchmarks.record import append
from snapfm.errors import SnapfmError, Status
from snapfm.solve.attempts.attempt import Attempt, Search
from snapfm.solve.tiles import AttemptOutcome

Counts = dict[str, list[int]]  # of each attempt: samples tried, brought to converge, proven infeasible
ENOUGH = 0.005  # of the samples that reach an attempt
SECONDS = 20.0  # of a call
TENTH = 10  # all of CUTEst takes hours


@contextmanager
def counted() -> Iterator[Counts]:
    """Count all attempts made in this process meanwhile."""
    counts: Counts = {}

    made = Attempt.make

    def make(attempt: Attempt, search: Search) -> AttemptOutcome:
        ended = made(attempt, search)
        solved, proven = (int((ended.status == one).sum()) for one in (Status.CONVERGED, Status.INFEASIBLE))
        add(counts, {attempt.name: [len(ended.status), solved, proven]})
        return ended

    with patch.object(Attempt, "make", make):
        yield counts


def add(counts: Counts, more: Counts) -> None:
    """Add counts to others. Written: counts."""
    for name, numbers in more.items():
        counts[name] = [a + b for a, b in zip(counts.get(name, [0, 0, 0]), numbers)]


def lines(counts: Counts) -> list[str]:
    """Write counts as lines, the least worth first."""
    worth = {name: (solved + proven) / max(1, tried) for name, (tried, solved, proven) in counts.items()}
    return [
        f"{name:24} tried on {counts[name][0]:6}, solved {counts[name][1]:6}, proven infeasible {counts[name][2]:5} "
        f"({worth[name]:.2%})" + ("" if worth[name] >= ENOUGH else "  below the line")
        for name in sorted(counts, key=lambda name: worth[name])
    ]


def _project(laws: Any, u_hat: torch.Tensor, params: dict[str, torch.Tensor], tolerance: float = 1e-8) -> None:
    example = {name: value[:1] for name, value in params.items()}
    snapfm.Projector(laws, u_hat.shape[1:], example, tolerance)(u_hat, params, seconds=SECONDS)


def problems() -> Iterator[Any]:
    """Six kinds of input of every problem."""
    from benchmarks.robustness import VARIANTS, problem_rows
    from snapfm_bench.problems import names

    for name, settings in (*((name, {}) for name in names()), *VARIANTS):
        yield lambda name=name, settings=settings: problem_rows(name, settings, samples=60, distinct=20)


def any_law() -> Iterator[Any]:
    """Every any-law case with both inputs, at the size for tests and, up to 20 000 unknowns, at its own."""
    import benchmarks.any_law.cases  # noqa: F401  registers the cases
    from benchmarks.any_law.case import CASES, LEVELS

    def run(case: Any, size: int, level: str) -> None:
        setting = case.setting(size, 8)
        if setting.truth[0].numel() <= 20_000:
            _project(setting.laws, case.input(setting, level), setting.params, case.tolerance)

    for case in CASES.values():
        for size in (case.tiny, case.size):
            for level in LEVELS:
                yield lambda case=case, size=size, level=level: run(case, size, level)


def random_problems() -> Iterator[Any]:
    """Small random problems that can hold."""
    from benchmarks.random_problems import random_problem

    for number in range(1000):
        made = random_problem(number)
        yield lambda made=made: _project(made.laws, made.u_hat, made.params)


def certificates() -> Iterator[Any]:
    """The kinds of noise and of laws that certificates are audited on, contradictory ones among them."""
    from benchmarks.certificates import KINDS, draw

    def run(kind: str, number: int) -> None:
        case = draw(kind, number)
        _project(case.laws, case.u_hat, case.params, case.tolerance)

    for kind in KINDS:
        for number in range(40):
            yield lambda kind=kind, number=number: run(kind, number)


def cutest() -> Iterator[Any]:
    """Every tenth problem of the CUTEst battery, in its package's order, with at most 500 unknowns, from all of their starts."""
    from benchmarks.cutest.methods import Ours
    from benchmarks.cutest.problems import load, names

    def run(name: str) -> None:
        problem = load(name)
        if len(problem.x0) <= 500:
            ours = Ours(problem)
            for start in problem.starts():
                ours.project(start, SECONDS / 4)

    for name in names()[::TENTH]:
        yield lambda name=name: run(name)


SUITES = {one.__name__: one for one in (problems, any_law, random_problems, certificates, cutest)}


def run_suite(name: str) -> dict[str, Any]:
    """Count over one suite; a case that a suite cannot load or that raises is counted as such."""
    cases, failed = 0, 0
    with counted() as counts, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.seterr(all="ignore")
        for case in SUITES[name]():
            cases += 1
            try:
                case()
            except (SnapfmError, ArithmeticError, ValueError, MemoryError, RuntimeError, IndexError, TypeError):
                failed += 1
    return {"cases": cases, "raised": failed, "attempts": counts}


def main() -> None:
    """Count over the suites that are named, or all; print and record."""
    found = {}
    for name in sys.argv[1:] or SUITES:
        found[name] = run_suite(name)
        print(f"{name}: {found[name]['cases']} cases, {found[name]['raised']} raised", flush=True)
        for line in lines(found[name]["attempts"]):
            print(f"  {line}", flush=True)
    total: Counts = {}
    for one in found.values():
        add(total, one["attempts"])
    print("all:", *lines(total), sep="\n  ")
    print(f"recorded in {append('attempts', {'suites': found, 'total': total})}")


if __name__ == "__main__":
    main()
