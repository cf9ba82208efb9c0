"""Figures that others published: SNAP-FM (runtimes, scaling, constraint errors), PCFM (sample quality), I-PCFM (inequalities).

They are in published.toml. Measured on other hardware, with other networks and data. None is a run that did not finish within the
paper's budget; a key that is absent was not published. Imports nothing of snapfm.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

HARDWARE = "1× L40S + 4 cores"
STEPS = 100  # flow steps of every published run
BUDGET_HOURS = 6
UNIT = 1e-2  # of the published scores of sample quality

# Samplers with published scores, by their published name: ours.
SAMPLERS = {
    "FFM": "flow",
    "DiffusionPDE": "guidance",
    "PDM": "projected",
    "D-Flow": "dflow",
    "ECI": "eci",
    "PCFM": "pcfm",
}


@dataclass(frozen=True)
class Scaling:
    """Seconds of whole runs by column and size; `axis` is what grows."""

    problems: frozenset[str]
    axis: str
    unknowns: int
    samples: int | None  # None: they are what grows
    seconds: dict[str, dict[int, float | None]]


def _finished(line: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: None if value == "DNF" else float(value) for name, value in line.items()}


def _scaling(raw: Mapping[str, Any]) -> Scaling:
    seconds = {
        column: {int(size): value for size, value in _finished(line).items()} for column, line in raw["seconds"].items()
    }
    return Scaling(frozenset(raw["problems"]), raw["axis"], raw["unknowns"], raw.get("samples"), seconds)


def fastest(problem: str) -> tuple[str, float]:
    """Return the published method that is fastest on a problem, and the seconds of its whole run."""
    finished = {name: seconds for name, seconds in RUNTIMES[problem].items() if seconds is not None}
    return min(finished.items(), key=lambda one: one[1])


_RAW = tomllib.loads(resources.files("snapfm_bench").joinpath("published.toml").read_text(encoding="utf-8"))
_PROBLEMS: dict[str, Any] = _RAW["problems"]

# By problem: points of its grid, samples of its runs, its title, seconds by column, seconds of the network, errors by law.
GRIDS: dict[str, tuple[int, ...]] = {name: tuple(one["grid"]) for name, one in _PROBLEMS.items()}
SAMPLES: dict[str, int] = {name: one["samples"] for name, one in _PROBLEMS.items()}
TITLES: dict[str, str] = {name: one["title"] for name, one in _PROBLEMS.items()}
RUNTIMES = {name: _finished(one["runtimes"]) for name, one in _PROBLEMS.items()}
NETWORK: dict[str, float] = {name: one["network"] for name, one in _PROBLEMS.items() if "network" in one}
ERRORS: dict[str, dict[str, dict[str, float]]] = {name: one["errors"] for name, one in _PROBLEMS.items()}
SCALING = tuple(map(_scaling, _RAW["scaling"]))
# By task and sampler: MMSE and SMSE; None where the paper has a dash.
QUALITY: dict[str, dict[str, list[float] | None]] = {
    task: {sampler: row.get(sampler) for sampler in SAMPLERS.values()} for task, row in _RAW["quality"].items()
}
# By problem: source, samples, the tolerance of joint feasibility, the share of samples that meet it, seconds a sample.
INEQUALITIES: dict[str, dict[str, Any]] = _RAW["inequalities"]
