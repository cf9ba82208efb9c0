"""How long a projection takes, ours and the peers' in turns of one run, on every nonlinear problem: ms a sample, with verdicts.

Near-feasible inputs are projected truth with noise of 0.01; raw ones are what a network might give: `outputs` of `run` by
problem where there are any, else truth of another seed with a smooth perturbation. All aim at 1e-8. Times are of hot calls,
certificates of peers apart; what is done once is told as `build`. `cpu_ms` counts all threads of this process: on a busy
machine it still means something, where the wall clock does not. A peer that cannot be asked shows as a sentence.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor

import snapfm
from benchmarks.ipopt import PROBLEMS, STATIONARITY, TOLERANCE
from snapfm.compile import compile_laws
from snapfm.errors import UnsupportedLaw
from snapfm.solve.base import Solution, limits_of
from snapfm_bench.judge import Sizes, measure
from snapfm_bench.peers import GaussNewton, Ipopt, Rootfinder
from snapfm_bench.problems import Problem

CASES = (  # problem, samples
    ("heat-ic-mass-pde-energy", 32),
    ("burgers-bc-mass", 32),
    ("burgers-ic-mass-flux", 32),
    ("reaction-diffusion-ic-mass", 32),
    ("navier-stokes-ic-mass-enstrophy", 32),
    ("navier-stokes-ic-mass-enstrophy", 2),
)
OURS_REPEATS, PEER_REPEATS, COPIES = 7, 3, 200
DENSE_SAMPLES = 2
PROCESSES = 2
_WAVES, _WAVE_SIZE = 3, 0.1  # of the smooth perturbation: lowest sines along each axis


def run(outputs: Mapping[str, Tensor] | None = None, cases: tuple[tuple[str, int], ...] = CASES) -> dict[str, Any]:
    """Time all cases; `outputs` maps problems to fields (≥ samples, *shape) of a real model, to be projected as they are."""
    rows = [row for name, samples in cases for row in time_problem(name, samples, (outputs or {}).get(name))]
    return {
        "tolerance": TOLERANCE,
        "repeats": {"ours": OURS_REPEATS, "peers": PEER_REPEATS, "gauss_newton": 1},
        "rows": rows,
    }


def time_problem(name: str, samples: int, output: Tensor | None = None) -> list[dict[str, Any]]:
    """Time ours and every peer on both kinds of input: one row each."""
    problem = snapfm.problem(name, **PROBLEMS[name])
    fields, params = problem.truth(samples, torch.Generator().manual_seed(0))
    params = {key: value.expand(samples, *value.shape[1:]).contiguous() for key, value in params.items()}
    build: dict[str, float] = {}
    project = _built(build, "ours", lambda: snapfm.Projector(problem.laws, problem.grid.shape, params, TOLERANCE))
    _built(build, "ours_first_call", lambda: project(fields, params))
    methods, refused = _methods(project, samples, build)
    lawful = project(fields, params).u
    rows = []
    with _Processes(name, samples, build) as processes:
        for kind, u_hat in _inputs(problem, lawful, output, samples).items():
            asked = [_ours(project, u_hat, params), *(_peer(one, project, u_hat, params) for one in methods)]
            asked.append(processes.timed(u_hat))
            spent = _in_turns(asked)
            ours = 1e3 * spent["ours"].wall / samples
            copy = 1e3 * _copy_seconds(u_hat) / samples
            found = {one.name: spent[one.name].ms(samples) | one.verdict() for one in asked} | refused
            found |= {"gauss_newton": _dense(project, u_hat, params)}
            for figures in found.values():
                if isinstance(figures, dict):
                    figures["times_ours"] = figures["ms"] / ours
            rows.append(
                {
                    "problem": name,
                    "samples": samples,
                    "input": kind,
                    "load": os.getloadavg()[0],
                    "copy_ms": copy,
                    "ours_in_copies": ours / copy,
                    "fastest_peer": _fastest(found),
                    "methods": found,
                    "build_seconds": dict(build),
                }
            )
    return rows


@dataclass(frozen=True)
class Timed:
    """Something to be timed, and what its answer is worth."""

    name: str
    call: Callable[[], object]
    repeats: int
    verdict: Callable[[], dict[str, Any]]


def _inputs(problem: Problem, lawful: Tensor, output: Tensor | None, samples: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    near = lawful + 0.01 * torch.randn(lawful.shape, generator=generator, dtype=torch.float64)
    if output is not None:
        return {"projected truth + 0.01 noise": near, "model output": output[:samples].double()}
    fields = problem.simulate(samples, generator)
    return {
        "projected truth + 0.01 noise": near,
        "other truth + smooth 0.1": fields + _smooth(fields.shape, generator),
    }


def _smooth(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """A random sum of products of low sines along all axes, scaled to `_WAVE_SIZE`."""
    total = torch.zeros(shape, dtype=torch.float64)
    for _ in range(_WAVES):
        part = torch.randn(shape[0], *[1] * (len(shape) - 1), generator=generator, dtype=torch.float64)
        for axis, extent in enumerate(shape[1:], start=1):
            waves, phase = torch.rand(2, shape[0], generator=generator, dtype=torch.float64)
            angle = 2 * torch.pi * (_WAVES * waves[:, None] * torch.linspace(0, 1, extent) + phase[:, None])
            part = part * torch.sin(angle).reshape(
                shape[0], *[extent if other == axis else 1 for other in range(1, len(shape))]
            )
        total += part
    return _WAVE_SIZE * total


def _methods(
    project: snapfm.Projector, samples: int, build: dict[str, float]
) -> tuple[list[Rootfinder | Ipopt], dict[str, Any]]:
    """Build the peers; those that refuse the laws are recorded with their message."""
    structure, limits = project.structure, project.limits
    methods: list[Rootfinder | Ipopt] = []
    refused: dict[str, Any] = {}
    for threads in (1, 2):
        try:
            finder = Rootfinder(structure, limits, threads)
        except UnsupportedLaw as cause:
            refused[f"rootfinder_{threads}"] = str(cause)
            continue
        _built(build, f"rootfinder_{threads}", lambda finder=finder: finder.prepare(TOLERANCE, samples))
        methods.append(finder)
    peer = _built(build, "ipopt", lambda: Ipopt(structure, limits))
    build["ipopt"] += _seconds(lambda: peer.prepare(TOLERANCE))
    return [*methods, peer], refused


def _ours(project: snapfm.Projector, u_hat: Tensor, params: dict[str, Tensor]) -> Timed:
    def verdict() -> dict[str, Any]:
        result = project(u_hat, params)
        judged = measure(project.laws, u_hat, result.u, result.multipliers, params)
        return _verdict(judged, result.converged, result.iterations)

    return Timed("ours", lambda: project(u_hat, params), OURS_REPEATS, verdict)


def _peer(peer: Rootfinder | Ipopt, project: snapfm.Projector, u_hat: Tensor, params: dict[str, Tensor]) -> Timed:
    name = f"rootfinder_{peer.threads}" if isinstance(peer, Rootfinder) else "ipopt"

    def verdict() -> dict[str, Any]:
        return _solution_verdict(project, peer.solve(u_hat, params, TOLERANCE), u_hat, params)

    return Timed(name, lambda: peer.run(u_hat, params, TOLERANCE), PEER_REPEATS, verdict)


def _dense(project: snapfm.Projector, u_hat: Tensor, params: dict[str, Tensor]) -> dict[str, Any] | str:
    """Time dense Gauss–Newton on a few samples, once: it is slow enough to be measured so."""
    few, sample = u_hat[:DENSE_SAMPLES], {key: value[:DENSE_SAMPLES] for key, value in params.items()}
    try:
        peer = GaussNewton(project.structure, project.limits)
    except UnsupportedLaw as cause:
        return str(cause)
    began = perf_counter()
    solved = peer.solve(few, sample, TOLERANCE)
    took = perf_counter() - began
    return {"ms": 1e3 * took / len(few), "samples": len(few), **_solution_verdict(project, solved, few, sample)}


def _solution_verdict(
    project: snapfm.Projector, solved: Solution, u_hat: Tensor, params: dict[str, Tensor]
) -> dict[str, Any]:
    assert solved.status is not None
    weight = {key: solved.multipliers[:, rows] for key, rows in project.structure.slices().items()}
    judged = measure(project.laws, u_hat, solved.u.reshape(u_hat.shape), weight, params)
    return _verdict(judged, solved.status == snapfm.Status.CONVERGED, solved.iterations)


def _verdict(judged: Sizes, converged: Tensor, iterations: Tensor) -> dict[str, Any]:
    """Judge answers: the share that claims to have converged and did, and the worst of those."""
    holds = converged & (judged.violation <= TOLERANCE) & (judged.stationarity <= STATIONARITY)
    return {
        "converged": float(holds.double().mean()),
        "violation": float(judged.violation[holds].max()) if holds.any() else None,
        "stationarity": float(judged.stationarity[holds].max()) if holds.any() else None,
        "iterations": float(iterations.double().median()),
    }


@dataclass(frozen=True)
class Spent:
    """Seconds of one call: on the wall, and of all threads of this process."""

    wall: float
    cpu: float

    def ms(self, samples: int) -> dict[str, float]:
        """Give both as milliseconds a sample."""
        return {"ms": 1e3 * self.wall / samples, "cpu_ms": 1e3 * self.cpu / samples}


def _in_turns(asked: list[Timed]) -> dict[str, Spent]:
    """Time all in turns, so that a slow spell of the machine hits all alike; the median of each, after a warm-up."""
    walls: dict[str, list[float]] = {one.name: [] for one in asked}
    cpus: dict[str, list[float]] = {one.name: [] for one in asked}
    for one in asked:
        one.call()
    for turn in range(max(one.repeats for one in asked)):
        for one in asked:
            if turn < one.repeats:
                began = process_time()
                walls[one.name].append(_seconds(one.call))
                cpus[one.name].append(process_time() - began)
    return {one.name: Spent(median(walls[one.name]), median(cpus[one.name])) for one in asked}


def _copy_seconds(u_hat: Tensor) -> float:
    u_hat.clone()
    return median(_seconds(u_hat.clone) for _ in range(COPIES))


def _fastest(found: dict[str, Any]) -> dict[str, Any]:
    """Return the fastest peer that converges on as many samples as ours, or a note if none does."""
    share = found["ours"]["converged"]
    able = {
        name: figures
        for name, figures in found.items()
        if name != "ours" and isinstance(figures, dict) and figures["converged"] >= share
    }
    if not able:
        return {"name": None, "times_ours": None}
    name = min(able, key=lambda key: able[key]["ms"])
    return {"name": name, "times_ours": able[name]["times_ours"]}


def _seconds(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began


def _built(build: dict[str, float], name: str, make: Callable[[], Any]) -> Any:
    began = perf_counter()
    made = make()
    build[name] = perf_counter() - began
    return made


class _Processes:
    """Ipopt in processes of their own, each with its solver built; a batch is split among them."""

    def __init__(self, name: str, samples: int, build: dict[str, float]) -> None:
        began = perf_counter()
        # Not forked: torch's threads do not survive a fork.
        spawn = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(PROCESSES, spawn, _prepare_process, (name, samples))
        self.samples = samples
        blank = np.zeros((PROCESSES, *snapfm.problem(name, **PROBLEMS[name]).grid.shape))
        list(self.pool.map(_solve_process, [[i] for i in range(PROCESSES)], blank[:, None]))
        build[f"ipopt_{PROCESSES}_processes"] = perf_counter() - began

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()

    def timed(self, u_hat: Tensor) -> Timed:
        """Pair a call on all processes with its verdict; samples are dealt out in turn, so that hard ones are shared."""
        deals = [list(range(i, self.samples, PROCESSES)) for i in range(PROCESSES)]

        def call() -> list[list[bool]]:
            return list(self.pool.map(_solve_process, deals, [u_hat.numpy()[deal] for deal in deals]))

        def verdict() -> dict[str, Any]:
            said = [one for part in call() for one in part]
            return {"converged": sum(said) / len(said), "cpu_ms": None}  # spent in other processes

        return Timed(f"ipopt_{PROCESSES}_processes", call, PEER_REPEATS, verdict)


def _prepare_process(name: str, samples: int) -> None:
    global _peer_here, _params_here
    torch.set_num_threads(1)
    problem = snapfm.problem(name, **PROBLEMS[name])
    _params_here = problem.params(samples, torch.Generator().manual_seed(0))
    structure = compile_laws(problem.laws, problem.grid.shape, _params_here)
    _peer_here = Ipopt(structure, limits_of(problem.laws, problem.grid.shape))
    _peer_here.prepare(TOLERANCE)


_peer_here: Ipopt
_params_here: dict[str, Tensor]
_kept: dict[tuple[int, ...], dict[str, Tensor]] = {}


def _solve_process(deal: list[int], u_hat: np.ndarray) -> list[bool]:
    """Solve the samples of one deal in this process; return the status of each from Ipopt."""
    # The same object for the same deal: the model keeps what depends on params while they recur, as in one process.
    params = _kept.setdefault(tuple(deal), {key: value[deal].contiguous() for key, value in _params_here.items()})
    answer = _peer_here.run(torch.from_numpy(u_hat), params, TOLERANCE)
    return [bool(one == snapfm.Status.CONVERGED) for one in answer.status]
