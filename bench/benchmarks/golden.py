"""What the projector answers today, compared with the committed record: `python -m benchmarks.golden [--write]`.

Every refactoring is gated by it. Twelve problems with six kinds of input, the any-law cases at the size for tests, the contract
cases and 200 random laws: status and iterations of every sample, hashes of u and of all multipliers, and of gradients where these
are cheap. A case differs in one of three ways: in its bits alone (rounding, up to 1e-12), or in behavior (status, iterations, or
more than rounding). Times of the six problems are multiples of a fixed piece of NumPy work in the same run. Attempts are counted:
how many samples each was tried on, and how many it rescued.

Bits depend on the processor: on another kind than the record's, rounding is the best to expect, and the report says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.project.contract.cases import BATCH, SOLVERS, randn
from tests.project.contract.cases import CASES as CONTRACT
from torch import Tensor

import benchmarks.any_law.cases  # noqa: F401  registers the cases
import snapfm
from benchmarks.any_law.case import CASES as ANY_LAW
from benchmarks.any_law.case import LEVELS
from benchmarks.attempts import Counts, add, counted, lines
from benchmarks.random_problems import random_problem
from benchmarks.record import RECORDS
from snapfm_bench.flow import shipped
from snapfm_bench.machine import machine
from snapfm_bench.problems import names

RECORD = RECORDS / "golden.json"
ROUNDING = 1e-12  # relative to the size of what is compared, or to one
SAMPLES, RANDOM = 4, 200
STEPS = 5  # of the flow that makes raw model output
SECONDS = 600.0  # of a call: a busy machine must not change an answer
HOT, ROUNDS = 15, 5  # calls of a timing, repeated by turns with the unit of time
# The six problems of the paper, with the samples of a timed call.
TIMED = {
    "heat-ic-mass": 32,
    "heat-ic-mass-pde-energy": 32,
    "burgers-bc-mass": 32,
    "burgers-ic-mass-flux": 32,
    "reaction-diffusion-ic-mass": 32,
    "navier-stokes-ic-mass-enstrophy": 2,
}
GROUPS = ("problems", "any_law", "contract", "random")


def main() -> int:
    """Record or compare; the exit code is 1 where behavior differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="replace the committed record")
    parser.add_argument("--no-times", action="store_true", help="leave times out: for a machine that is busy")
    asked = parser.parse_args()
    found = record(times=not asked.no_times)
    if asked.write:
        RECORD.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")
        print(f"{len(found['cases'])} cases written to {RECORD.name}")
        return 0
    return report(json.loads(RECORD.read_text(encoding="utf-8")), found)


