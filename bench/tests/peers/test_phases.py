"""Where the time of a projection goes."""

from __future__ import annotations

import torch

from snapfm import Equality, Projector
from snapfm_bench.peers.ours import Ours
from snapfm_bench.peers.phases import FACTOR, JACOBIAN, RESIDUAL, REST, SOLVE


def fields(count: int) -> torch.Tensor:
    return torch.randn(count, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def curved() -> Projector:
    return Projector([Equality("energy", lambda u, p: (u**2 * torch.arange(1, 6)).sum(1) - 2.0)], (3, 5))


def test_every_part_of_an_iteration_takes_its_time():
    spent = Ours(curved()).phases(fields(9), {}, 1e-8)
    assert set(spent) == {RESIDUAL, JACOBIAN, FACTOR, SOLVE, REST}
    assert all(spent[part] > 0.0 for part in (RESIDUAL, JACOBIAN, FACTOR, SOLVE))
    assert spent[REST] >= 0.0


def test_looking_at_the_time_changes_no_answer():
    project, u_hat = curved(), fields(9)
    before = project(u_hat)
    Ours(project).phases(u_hat, {}, 1e-8)
    after = project(u_hat)
    assert torch.equal(before.u, after.u)
    assert torch.equal(before.iterations, after.iterations)


def test_a_closed_form_has_no_parts():
    project = Projector([Equality("total", lambda u, p: u.sum(1) - 1.0)], (3, 5))
    assert Ours(project).phases(fields(2), {}, 1e-8) == {}
