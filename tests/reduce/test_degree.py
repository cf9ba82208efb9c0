"""Rows that are at most quadratic in the free unknowns."""

from __future__ import annotations

import pytest
import torch

import snapfm

SHAPE = (2, 6)
PARAMS = {"w": torch.rand(1, 6, dtype=torch.float64)}


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (lambda u, p: (u**2).sum() - 1.0, True),
        (lambda u, p: (u[0] * u[1]).sum() + u.sum() - 1.0, True),
        (lambda u, p: ((u[0] - p["w"]) ** 2).sum() + u[1].sum() - 1.0, True),
        (lambda u, p: (p["w"] * u[0] + u[1]).sum() + (u[0] * u[1]).sum(), True),
        (lambda u, p: (p["w"] * u**2).sum() - 1.0, True),
        (lambda u, p: ((p["w"] * u) ** 2).sum() - 1.0, True),
        (lambda u, p: (torch.exp(p["w"]) * u[0] * u[1]).sum() - 1.0, True),
        (lambda u, p: (u**3).sum() - 1.0, False),
        (lambda u, p: (u[0] ** 2 * u[1]).sum() - 1.0, False),
        (lambda u, p: torch.exp(u).sum() - 9.0, False),
        (lambda u, p: (u**2).sum().sqrt() - 1.0, False),
    ],
    ids=[
        "energy", "product", "distance", "slopes of params", "weights of params", "squared with weights", "product with weights",
        "cube", "mixed cube", "exponential", "root",
    ],
)  # fmt: skip
def test_degree_of_a_law(law, expected):
    systems = snapfm.Projector([snapfm.Equality("law", law)], SHAPE, PARAMS).method.plan.reduction.systems
    assert len(systems) == 1
    assert systems[0].quadratic == expected


def test_a_pinned_unknown_counts_as_known():
    laws = [
        snapfm.Equality("pin", lambda u, p: u[0] - p["w"]),
        snapfm.Equality("mixed", lambda u, p: (u[0] * u[1] ** 2).sum() - 1.0),
    ]
    (system,) = snapfm.Projector(laws, SHAPE, PARAMS).method.plan.reduction.systems
    assert system.quadratic
