"""The judge's own float64 reading of laws that compute in float32."""

from __future__ import annotations

import torch
from torch import nn

from snapfm_bench.precision import in_float64

U = torch.randn(1, 1, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_casts_and_weights_are_in_float64_with_their_gradients():
    layer = nn.Conv2d(1, 2, 3)
    exact = nn.Conv2d(1, 2, 3).double()
    exact.load_state_dict(layer.state_dict())
    u, other = U.clone().requires_grad_(), U.clone().requires_grad_()
    with in_float64():
        value = torch.tanh(layer(u.float())).sum((-2, -1))
        slope = torch.autograd.grad(value.sum(), u)[0]
    truth = torch.tanh(exact(other)).sum((-2, -1))
    assert value.dtype == torch.float64
    assert torch.allclose(value, truth, rtol=1e-14, atol=1e-14)
    assert torch.allclose(slope, torch.autograd.grad(truth.sum(), other)[0], rtol=1e-13, atol=1e-14)
    assert layer.weight.dtype == torch.float32


def test_writes_into_float32_stay_there():
    with in_float64():
        kept = torch.zeros(5)
        kept[:] = U[0, 0, 0]
        kept += 1.0
    assert kept.dtype == torch.float32
    assert torch.equal(kept, U[0, 0, 0].float() + 1.0)


def test_nothing_is_left_behind():
    with in_float64():
        pass
    assert U.float().dtype == torch.float32
