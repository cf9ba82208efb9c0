"""The adjoint system: the batched way through J W⁻¹ Jᵀ and the sparse factorisation of each sample give the same answer."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

import snapfm
from snapfm.project.adjoint import Adjoint

SHAPE = (3, 5)


def _energy(u: Tensor, p: dict[str, Tensor]) -> Tensor:
    return u.square().sum(0)[1:] - p["e"]


LAWS = {
    "pinned": [
        snapfm.Equality("first", lambda u, p: 2.0 * u[:, 0] - p["a"]),
        snapfm.Equality("energy", _energy),
    ],
    "redundant": [
        snapfm.Equality("mass", lambda u, p: u.sum(0) - p["m"]),
        snapfm.Equality("total", lambda u, p: u.sum() - p["m"].sum()),
        snapfm.Equality("cubes", lambda u, p: (u**3).sum(1) - p["c"]),
    ],
    "inequalities": [
        snapfm.Equality("first", lambda u, p: u[:, 0] - p["a"]),
        snapfm.Inequality("decay", lambda u, p: u.square().sum(0)[1:] - u.square().sum(0)[:-1]),
        snapfm.Bounds(lower=-0.7, upper=0.9),
    ],
}


@pytest.mark.parametrize("name", LAWS)
def test_batched_and_single_solutions_agree(name: str):
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.rand, generator=generator, dtype=torch.float64)
    true = 0.5 + draw(4, *SHAPE)
    params = {"a": 0.2 + 0.5 * draw(4, 3), "e": 0.5 + draw(4, 4), "m": true.sum(1), "c": (true**3).sum(2)}
    project = snapfm.Projector(LAWS[name], SHAPE, params)
    start = true + 0.1 * draw(4, *SHAPE) if name == "redundant" else 2.0 * draw(4, *SHAPE) - 0.8
    result = project(start, params).raise_for_status()
    gradient = torch.randn(4, *SHAPE, generator=generator, dtype=torch.float64)
    multipliers = torch.cat([result.multipliers[law.name] for law in project.structure.laws], dim=1)
    batched, single = (Adjoint(project.structure, project.limits, batched=choice) for choice in (True, False))
    assert batched.schur is not None
    assert single.schur is None
    w, nu = batched.solve(result.u, params, multipliers, gradient)
    other, other_nu = single.solve(result.u, params, multipliers, gradient)
    assert torch.isfinite(w).all()
    assert torch.allclose(w, other, rtol=1e-8, atol=1e-8)
    jacobian = project.structure.jacobian(result.u, params).numpy()
    for i in range(4):  # ν itself is not unique where rows repeat each other; its pull on the field is
        matrix = project.structure.pattern.csr(jacobian[i])
        free = torch.from_numpy((project.limits.lower < result.u[i].flatten().numpy())
                                & (result.u[i].flatten().numpy() < project.limits.upper))  # fmt: skip
        pull, other_pull = torch.from_numpy(matrix.T @ nu[i].numpy()), torch.from_numpy(matrix.T @ other_nu[i].numpy())
        assert torch.allclose(pull[free], other_pull[free], rtol=1e-7, atol=1e-7)


def test_a_nan_gradient_stays_with_its_sample():
    params = {"a": torch.full((3, 3), 0.4, dtype=torch.float64), "e": torch.full((3, 4), 0.9, dtype=torch.float64)}
    project = snapfm.Projector(LAWS["pinned"], SHAPE, params)
    start = torch.rand(3, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    weight = torch.ones(3, *SHAPE, dtype=torch.float64)
    (clean,) = torch.autograd.grad((weight * project(start, params).u).sum(), start)
    weight[1, 0, 0] = torch.nan
    (spoilt,) = torch.autograd.grad((weight * project(start, params).u).sum(), start)
    assert torch.equal(clean[[0, 2]], spoilt[[0, 2]])
    assert torch.isnan(spoilt[1]).all()
