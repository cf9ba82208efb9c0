"""The order of cells; fused blocks: few of them, and the same rows, slopes and curvature."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from snapfm import Equality
from snapfm.compile import compile_laws
from snapfm.compile.lower import tape as module


def nested(u, p):
    value, found = u[0], []
    for i in range(60):
        value = value * 0.5 + u[i % 5] * u[(i + 1) % 5] - torch.sin(u[(i + 2) % 5] * p["k"])
        found.append(value**2)
    return torch.stack(found[::7]) + torch.where(u[:1] > 0.5, u[1:2], u[2:3])


def test_scalars_become_a_few_blocks_with_the_same_values(monkeypatch):
    params = {"k": torch.tensor([0.7], dtype=torch.float64)}
    fused = compile_laws([Equality("nested", nested)], (5,), params)
    monkeypatch.setattr(module, "_MANY", 10**9)
    plain = compile_laws([Equality("nested", nested)], (5,), params)
    assert len(plain.scalar.tape.blocks) > 150
    assert len(fused.scalar.tape.blocks) < 10
    assert fused.scalar.tape.cells == plain.scalar.tape.cells
    for one, other in zip(fused.scalar.tape.blocks, fused.scalar.tape.blocks[1:]):
        assert one.first + one.size == other.first
    u = torch.rand(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    batch = {"k": params["k"].expand(3)}
    assert np.array_equal(fused.pattern.indices, plain.pattern.indices)
    assert np.array_equal(fused.kinds, plain.kinds)
    assert torch.allclose(fused.jacobian(u, batch), plain.jacobian(u, batch), rtol=1e-13)
    weight = torch.rand(3, fused.rows, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert np.allclose(fused.hessian(u, batch, weight), plain.hessian(u, batch, weight), rtol=1e-12)
    fused.verify(u, batch)


def test_few_blocks_stay_as_they_are():
    laws = compile_laws([Equality("energy", lambda u, p: (u**2).sum() + torch.exp(u[0]))], (5,))
    tape = laws.scalar.tape
    found, place = module.ordered(tape, np.zeros(0, np.int64))
    assert found is tape
    assert np.array_equal(place, np.arange(tape.cells))


@pytest.mark.parametrize("law", [lambda u, p: torch.maximum(u, p["k"]), lambda u, p: (u @ u.T) * p["k"]])
def test_operations_without_elements_are_no_blocks(law):
    scalar = compile_laws([Equality("empty", law)], (0, 3), {"k": torch.ones(1)}).scalar
    assert not scalar.tape.blocks
    assert scalar.rows.shape[0] == 0


def test_cells_of_params_come_before_the_unknowns():
    laws = [Equality("one", lambda u, p: u**2 * p["a"]), Equality("two", lambda u, p: torch.exp(u * p["b"][1:]))]
    params = {"a": torch.ones(1), "b": torch.ones(1, 6)}
    tape = compile_laws(laws, (5,), params).scalar.tape
    assert (tape.params, tape.unknowns, tape.first_unknown, tape.first_operation) == (6, 5, 7, 12)
    assert [(first, size) for first, _, size in tape.graphs] == [(1, 1), (2, 5)]
    ends = [block.first + block.size for block in tape.blocks]
    assert [block.first for block in tape.blocks] == [12, *ends[:-1]]
    assert tape.cells == ends[-1]
    assert all(operand.indices.max() < block.first for block in tape.blocks for operand in block.operands)
