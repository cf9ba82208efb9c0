"""Three hundred random small problems, each feasible by construction: our answers against Ipopt's, judged from outside.

Problem `number` is drawn from its number alone. Equalities (affine, quadratic, products, exp, sin, …), inequalities and
bounds all hold at a random field; û is that field with noise, or noise. Laws are not convex, so either method may end at
another local optimum than the other: what is counted is how often, and every case is listed by its number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import snapfm
from benchmarks.ipopt import EQUAL, PEER_TOLERANCE, TOLERANCE, Comparison, compare
from snapfm import Bounds, Equality, Inequality
from snapfm.laws import Law
from snapfm_bench.peers import Ipopt

COUNT = 300
SHAPES = ((3, 5), (4, 6), (2, 3, 3), (17,))
NOISES = (0.1, 1.0, 3.0)  # of û around the feasible field
Rows = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class RandomProblem:
    """Laws, what they were made of, a batch of one, and the feasible field the laws were made around."""

    shape: tuple[int, ...]
    laws: tuple[Law, ...]
    makes: tuple[str, ...]
    params: dict[str, Tensor]
    u_hat: Tensor
    feasible: Tensor


def run() -> dict[str, Any]:
    return compare_many(range(COUNT))


def compare_many(numbers: range) -> dict[str, Any]:
    """Compare on the problems of these numbers and count."""
    counts: dict[str, int] = dict.fromkeys(
        ("both_arrived", "equal", "ours_nearer", "ours_farther", "only_ours", "only_ipopt", "neither", "false_claims"),
        0,
    )
    told: dict[str, list[dict[str, Any]]] = {
        "ours_farther": [], "ours_nearer": [], "only_ipopt": [], "only_ours": [], "neither": [], "false_claims": [],
    }  # fmt: skip
    starts: dict[str, int] = {}
    equal_worst, violation_worst, stationarity_worst = 0.0, 0.0, 0.0
    for number in numbers:
        problem = random_problem(number)
        project = snapfm.Projector(problem.laws, problem.shape, problem.params, tolerance=TOLERANCE)
        peer = Ipopt(project.structure, project.limits)
        others = {"zeros": torch.zeros_like(problem.u_hat), "feasible": problem.feasible}
        found = compare(project, peer, problem.u_hat, problem.params, others)
        kind = _kind(found)
        counts[kind] += 1
        starts[found.peer_start[0]] = starts.get(found.peer_start[0], 0) + bool(found.peer_arrived)
        if kind in ("equal", "ours_nearer", "ours_farther"):
            counts["both_arrived"] += 1
        if kind == "equal":
            equal_worst = max(equal_worst, abs(float(found.difference)))
        else:
            told[kind].append(_told(number, problem, found))
        if bool(found.ours.converged):
            violation_worst = max(violation_worst, float(found.judged.violation))
            stationarity_worst = max(stationarity_worst, float(found.judged.stationarity))
            if not bool(found.ours_arrived):
                counts["false_claims"] += 1
                told["false_claims"].append(_told(number, problem, found))
    return {
        "problems": len(numbers),
        "tolerance": TOLERANCE,
        "ipopt_tolerance": PEER_TOLERANCE,
        "equal_within": EQUAL,
        **counts,
        "equal_difference_worst": equal_worst,
        "claimed_violation_worst": violation_worst,
        "claimed_stationarity_worst": stationarity_worst,
        "ipopt_answers_from": starts,
        "cases": told,
    }


def random_problem(number: int) -> RandomProblem:
    """Draw one problem; all of it follows from its number."""
    generator = torch.Generator().manual_seed(number)
    shape = SHAPES[number % len(SHAPES)]
    feasible = torch.randn(shape, generator=generator, dtype=torch.float64)
    laws: list[Law] = []
    makes: list[str] = []
    params: dict[str, Tensor] = {}
    for k in range(_draw(generator, 1, 4)):
        make, rows = _rows(feasible.numel(), generator)
        name = f"equality {k}"
        params[name] = rows(feasible)[None]
        laws.append(Equality(name, lambda u, p, rows=rows, name=name: rows(u) - p[name]))
        makes.append(make)
    for k in range(_draw(generator, 0, 3)):
        make, rows = _rows(feasible.numel(), generator)
        name = f"inequality {k}"
        value = rows(feasible)
        slack = torch.rand(value.shape, generator=generator, dtype=torch.float64)
        slack = slack * (
            torch.rand(value.shape, generator=generator) < 0.5
        )  # half of the rows hold with equality there
        params[name] = (value + slack)[None]
        laws.append(Inequality(name, lambda u, p, rows=rows, name=name: rows(u) - p[name]))
        makes.append(f"{make} ≤")
    if _draw(generator, 0, 2):
        room = torch.rand(2, *shape, generator=generator, dtype=torch.float64)
        laws.append(Bounds(lower=feasible - room[0], upper=feasible + 2.0 * room[1]))
        makes.append("bounds")
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    u_hat = feasible + NOISES[_draw(generator, 0, len(NOISES))] * noise
    return RandomProblem(shape, tuple(laws), tuple(makes), params, u_hat[None], feasible[None])


def _rows(unknowns: int, generator: torch.Generator) -> tuple[str, Rows]:
    """Draw a few rows of one kind over the flattened field."""
    count = _draw(generator, 1, 4)
    weight = torch.randn(count, unknowns, generator=generator, dtype=torch.float64)
    weight = weight * (torch.rand(count, unknowns, generator=generator) < 0.4)
    places = torch.randint(unknowns, (3, count), generator=generator)
    makes: dict[str, Rows] = {
        "affine": lambda u: weight @ u.flatten(),
        "quadratic": lambda u: weight.abs() @ u.flatten() ** 2,
        "saddle": lambda u: weight @ u.flatten() ** 2,
        "product": lambda u: u.flatten()[places[0]] * u.flatten()[places[1]] + weight @ u.flatten(),
        "triple": lambda u: u.flatten()[places[0]] * u.flatten()[places[1]] * u.flatten()[places[2]],
        "exp": lambda u: weight @ torch.exp(0.5 * u.flatten()),
        "sin": lambda u: weight @ torch.sin(u.flatten()),
        "tanh": lambda u: torch.tanh(0.3 * (weight @ u.flatten())),  # flat rows would be hidden from any method
        "root": lambda u: torch.sqrt(1.0 + (weight @ u.flatten()) ** 2) + u.flatten()[places[0]],
        "ratio": lambda u: u.flatten()[places[0]] / (1.0 + u.flatten()[places[1]] ** 2),
        "cubic": lambda u: weight @ u.flatten() ** 3,
    }
    make = list(makes)[_draw(generator, 0, len(makes))]
    return make, makes[make]


def _draw(generator: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high, (), generator=generator))


def _kind(found: Comparison) -> str:
    ours, peer = bool(found.ours_arrived), bool(found.peer_arrived)
    if not (ours and peer):
        return "only_ours" if ours else "only_ipopt" if peer else "neither"
    difference = float(found.difference)
    return "equal" if abs(difference) <= EQUAL else "ours_farther" if difference > 0 else "ours_nearer"


def _told(number: int, problem: RandomProblem, found: Comparison) -> dict[str, Any]:
    assert found.peer.status is not None
    return {
        "number": number,
        "shape": list(problem.shape),
        "laws": list(problem.makes),
        "ours": snapfm.Status(int(found.ours.status)).name,
        "ours_violation": float(found.judged.violation),
        "ours_stationarity": float(found.judged.stationarity),
        "ours_distance": float(found.ours.distance),
        "ipopt": snapfm.Status(int(found.peer.status)).name,
        "ipopt_from": found.peer_start[0],
        "ipopt_violation": float(found.peer_judged.violation),
        "ipopt_stationarity": float(found.peer_judged.stationarity),
        "ipopt_distance": float(found.peer.distance),
        "fields_apart": float((found.ours.u.flatten() - found.peer.u.flatten()).abs().max()),
        "difference": None if bool(found.difference.isnan()) else float(found.difference),
    }
