"""Laws that compute in float32: certified in float64, and their own rounding is told."""

from __future__ import annotations

import torch
from torch import nn

from snapfm import Equality, Projector
from snapfm_bench.judge import Answers, verdict


def test_a_float32_network_is_projected_onto_below_its_rounding():
    network = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for weight in network.parameters():
        weight.copy_(torch.randn(weight.shape, generator=generator))
    law = Equality("network", lambda u, p: network(u.float())[:, 0] - p["output"])
    truth = torch.randn(5, 3, 4, generator=generator, dtype=torch.float64)
    params = {"output": network(truth.float())[..., 0].double()}
    u_hat = truth + 0.1 * torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    project = Projector([law], (3, 4), params)
    result = project(u_hat, params).raise_for_status()

    as_written = (network(result.u.float())[..., 0] - params["output"]).abs().amax(dim=1)
    assert torch.allclose(result.violation, as_written, rtol=0.0, atol=1e-7)
    assert (result.violation <= result.tolerance + result.rounding).all()
    assert float(result.rounding.max()) > 1e-9  # it is not hidden
    exact = (network.double()(result.u)[..., 0] - params["output"]).abs().amax()
    network.float()
    assert float(exact) <= result.tolerance
    found = verdict(
        [law],
        u_hat,
        Answers(result.u, result.multipliers, result.converged, result.iterations),
        params,
        result.tolerance,
    )
    assert found.converged == 5
