"""Which options serve tuned Ipopt best, cold and from a warm start: processor time and iterations by problem and set of options.

What `snapfm_bench.peers.ipopt` keeps is chosen by this: the least processor time summed over the problems, in units of the
present options on each. Inputs are projected truth with noise; warm ones are moved a little, as from one flow step to the next.
"""

from __future__ import annotations

from time import process_time
from typing import Any

import torch

import snapfm
from benchmarks.ipopt import PROBLEMS
from snapfm.errors import Status
from snapfm_bench.peers.ipopt import Ipopt

TOLERANCE, SAMPLES, NOISE, MOVED = 1e-5, 2, 0.3, 0.02
COLD: dict[str, dict[str, Any]] = {
    "present": {},
    "mu_init 1e-2": {"ipopt.mu_init": 1e-2},
    "mu_init 1e-4": {"ipopt.mu_init": 1e-4},
    "adaptive barrier": {"ipopt.mu_strategy": "adaptive"},
    "bound_push 1e-8": {"ipopt.bound_push": 1e-8, "ipopt.bound_frac": 1e-8, "ipopt.slack_bound_push": 1e-8},
    "mu_init 1e-4, bound_push 1e-8": {
        "ipopt.mu_init": 1e-4, "ipopt.bound_push": 1e-8, "ipopt.bound_frac": 1e-8, "ipopt.slack_bound_push": 1e-8,
    },
}  # fmt: skip
WARM: dict[str, dict[str, Any]] = {
    "present": {},
    "mu_init 1e-4": {"ipopt.mu_init": 1e-4},
    "mu_init 1e-8": {"ipopt.mu_init": 1e-8},
    "multipliers forgotten": {"ipopt.warm_start_init_point": "no"},
}


def run(names: tuple[str, ...] = tuple(PROBLEMS)) -> dict[str, Any]:
    """Try all sets of options on the problems."""
    return {"tolerance": TOLERANCE, "samples": SAMPLES, "rows": [row for name in names for row in problem_rows(name)]}


def problem_rows(name: str) -> list[dict[str, Any]]:
    """Try all sets of options on one problem."""
    problem, generator = snapfm.problem(name, **PROBLEMS[name]), torch.Generator().manual_seed(0)
    truth, params = problem.truth(SAMPLES, generator)
    params = {key: value.expand(SAMPLES, *value.shape[1:]).contiguous() for key, value in params.items()}
    project = snapfm.Projector(problem.laws, problem.grid.shape, params, TOLERANCE)
    shape = truth.shape
    u_hat = project(truth, params).u + NOISE * torch.randn(shape, generator=generator, dtype=torch.float64)
    moved = u_hat + MOVED * torch.randn(shape, generator=generator, dtype=torch.float64)
    rows = []
    for start, sets in (("cold", COLD), ("warm", WARM)):
        for words, options in sets.items():
            peer = Ipopt(project.require_sparse("Ipopt"), project.limits)
            peer.more.update(options)
            first = peer.run(u_hat, params, TOLERANCE)
            if start == "warm":
                peer.again(moved, params, TOLERANCE, first)  # builds
            began = process_time()
            answer = (
                peer.run(moved, params, TOLERANCE) if start == "cold" else peer.again(moved, params, TOLERANCE, first)
            )
            rows.append(
                {
                    "problem": name,
                    "start": start,
                    "options": words,
                    "cpu_ms": 1e3 * (process_time() - began) / SAMPLES,
                    "iterations": answer.iterations.tolist(),
                    "converged": int((answer.status == Status.CONVERGED).sum()),
                }
            )
    return rows
