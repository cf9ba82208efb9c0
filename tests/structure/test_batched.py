"""A law on batches: traced or not, params in any order, the same values."""

from __future__ import annotations

import torch

import snapfm
from snapfm.structure import analyze


def test_params_may_come_in_any_order():
    law = snapfm.Equality("mixed", lambda u, p: p["b"] * u[0] - p["a"])
    first = {"a": torch.tensor([[1.0], [2.0]]).double(), "b": torch.tensor([[3.0], [5.0]]).double()}
    structure = analyze([law], (2, 1), first)
    u = torch.ones(2, 2, 1, dtype=torch.float64)
    expected = torch.tensor([[2.0], [3.0]], dtype=torch.float64)
    turned = {"b": first["b"], "a": first["a"]}
    with torch.no_grad():  # the second call of a batch size traces it, the third uses the trace
        for params in (first, turned, turned, first):
            assert torch.equal(structure.residual(u, params), expected)
