"""Fields and rows of any size are projected alike."""

from __future__ import annotations

import pytest
import torch

from snapfm import Bounds, Equality, Inequality, Projector
from snapfm.laws import Law

SHAPE = (6, 5)
FIELDS = torch.randn(8, *SHAPE, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
KINDS: dict[str, list[Law]] = {
    "energy": [Equality("m", lambda u, p: u.sum(0) - 1.0), Equality("e", lambda u, p: (u**2).sum(0) - 3.0)],
    "inequalities": [
        Equality("m", lambda u, p: u.sum(0) - 1.0), Inequality("e", lambda u, p: (u**2).sum(0) - 1.0),
        Bounds(lower=-0.2, upper=0.9),
    ],
    "products": [
        Equality("p", lambda u, p: u[:3, :-1] * u[3:, 1:] - u[:3, 1:] * u[3:, :-1] - 0.3),
        Inequality("g", lambda u, p: u[:3] ** 2 + u[3:] ** 2 - 1.2),
    ],
    "transport": [
        Equality("s", lambda u, p: u[:, 1:] - u[:, :-1] + 0.4 * (u[:, 1:] ** 2 - (u[:, 1:] ** 2).roll(1, 0))),
        Inequality("d", lambda u, p: (u[:, 1:] ** 2).sum(0) - (u[:, :-1] ** 2).sum(0)),
    ],
    "kinks": [Equality("t", lambda u, p: torch.relu(u).sum(0) - 1.0)],
    "logarithms": [Equality("l", lambda u, p: torch.log(u.abs() + 0.5).sum(0) - 0.3), Bounds(lower=0.05)],
}  # fmt: skip


def rewritten(law: Law, field: float, rows: float) -> Law:
    """Write a law for fields that are `field` times as large, and its rows times `rows`."""
    if isinstance(law, Bounds):
        lower, upper = (None if limit is None else limit * field for limit in (law.lower, law.upper))
        return Bounds(lower, upper)
    return type(law)(law.name, lambda u, p, function=law.function: rows * function(u / field, p))


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_of_any_size(kind: str):
    plain = Projector(KINDS[kind], SHAPE)(FIELDS)
    assert bool(plain.converged.all())
    for size in (1e-9, 1e-4, 1e4, 1e9):
        project = Projector([rewritten(law, size, size) for law in KINDS[kind]], SHAPE, tolerance=1e-8 * size)
        found = project(size * FIELDS)
        assert bool(found.converged.all()), size
        assert float((found.distance / size / plain.distance - 1.0).abs().median()) < 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_any_size(kind: str):
    plain = Projector(KINDS[kind], SHAPE)(FIELDS)
    for size in (1e-9, 1e-6, 1e6, 1e9):
        names = [law.name for law in KINDS[kind] if not isinstance(law, Bounds)]
        laws = [rewritten(law, 1.0, size) if law.name == names[0] else law for law in KINDS[kind]]
        found = Projector(laws, SHAPE, tolerance={names[0]: 1e-8 * size})(FIELDS)
        assert bool(found.converged.all()), size
        assert float((found.distance / plain.distance - 1.0).abs().median()) < 1e-9
