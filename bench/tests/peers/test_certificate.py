"""The certificate of a peer's answer: what is far from an answer shows, and what bounds hold does not."""

from __future__ import annotations

import numpy as np
import torch

from snapfm import Bounds, Equality, Status
from snapfm.compile import compile_laws
from snapfm.solve.base import limits_of
from snapfm_bench.peers.certificate import Answer, broken, certified, converged

LAWS = [Equality("total", lambda u, p: u.sum() - 1.0), Bounds(lower=0.0, upper=2.0)]
SHAPE = (2, 3)


def answer(u: torch.Tensor, weight: float) -> Answer:
    return Answer(
        u.reshape(1, -1).numpy(), np.array([[weight]]), np.ones(1, np.int64), np.full(1, Status.CONVERGED, np.int8)
    )


def test_a_nearest_point_with_held_bounds_is_certified():
    structure, limits = compile_laws(LAWS, SHAPE), limits_of(LAWS, SHAPE)
    u_hat = torch.tensor([[[3.0, -1.0, 0.0], [0.0, -2.0, 0.0]]], dtype=torch.float64)
    u = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]], dtype=torch.float64)
    solved = certified(structure, limits, u_hat, {}, answer(u, 2.0), None)
    assert solved.stationarity.tolist() == [0.0]
    assert converged(structure, limits, solved, 1e-12).all()
    assert solved.distance.tolist() == [float((u - u_hat).norm())]


def test_a_lawful_field_that_is_not_nearest_is_not():
    structure, limits = compile_laws(LAWS, SHAPE), limits_of(LAWS, SHAPE)
    u_hat = torch.tensor([[[3.0, -1.0, 0.0], [0.0, -2.0, 0.0]]], dtype=torch.float64)
    u = torch.tensor([[[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]], dtype=torch.float64)
    solved = certified(structure, limits, u_hat, {}, answer(u, 2.0), None)
    assert float(solved.stationarity) == 0.5  # as far as the bound lets u move
    assert not converged(structure, limits, solved, 1e-12).any()


def test_what_is_not_finite_is_found():
    start = torch.zeros(3, *SHAPE, dtype=torch.float64)
    start[1, 0, 2] = torch.nan
    params = {"mass": torch.tensor([1.0, 1.0, torch.inf]), "which": torch.tensor([0, 1, 2])}
    assert broken(start, params).tolist() == [False, True, True]