def record(times: bool) -> dict[str, Any]:
    """Run all cases, two processes beside each other; then the times, alone."""
    began = time.perf_counter()
    cases: dict[str, Any] = {}
    attempts: Counts = {}
    with ProcessPoolExecutor(2, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for answers, counts in pool.map(_group, [(group, half) for group in GROUPS for half in (0, 1)]):
            cases |= answers
            add(attempts, counts)
    return {
        **machine(),
        "seconds": round(time.perf_counter() - began, 1),
        "cases": cases,
        "attempts": dict(sorted(attempts.items())),
        "times": _times() if times else {},
    }


def report(was: dict[str, Any], now: dict[str, Any]) -> int:
    """Print what differs from the record; return 1 if behavior does."""
    kinds: dict[str, list[str]] = {"bits": [], "rounding": [], "behavior": []}
    for name in sorted(was["cases"].keys() | now["cases"].keys()):
        difference = _difference(was["cases"].get(name), now["cases"].get(name))
        kinds[difference.partition(":")[0]].append(
            f"{name}{difference.partition(':')[1]}{difference.partition(':')[2]}"
        )
    print(f"against {was['commit']}: {len(now['cases'])} cases in {now['seconds']:.0f} s")
    if was["model"] != now["model"]:
        print(f"  the record is of {was['model']}, this is {now['model']}: equal bits are not to be expected")
    print(f"  equal bits: {len(kinds['bits'])}")
    for kind in ("rounding", "behavior"):
        print(f"  {kind}: {len(kinds[kind])}")
        for line in kinds[kind]:
            print(f"    {line}")
    for name, units in now["times"].items():
        before = was["times"].get(name)
        print(f"  {name:34} {units:8.3f} units of time" + (f", {units / before:.2f} of the record's" if before else ""))
    for line in lines(now["attempts"]):
        print(f"  {line}")
    return int(bool(kinds["behavior"]))


def _difference(was: dict[str, Any] | None, now: dict[str, Any] | None) -> str:
    """Name how two answers differ: bits (not at all), rounding, or behavior and what of it."""
    if was is None or now is None:
        return "behavior: only here" if was is None else "behavior: only in the record"
    if "error" in was or "error" in now:
        return "bits" if was == now else f"behavior: {was.get('error', 'answered')} -> {now.get('error', 'answered')}"
    for key in ("status", "iterations"):
        if was[key] != now[key]:
            return f"behavior: {key} {was[key]} -> {now[key]}"
    if was["hashes"] == now["hashes"]:
        return "bits"
    apart = max(
        (_apart(mine, was["probes"][name]) for name, mine in now["probes"].items() if name in was["probes"]),
        default=0.0,
    )
    if was["probes"].keys() != now["probes"].keys():
        return "behavior: other tensors"
    return "rounding" if apart <= ROUNDING else f"behavior: {apart:.1e} apart"


def _apart(mine: list[list[float]], other: list[list[float]]) -> float:
    """Return the largest difference of two sets of (projection, size) pairs, relative to the sizes."""
    a, b = np.array(mine, dtype=float), np.array(other, dtype=float)
    if a.shape != b.shape or (np.isnan(a) != np.isnan(b)).any():
        return float("inf")
    return float(np.nan_to_num(np.abs(a - b)[:, :-1] / np.maximum(1.0, b[:, -1:])).max(initial=0.0))


def _group(asked: tuple[str, int]) -> tuple[dict[str, Any], Counts]:
    """Answer every second case of a group."""
    group, half = asked
    answers: dict[str, Any] = {}
    with counted() as attempts:
        for number, (name, case) in enumerate(globals()[f"_{group}"]()):
            if number % 2 == half:
                try:
                    answers |= {f"{name}{suffix}": answer for suffix, answer in case()}
                except Exception as error:
                    answers[name] = {"error": type(error).__name__}
    return answers, attempts


def _problems() -> Iterator[tuple[str, Any]]:
    for name in names():
        yield name, lambda name=name: _problem(name)


def _problem(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    problem, generator = snapfm.problem(name), torch.Generator().manual_seed(0)
    fields, params = problem.truth(SAMPLES, generator)
    noise = torch.randn(fields.shape, generator=generator, dtype=torch.float64)
    flow = torch.Generator().manual_seed(1)
    model = shipped(f"{problem.equation}-small")
    generated = snapfm.sample(model, None, count=SAMPLES, steps=STEPS, generator=flow, shape=problem.grid.shape).u
    project = snapfm.Projector(problem.laws, problem.grid.shape, {key: value[:1] for key, value in params.items()})
    inputs = {
        "near": fields + 0.1 * noise,
        "model": generated.double(),
        "noise": noise,
        "3 noise": 3.0 * noise,
        "constant": torch.full_like(noise, 0.7),
        "zero": torch.zeros_like(noise),
    }
    for kind, u_hat in inputs.items():
        yield f" {kind}", _answer(project, u_hat, params, gradient=kind == "near")


def _any_law() -> Iterator[tuple[str, Any]]:
    smallest = {case.stem: case for case in reversed(ANY_LAW.values())}
    for stem in sorted(smallest):
        for level in LEVELS:
            yield f"{stem} {level}", lambda case=smallest[stem], level=level: _any_law_case(case, level)


def _any_law_case(case: Any, level: str) -> Iterator[tuple[str, dict[str, Any]]]:
    setting = case.setting(case.tiny, SAMPLES)
    example = {name: value[:1] for name, value in setting.params.items()}
    project = snapfm.Projector(setting.laws, setting.truth.shape[1:], example, case.tolerance)
    yield "", _answer(project, case.input(setting, level), setting.params, gradient=False)


def _contract() -> Iterator[tuple[str, Any]]:
    for case in CONTRACT:
        for solver in SOLVERS:
            yield (
                f"contract {case.name} {type(solver).__name__}",
                lambda case=case, solver=solver: _contract_case(case, solver),
            )


def _contract_case(case: Any, solver: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "", _answer(case.projector(solver), randn(BATCH, *case.shape), case.draw(BATCH), gradient=True)


def _random() -> Iterator[tuple[str, Any]]:
    for number in range(RANDOM):
        yield f"random {number:03}", lambda number=number: _random_case(number)


def _random_case(number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    made = random_problem(number)
    yield "", _answer(snapfm.Projector(made.laws, made.shape, made.params), made.u_hat, made.params, gradient=False)


def _answer(project: Any, u_hat: Tensor, params: dict[str, Tensor], gradient: bool) -> dict[str, Any]:
    """Project once, and take the gradient of a fixed sum of the fields."""
    given = u_hat.clone().requires_grad_(gradient)
    result = project(given, params, seconds=SECONDS)
    tensors = {"u": result.u.detach(), **{f"multipliers {name}": value for name, value in result.multipliers.items()}}
    if gradient:
        (result.u * _weights(result.u[0].numel()).reshape(result.u.shape[1:])).sum().backward()
        tensors["gradient"] = given.grad
    return {
        "status": result.status.tolist(),
        "iterations": result.iterations.tolist(),
        "hashes": {name: _hash(value) for name, value in tensors.items()},
        "probes": {name: _probes(value) for name, value in tensors.items()},
    }


def _hash(value: Tensor) -> str:
    return hashlib.sha256(value.detach().contiguous().numpy().tobytes()).hexdigest()[:16]


def _probes(value: Tensor) -> list[list[float]]:
    """Return, per sample, two fixed projections of a tensor and its norm: enough to tell rounding from more."""
    flat = value.detach().double().flatten(1)
    weights = torch.stack([_weights(flat.shape[1]), _weights(flat.shape[1], seed=1)], 1)
    return torch.cat([flat @ weights, flat.norm(dim=1, keepdim=True)], 1).tolist()


def _weights(count: int, seed: int = 0) -> Tensor:
    """Draw a fixed unit vector."""
    drawn = torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return drawn / drawn.norm().clamp(min=1e-300)


def _times() -> dict[str, float]:
    """Time hot calls of the six problems, each by turns with a fixed piece of work, which is the unit."""
    units = {}
    for name, samples in TIMED.items():
        problem, generator = snapfm.problem(name), torch.Generator().manual_seed(0)
        fields, params = problem.truth(samples, generator)
        u_hat = fields + 0.01 * torch.randn(fields.shape, generator=generator, dtype=fields.dtype)
        project = snapfm.Projector(
            problem.laws, problem.grid.shape, {k: v[:1] for k, v in params.items()}, tolerance=1e-5
        )
        project(u_hat, params)
        ratios = [_median(lambda: project(u_hat, params)) / _median(_unit) for _ in range(ROUNDS)]  # noqa: B023
        units[name] = round(statistics.median(ratios), 4)
    return units


_MATRIX = np.random.default_rng(0).standard_normal((64, 10_000))


def _unit() -> None:
    """Do the work that times are multiples of: sums, products and a sort over arrays that fit the cache."""
    for _ in range(4):
        np.sort(_MATRIX[:, :200], axis=1)
        (_MATRIX * 1.0001).sum()


def _median(call: Any) -> float:
    seconds = []
    for _ in range(HOT):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[2])
    sys.exit(main())
