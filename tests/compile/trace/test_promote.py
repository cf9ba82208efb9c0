"""Laws that compute in float32: what is promoted to float64, what stays, and that constants keep the value they have."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from snapfm import Equality
from snapfm.compile import CompiledLaws, compile_laws

SHAPE = (3, 4)
U = torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def compiled(function: Callable[..., Tensor]) -> CompiledLaws:
    return compile_laws([Equality("law", function)], SHAPE)


def network() -> nn.Module:
    layers = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    for weight in layers.parameters():
        weight.copy_(torch.randn(weight.shape, generator=generator))
    return layers


def test_a_float32_network_is_that_network_in_float64():
    single = network()
    laws = compiled(lambda u, p: single(u.float()))
    assert laws.opaque == {}
    assert laws.float32_laws == ["law"]
    exact = torch.stack([network().double()(one).flatten() for one in U])
    # Products of batches round in their own order on some processors; float32 would be off by 1e-7.
    assert torch.allclose(laws.residual(U, {}), exact, rtol=0.0, atol=16 * torch.finfo(torch.float64).eps)
    as_written = torch.stack([single(one.float()).flatten() for one in U]).double()
    assert torch.allclose(laws.written(U, {}), as_written, rtol=1e-6, atol=1e-6)
    assert not torch.equal(as_written, exact)
    laws.verify(U, {})
    assert "float32: law 'law' computes in float32" in str(laws)


def test_the_law_itself_is_left_as_it_is():
    single = network()
    compiled(lambda u, p: single(u.float()))
    assert {weight.dtype for weight in single.parameters()} == {torch.float32}


def test_constants_keep_the_value_they_have_in_float32():
    laws = compiled(lambda u, p: u.float() * torch.full((4,), 0.1, dtype=torch.float32) + torch.tensor(0.7))
    tenth, rest = (float(torch.tensor(number)) for number in (0.1, 0.7))
    assert torch.allclose(laws.residual(U, {}), (U * tenth + rest).flatten(1), rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize(
    "function",
    [
        lambda u, p: torch.where(u.float() > 0.3, u, 2 * u),  # a number may lie on the other side
        lambda u, p: u + u.float().round(),
        lambda u, p: u * u.bfloat16(),
        lambda u, p: u + u.float().view(torch.int32).double(),
    ],
    ids=["comparison", "rounding", "half", "bits"],
)
def test_what_stays_as_it_is_written(function: Callable[..., Tensor]):
    laws = compiled(function)
    assert laws.float32_laws == []
    assert torch.equal(laws.residual(U, {}), laws.written(U, {}))


def test_laws_in_float64_are_not_looked_at():
    laws = compiled(lambda u, p: torch.sin(u))
    assert laws.float32_laws == []
    assert "float32" not in str(laws)


def test_complex_numbers_in_single_precision():
    laws = compiled(lambda u, p: torch.fft.rfft(u.float(), dim=1).abs().square())
    assert laws.float32_laws == ["law"]
    assert torch.allclose(laws.residual(U, {}), torch.fft.rfft(U, dim=2).abs().square().flatten(1), rtol=1e-14)
