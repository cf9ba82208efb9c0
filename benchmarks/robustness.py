"""What becomes of 16 samples of each kind of input on every problem: statuses, iterations, worst violation and gap."""

from __future__ import annotations

from typing import Any

import torch

import snapfm
from snapfm.problems import names

SAMPLES = 16
KINDS = ("truth + 0.1 noise", "noise 1", "noise 3", "zero", "constant")


def run() -> dict[str, Any]:
    return {"samples": SAMPLES, "tolerance": 1e-8, "rows": [row for name in names() for row in _problem(name)]}


def _problem(name: str) -> list[dict[str, Any]]:
    problem, generator = snapfm.problem(name), torch.Generator().manual_seed(0)
    fields, params = problem.truth(SAMPLES, generator)
    project = snapfm.Projector(problem.laws, problem.grid.shape, params)
    noise = torch.randn(fields.shape, generator=generator, dtype=torch.float64)
    inputs = (fields + 0.1 * noise, noise, 3.0 * noise, torch.zeros_like(noise), torch.full_like(noise, 0.7))
    rows = []
    for kind, u_hat in zip(KINDS, inputs):
        result = project(u_hat, params)
        found = torch.bincount(result.status.int(), minlength=len(snapfm.Status)).tolist()
        rows.append(
            {
                "problem": name,
                "input": kind,
                "statuses": {status.name: count for status, count in zip(snapfm.Status, found) if count},
                "iterations_median": int(result.iterations.median()),
                "iterations_worst": int(result.iterations.max()),
                "violation_worst": float(result.violation.max()),
                "gap_worst": float(result.stationarity.max()),
            }
        )
    return rows
