"""Lowered programs: values, Jacobians and Hessians against dense ones; cascades and reductions on known structures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import snapfm
from snapfm.kernels.operations import LANES
from snapfm.kernels.program import tile_bends, tile_gradient, tile_partials, tile_slopes, tile_values
from snapfm.laws import Equality, Law
from snapfm.structure import CompiledLaws, RowKind, compile_laws
from snapfm.structure.program import Program, build_program
from snapfm.structure.reduce import Reduction, reduce

LAWS = {
    "arithmetic": lambda u, p: (u[1:] * u[:-1] - p["a"] * u[1:]) / (2.0 + u[:-1] ** 2) - 1.5,
    "waves": lambda u, p: torch.sin(u[:, 1:]) * torch.cos(u[:, :-1]) + torch.tanh(u[:, 1:] - p["a"]),
    "growth": lambda u, p: torch.exp(0.3 * u).sum(0) + torch.log(3.0 + u[0]) + torch.sigmoid(u[1]) * p["a"],
    "powers": lambda u, p: (2.5 + u) ** 1.5 + torch.sqrt(4.0 + u) - (3.0 + u).reciprocal() + torch.rsqrt(3.0 + u),
    "choices": lambda u, p: torch.where(u > p["a"], u**3, -u) + u.abs() + torch.relu(u) + u.clamp(-0.5, 0.5),
    "extremes": lambda u, p: torch.maximum(u[1:], u[:-1]) * torch.minimum(u[1:], p["a"] * u[:-1]),
    "contraction": lambda u, p: (u @ u.T) @ torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]], dtype=torch.float64),
    "scan": lambda u, p: torch.cumsum(u, 1) ** 2 + u.mean() * torch.einsum("x,xt->t", torch.arange(3.0).double(), u),
    "writing": lambda u, p: _written(u),
    "products": lambda u, p: u[:, :3].prod(0) + u[:, 3:].prod() * p["a"],
    "norms": lambda u, p: u.norm(dim=0) * u.norm() - torch.linalg.vector_norm(u, dim=(0, 1), keepdim=True),
}


def _written(u: Tensor) -> Tensor:
    out = torch.zeros_like(u)
    out[1:] = u[1:] * u[:-1]
    out[0] += u[0] ** 2
    return out


def _whole(program: Program, u: Tensor, outside: np.ndarray) -> tuple[np.ndarray, ...]:
    """Run a program on one sample, put into every lane: rows, Jacobian values, Hessian values for weights 1, 2, 3, …"""
    cells = np.zeros(program.cells * LANES)
    lanes = cells.reshape(-1, LANES)
    lanes[0] = 1.0
    inputs = np.concatenate([u.flatten().numpy()[program.unknowns], outside[program.externals]])
    lanes[1 : program.code.first] = inputs[:, None]
    m = program.pattern.rows
    rows, partial = np.zeros(m * LANES), np.zeros(5 * program.operations * LANES)
    slots, left, right = (np.zeros((program.slots + 1) * LANES) for _ in range(3))
    entries = np.repeat(program.constants, LANES)
    weight = np.repeat(np.arange(1.0, m + 1), LANES)
    adjoint, hessian = np.zeros(program.operations * LANES), np.zeros(program.hessian.nnz * LANES)
    tile_values(program.code, cells, rows)
    tile_partials(program.code, cells, True, partial)
    tile_slopes(program.code, partial, slots, left, right, entries)
    tile_bends(program.code, weight, left, right, partial, adjoint, hessian)
    gradient = np.zeros(len(cells))
    tile_gradient(program.code, cells, weight, partial, gradient)
    return tuple(array.reshape(-1, LANES) for array in (rows, entries, hessian, gradient))


@pytest.mark.parametrize("name", LAWS)
def test_values_and_derivatives_equal_dense_ones_in_every_lane(name: str):
    law = Equality(name, LAWS[name])
    params = {"a": torch.tensor([0.4], dtype=torch.float64)}
    scalar = compile_laws([law], (3, 5), params).scalar
    listing = scalar.listing
    program = build_program(listing, scalar.rows, np.arange(15))
    u, sample = (
        torch.randn(3, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64),
        {"a": params["a"][0]},
    )
    outside = np.zeros(listing.cells)
    for first, graph, size in listing.externals:
        outside[first : first + size] = graph(u, sample).reshape(-1).numpy()
    rows, entries, curvature, gradient = _whole(program, u, outside)

    def residual(x: Tensor) -> Tensor:
        return law.residual(x, sample).reshape(-1)

    def total(x: Tensor) -> Tensor:
        return (torch.arange(1.0, program.pattern.rows + 1).double() * residual(x)).sum()

    tolerance = 1e3 * torch.finfo(torch.float64).eps * max(1.0, float(residual(u).abs().max()))
    dense = torch.func.jacrev(residual)(u).reshape(-1, 15).numpy()
    hessian = torch.func.hessian(total)(u).reshape(15, 15).numpy()
    slope = torch.func.grad(total)(u).flatten().numpy()
    for lane in range(LANES):
        assert np.abs(rows[:, lane] - residual(u).numpy()).max() <= tolerance
        assert np.abs(program.pattern.csr(entries[:, lane]).toarray() - dense).max() <= tolerance
        assert np.abs(program.hessian.csr(curvature[:, lane]).toarray() - np.tril(hessian)).max() <= 100 * tolerance
        found = np.zeros(15)
        found[program.unknowns] = gradient[1 : 1 + len(program.unknowns), lane]
        assert np.abs(found - slope).max() <= 100 * tolerance


def _sorted(laws: CompiledLaws) -> Reduction:
    constant, free = laws.kinds == RowKind.AFFINE, np.zeros(laws.unknowns, bool)
    return reduce(laws.scalar.listing, laws.scalar.rows, laws.equality_rows, constant, free, np.zeros(0, np.int64))


def _reduced(name: str, **settings: object):  # type: ignore[no-untyped-def]
    problem = snapfm.problem(name, **settings)
    structure = compile_laws(problem.laws, problem.grid.shape, problem.params(1, torch.Generator().manual_seed(0)))
    return structure, _sorted(structure)


def test_explicit_steps_after_an_initial_condition_become_substitutions():
    structure, found = _reduced("burgers-ic-mass-flux", flux_steps=5)
    # the initial slice, then each step determines two points less at either end: 99, 97, … of the 99 inner points; and
    # the mass of the second slice, which ties its two open ends, fixes one of them once they are turned
    assert [len(level.rows) for level in found.cascade.levels] == [101, 99, 98, 95, 93, 91]
    assert (len(found.turns), found.cascade.fixed) == (1, 577)
    # the first mass row repeats the initial condition; 95 later ones stand alone; the rest is one small system
    assert [structure.where(int(row))[0].name for row in found.cascade.implied] == ["mass"]
    assert len(found.affine) == 95
    (system,) = found.systems
    assert (system.parts, system.rows.shape[1], system.unknowns.shape[1]) == (1, 24, 19)


def test_slices_that_share_no_unknown_become_parts_of_one_make():
    structure, found = _reduced("navier-stokes-ic-mass-enstrophy")
    (system,) = found.systems
    # every slice is seen through its sum and its sum of squares only: two unknowns
    assert (len(found.groups), len(found.groups.members)) == (49, 49 * 256)
    assert (system.parts, system.rows.shape[1], system.unknowns.shape[1]) == (49, 2, 2)
    assert sorted(system.rows.ravel()) == list(range(256, structure.rows))


def test_unknowns_that_enter_no_operation_are_eliminated():
    structure, found = _reduced("burgers-bc-mass")
    (system,) = found.systems
    assert system.unknowns.shape == (1, 101)  # only the outflow is squared
    # the inflow is fixed, and so is half of each pair that the zero-gradient edge ties
    assert (len(found.turns), found.cascade.fixed) == (101, 202)
    assert system.eliminated.shape == (1, 101 * 101 - 202 - 101)
    assert structure.rows - found.cascade.fixed == system.rows.shape[1] == 100


def _group_sizes(*laws: Law) -> list[int]:
    found = _sorted(compile_laws(list(laws), (3, 5)))
    return sorted(np.diff(found.groups.ptr).tolist())


def test_only_what_all_rows_see_alike_is_grouped():
    total = Equality("total", lambda u, p: u.sum(0) - 1.0)
    energy = Equality("energy", lambda u, p: (u**2).sum() - 2.0)
    assert _group_sizes(energy) == [15]
    assert _group_sizes(energy, total) == [3] * 5
    assert _group_sizes(energy, Equality("edge", lambda u, p: u[0] * u[1] - 0.1)) == [5]
    assert (
        _group_sizes(energy, Equality("weighted", lambda u, p: (torch.arange(3.0)[:, None] * u).sum() - 1.0)) == [5] * 3
    )
    # squares of params' multiples, cubes, and products of two unknowns are no sums of squares
    assert _group_sizes(Equality("cube", lambda u, p: (u**3).sum() - 1.0)) == []
    assert _group_sizes(Equality("nested", lambda u, p: (u**2).sqrt().sum() - 1.0)) == []
    assert _group_sizes(total) == []  # eliminated through their multipliers instead


def test_a_logistic_source_is_a_sum_of_squares():
    assert _group_sizes(Equality("source", lambda u, p: (u * (1.0 - u)).sum(0) - 0.3)) == [3] * 5
