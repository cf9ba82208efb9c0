"""One projector called by eight threads at once: every answer has to have the bits of the same call made alone.

Laws of every method (affine, Newton's with parts of several kinds, bounds, the slow path), batches of many sizes, different
params, warm starts, certified calls and moves mixed, with a switch interval that makes threads meet as often as can be.
Then how long a hot call takes while another process keeps one core busy, against the quiet time in the same run.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import snapfm
from snapfm import Bounds, Equality, Inequality, Projection, Projector
from snapfm.laws import Law

THREADS = 8
CALLS = {
    "affine": 4400,
    "sums and pins": 2000,
    "curved": 4400,
    "bounded": 1600,
    "slow path": 100,
}  # a thread, by law set
JOBS = 24  # different calls of a law set
SIZES = (1, 3, 7, 8, 9, 16)
SWITCH = 1e-5  # seconds between switches of threads
HOT, ROUNDS = 40, 5  # hot calls of one median, and medians, quiet and busy by turns
SAMPLES = 32

SETS: dict[str, tuple[tuple[Law, ...], tuple[int, ...], tuple[int, ...]]] = {
    "affine": (
        (
            Equality("initial", lambda u, p: u[:, 0] - p["a"]),
            Equality("mass", lambda u, p: u[:, 1:].sum(0) - p["a"].sum()),
        ),
        (6, 5),
        (6,),
    ),
    "sums and pins": (
        (
            Equality("initial", lambda u, p: u[:, 0] - p["a"]),
            Equality("energy", lambda u, p: (u[:, 1:] ** 2).sum(0) - (p["a"] ** 2).sum() - 1.0),
            Equality("mass", lambda u, p: u[:, 1:].sum(0) - p["a"].sum() / 2),
        ),
        (6, 5),
        (6,),
    ),
    "curved": (
        (
            Equality("sphere", lambda u, p: (u**2).sum(0) - p["a"] ** 2 - 1.0),
            Equality("product", lambda u, p: u[0, 0] * u[1, 1] - p["a"][0]),
        ),
        (6, 5),
        (5,),
    ),
    "bounded": (
        (
            Equality("mass", lambda u, p: u.sum(0) - p["a"].abs()),
            Inequality("decay", lambda u, p: (u[:, 1:] ** 2).sum(0) - 4.0),
            Bounds(lower=0.0),
        ),
        (6, 5),
        (5,),
    ),
    "slow path": ((Equality("logsumexp", lambda u, p: torch.logsumexp(u, 0) - p["a"]),), (3, 2), (2,)),
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One call: its fields, params, what it begins with, and whether it is certified."""

    u_hat: Tensor
    params: dict[str, Tensor]
    warm: Projection | None
    certified: bool


def run() -> dict[str, Any]:
    """Make all calls, then time hot ones beside a busy core."""
    rows = [stress(name, calls) for name, calls in CALLS.items()]
    return {
        "threads": THREADS,
        "switch_interval": SWITCH,
        "calls": sum(row["calls"] for row in rows),
        "wrong": sum(row["wrong"] for row in rows),
        "sets": rows,
        "busy_core": [
            _busy(name) for name in ("heat-ic-mass", "burgers-ic-mass-flux", "navier-stokes-ic-mass-enstrophy")
        ],
    }


def stress(name: str, calls: int) -> dict[str, Any]:
    """Let eight threads make so many calls each with one projector; count the answers with other bits than alone."""
    laws, shape, inside = SETS[name]
    project = Projector(laws, shape, {"a": _randn(1, *inside, seed=1)})
    jobs = [_job(project, shape, inside, k) for k in range(JOBS)]
    for job in jobs:  # compiles, and records graphs for every batch size
        _answer(project, job)
    alone = [_answer(project, job) for job in jobs]
    wrong: list[int] = []

    def work(seed: int) -> None:
        chosen = np.random.default_rng(seed).integers(len(jobs), size=calls)
        wrong.extend(k for k in chosen.tolist() if _answer(project, jobs[k]) != alone[k])

    before, began = sys.getswitchinterval(), time.perf_counter()
    sys.setswitchinterval(SWITCH)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    return {"laws": name, "calls": THREADS * calls, "wrong": len(wrong), "seconds": time.perf_counter() - began}


def _job(project: Projector, shape: tuple[int, ...], inside: tuple[int, ...], k: int) -> Job:
    count = SIZES[k % len(SIZES)]
    u_hat, params = _randn(count, *shape, seed=100 + k), {"a": _randn(count, *inside, seed=200 + k)}
    warm = project(u_hat + 0.01, params) if k % 3 == 0 else None
    return Job(u_hat, params, warm, k % 2 == 0)


def _answer(project: Projector, job: Job) -> tuple[bytes, ...]:
    """Give every bit of an answer."""
    if not job.certified:
        return (project.move(job.u_hat, job.params, warm=job.warm).u.numpy().tobytes(),)
    found = project(job.u_hat, job.params, warm=job.warm)
    parts = (found.u, found.status, found.violation, found.stationarity, found.iterations, found.distance)
    return tuple(part.numpy().tobytes() for part in (*parts, *found.multipliers.values()))


def _busy(name: str) -> dict[str, Any]:
    """Time hot calls with and without another process that keeps a core busy."""
    problem, generator = snapfm.problem(name), torch.Generator().manual_seed(0)
    fields, params = problem.truth(SAMPLES, generator)
    u_hat = fields + 0.01 * torch.randn(fields.shape, generator=generator, dtype=fields.dtype)
    project = Projector(problem.laws, problem.grid.shape, {key: value[:1] for key, value in params.items()})
    for _ in range(6):
        project(u_hat, params)
    quiet, busy, plain, plain_busy = [], [], [], []
    for _ in range(ROUNDS):
        quiet.append(_hot(lambda: project(u_hat, params)))
        plain.append(_hot(_plain_loop))
        with _core_busy():
            busy.append(_hot(lambda: project(u_hat, params)))
            plain_busy.append(_hot(_plain_loop))
    ratio = statistics.median(busy) / statistics.median(quiet)
    # What the machine itself costs: cores that share a physical one slow each other down, whatever runs on them.
    unavoidable = statistics.median(plain_busy) / statistics.median(plain)
    return {
        "problem": name,
        "samples": SAMPLES,
        "quiet_seconds": quiet,
        "busy_seconds": busy,
        "ratio_of_medians": ratio,
        "ratio_of_a_plain_loop": unavoidable,
    }


def _plain_loop() -> int:
    """Some milliseconds of one thread, with nothing shared."""
    total = 0
    for k in range(100_000):
        total += k
    return total


def _hot(call: Callable[[], object]) -> float:
    seconds = []
    for _ in range(HOT):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


@contextmanager
def _core_busy() -> Iterator[None]:
    other = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    time.sleep(0.5)  # until it burns
    try:
        yield
    finally:
        other.kill()
        other.wait()


def _randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
