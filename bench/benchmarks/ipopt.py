"""Our answers against Ipopt's at a tighter tolerance, on the six problems as released: who is feasible, who is nearer.

Ours asks for 1e-8, Ipopt for 1e-10. Every answer of either is judged from outside (snapfm_bench.judge). Where Ipopt does
not arrive from û it gets other starts, and the nearest of what it then reaches counts; the figures say how often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import snapfm
from benchmarks.record import statuses
from snapfm.laws import Params
from snapfm.solve.base import Solution
from snapfm_bench.judge import Sizes, measure
from snapfm_bench.peers import Ipopt

SAMPLES = 8
TOLERANCE, PEER_TOLERANCE = 1e-8, 1e-10
STATIONARITY = 1e-6  # what a claim of CONVERGED requires
EQUAL = 1e-8  # relative difference of objectives that counts as none
PROBLEMS: dict[str, dict[str, Any]] = {
    "heat-ic-mass": {},
    "heat-ic-mass-pde-energy": {"discretization": "release"},
    "burgers-bc-mass": {},
    "burgers-ic-mass-flux": {"flux_steps": 5},
    "reaction-diffusion-ic-mass": {"discretization": "release"},
    "navier-stokes-ic-mass-enstrophy": {"discretization": "release"},
}


def run() -> dict[str, Any]:
    rows = [row for name in PROBLEMS for row in compare_problem(name)]
    settings = {"samples": SAMPLES, "tolerance": TOLERANCE, "ipopt_tolerance": PEER_TOLERANCE, "equal": EQUAL}
    return settings | {"rows": rows}


def compare_problem(name: str, samples: int = SAMPLES) -> list[dict[str, Any]]:
    """Compare on both kinds of input: one row each."""
    problem, generator = snapfm.problem(name, **PROBLEMS[name]), torch.Generator().manual_seed(0)
    fields, params = problem.truth(samples, generator)
    project = snapfm.Projector(problem.laws, problem.grid.shape, params, tolerance=TOLERANCE)
    peer = Ipopt(project.structure, project.limits)
    noise = torch.randn(fields.shape, generator=generator, dtype=torch.float64)
    kinds = {"truth + 0.1 noise": fields + 0.1 * noise, "noise 1": noise}
    rows = []
    for kind, u_hat in kinds.items():
        starts = {"zeros": torch.zeros_like(u_hat), "truth": fields}
        rows.append({"problem": name, "input": kind, **summary(compare(project, peer, u_hat, params, starts))})
    return rows


@dataclass(frozen=True)
class Comparison:
    """Both answers to one batch, judged; `difference` is (ours − Ipopt's)/Ipopt's objective, NaN where either failed."""

    ours: snapfm.Projection
    judged: Sizes
    peer: Solution
    peer_judged: Sizes
    peer_start: list[str]  # which start the peer's answer came from
    first_status: Tensor  # what the peer said from û
    ours_arrived: Tensor
    peer_arrived: Tensor
    difference: Tensor


def compare(
    project: snapfm.Projector, peer: Ipopt, u_hat: Tensor, params: Params, starts: dict[str, Tensor]
) -> Comparison:
    """Project with both; `starts` are what the peer gets, sample by sample, where it fails from û."""
    ours = project(u_hat, params)
    judged = measure(project.laws, u_hat, ours.u, ours.multipliers, params)
    solved, peer_judged, used, first = _best_of_peer(project, peer, u_hat, params, starts)
    ours_arrived = ours.converged & _holds(judged)
    peer_arrived = _arrived(solved, peer_judged)
    mine, other = ours.distance.double() ** 2, solved.distance**2
    scale = torch.maximum(other, torch.full_like(other, torch.finfo(torch.float64).tiny))
    difference = torch.where(ours_arrived & peer_arrived, (mine - other) / scale, torch.nan)
    return Comparison(ours, judged, solved, peer_judged, used, first, ours_arrived, peer_arrived, difference)


def summary(found: Comparison) -> dict[str, Any]:
    """Count which samples converged and which are nearer."""
    ours, difference = found.ours, found.difference
    both = torch.isfinite(difference)
    worse, better = both & (difference > EQUAL), both & (difference < -EQUAL)
    claimed = ours.converged
    return {
        "ours": {
            "statuses": statuses(ours.status),
            "violation_worst": _worst(found.judged.violation[claimed]),
            "stationarity_worst": _worst(found.judged.stationarity[claimed]),
            "complementarity_worst": _worst(found.judged.complementarity[claimed]),
            "false_claims": int((claimed & ~_holds(found.judged)).sum()),
        },
        "ipopt": {
            "statuses_from_input": statuses(found.first_status),
            "answers_from": {name: found.peer_start.count(name) for name in dict.fromkeys(found.peer_start)},
            "failures": int((~found.peer_arrived).sum()),
            "violation_worst": _worst(found.peer_judged.violation[found.peer_arrived]),
            "stationarity_worst": _worst(found.peer_judged.stationarity[found.peer_arrived]),
        },
        "both_arrived": int(both.sum()),
        "equal": int((both & ~worse & ~better).sum()),
        "equal_difference_worst": _worst(difference[both & ~worse & ~better].abs()),
        "ours_nearer": int(better.sum()),
        "ours_farther": int(worse.sum()),
        "unequal_differences": {str(i): float(difference[i]) for i in torch.nonzero(worse | better).flatten().tolist()},
        "only_ours": int((found.ours_arrived & ~found.peer_arrived).sum()),
        "only_ipopt": int((found.peer_arrived & ~found.ours_arrived).sum()),
    }


def _best_of_peer(
    project: snapfm.Projector, peer: Ipopt, u_hat: Tensor, params: Params, starts: dict[str, Tensor]
) -> tuple[Solution, Sizes, list[str], Tensor]:
    solved, judged = _ask(project, peer, u_hat, params, None)
    assert solved.status is not None
    used, first = ["input"] * len(u_hat), solved.status.clone()  # the status is overwritten with the answers below
    failed = ~_arrived(solved, judged)
    for name, begin in starts.items():
        places = torch.nonzero(failed).flatten()
        if not len(places):
            break
        sample = {key: value[places] if len(value) > 1 else value for key, value in params.items()}
        again, again_judged = _ask(project, peer, u_hat[places], sample, begin[places])
        nearer = _arrived(again, again_judged) & (
            ~_arrived(solved, judged)[places] | (again.distance < solved.distance[places])
        )
        for mine, theirs in zip(_tensors(solved, judged), _tensors(again, again_judged)):
            mine[places[nearer]] = theirs[nearer]
        for place in places[nearer].tolist():
            used[place] = name
    return solved, judged, used, first


def _ask(
    project: snapfm.Projector, peer: Ipopt, u_hat: Tensor, params: Params, begin: Tensor | None
) -> tuple[Solution, Sizes]:
    wide = {name: value.expand(len(u_hat), *value.shape[1:]) for name, value in params.items()}
    solved = peer.solve(u_hat, wide, PEER_TOLERANCE, "input" if begin is None else begin)
    weight = {name: solved.multipliers[:, rows] for name, rows in project.structure.slices().items()}
    u = solved.u.reshape(u_hat.shape)
    return solved, measure(project.laws, u_hat, u, weight, params)


def _tensors(solved: Solution, judged: Sizes) -> list[Tensor]:
    assert solved.status is not None
    answer = [solved.u, solved.multipliers, solved.iterations, solved.residual, solved.stationarity, solved.distance]
    return [*answer, solved.status, judged.violation, judged.stationarity, judged.complementarity]


def _arrived(solved: Solution, judged: Sizes) -> Tensor:
    assert solved.status is not None
    return (solved.status == snapfm.Status.CONVERGED) & _holds(judged)


def _holds(judged: Sizes) -> Tensor:
    return (judged.violation <= TOLERANCE) & (judged.stationarity <= STATIONARITY)


def _worst(value: Tensor) -> float | None:
    return float(value.max()) if value.numel() else None
