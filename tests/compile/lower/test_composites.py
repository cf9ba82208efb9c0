"""Operators that torch composes of others: recurrent cells, attention, norms, losses, covariances. All have a scalar form."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from snapfm import Equality
from snapfm.compile import compile_laws

SHAPE = (3, 4)
CLASSES = torch.tensor([2, 0, 3])


def drawn(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    for weight in module.double().eval().requires_grad_(False).parameters():
        weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64) / 2)
    return module


GRU, LSTM, CELL = drawn(nn.GRU(4, 2)), drawn(nn.LSTM(4, 2)), drawn(nn.LSTMCell(4, 2))
HEADS = drawn(nn.MultiheadAttention(4, 2))
BATCH, GROUP, PAIRS = drawn(nn.BatchNorm1d(4)), drawn(nn.GroupNorm(2, 4)), drawn(nn.Bilinear(4, 4, 2))

LAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "gru": lambda u: GRU(u[:, None])[1],
    "lstm": lambda u: LSTM(u[:, None])[0],
    "lstm-cell": lambda u: CELL(u)[1],
    "attention": lambda u: HEADS(u[:, None], u[:, None], u[:, None], need_weights=False)[0],
    "attention-causal": lambda u: F.scaled_dot_product_attention(u[None], u[None], u[None], is_causal=True),
    "batch-norm": lambda u: BATCH(u) ** 2,
    "group-norm": lambda u: GROUP(u),
    "bilinear": lambda u: PAIRS(u, u),
    "cross-entropy": lambda u: F.cross_entropy(u, CLASSES),
    "binary-cross-entropy": lambda u: F.binary_cross_entropy(torch.sigmoid(u), torch.full_like(u, 0.3)),
    "distances": torch.pdist,
    "covariance": torch.cov,
    "correlation": lambda u: torch.corrcoef(u)[0, 1:],
    "matrix-product-complex": lambda u: (torch.complex(u, u + 1) @ torch.complex(u, u * u).mT).imag,
}


@pytest.mark.parametrize("name", LAWS)
def test_derivatives_are_those_of_torch(name: str):
    laws = compile_laws([Equality("law", lambda u, p: LAWS[name](u))], SHAPE)
    assert laws.opaque == {}
    laws.verify(torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64), {})


def test_lines_of_a_softmax_are_divided_once():
    """A quotient of each element would couple all pairs of its line again."""
    laws = compile_laws(
        [Equality("law", lambda u, p: torch.softmax(u, -1) @ torch.arange(4.0, dtype=torch.float64))], SHAPE
    )
    names = [block.op.name for block in laws.scalar.tape.blocks]
    assert "DIV" not in names
    assert [block.size for block in laws.scalar.tape.blocks if block.op.name == "RECIPROCAL"] == [3]
