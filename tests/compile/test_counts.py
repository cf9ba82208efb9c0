"""Published numbers: rows, non-zeros and row kinds of the six benchmark problems, and the 5 × 9 Jacobian of the toy."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from tests.compile import dense
from tests.compile.release_laws import (
    BURGERS_BC,
    BURGERS_IC_MASS,
    HEAT,
    INITIAL,
    NAVIER_STOKES,
    REACTION_DIFFUSION,
    burgers_flux,
)
from torch import Tensor

from snapfm.compile import CompiledLaws, RowKind, compile_laws
from snapfm.laws import Equality

pytestmark = pytest.mark.reference

ROUNDINGS = 1e3  # sums of some hundred terms of order one
HEAT_SHAPE, BURGERS_SHAPE, RD_SHAPE, NS_SHAPE = (100, 100), (101, 101), (64, 100), (16, 16, 50)


@dataclass(frozen=True)
class Published:
    """One benchmark problem: its laws and what was published about their Jacobian."""

    laws: list[Equality]
    shape: tuple[int, ...]
    rows: int
    nnz: int
    separable: int  # rows that are not affine; every one is a sum of functions of one unknown
    nonlinear: int = 0  # unknowns that enter through a function: the diagonal of the Hessian


PUBLISHED = {
    "heat-ic-mass": Published(HEAT, HEAT_SHAPE, 199, 9_901, 0),
    "burgers-bc-mass": Published(BURGERS_BC, BURGERS_SHAPE, 302, 20_503, 100, 2 * 101),
    "burgers-ic": Published([INITIAL], BURGERS_SHAPE, 101, 101, 0),
    "burgers-ic-mass": Published(BURGERS_IC_MASS, BURGERS_SHAPE, 202, 10_302, 0),
    "burgers-ic-mass-flux-1": Published([*BURGERS_IC_MASS, burgers_flux(1)], BURGERS_SHAPE, 301, 10_698, 99, 101),
    "burgers-ic-mass-flux-5": Published([*BURGERS_IC_MASS, burgers_flux(5)], BURGERS_SHAPE, 697, 12_282, 495, 5 * 101),
    "burgers-ic-mass-flux-10": Published(
        [*BURGERS_IC_MASS, burgers_flux(10)], BURGERS_SHAPE, 1_192, 14_262, 990, 10 * 101
    ),
    "reaction-diffusion-ic-mass": Published(REACTION_DIFFUSION, RD_SHAPE, 163, 12_736, 99, 64 * 100),
    "navier-stokes-ic-mass-enstrophy": Published(NAVIER_STOKES, NS_SHAPE, 354, 25_344, 49, 256 * 49),
}


@functools.cache
def analyzed(name: str) -> CompiledLaws:
    problem = PUBLISHED[name]
    return compile_laws(problem.laws, problem.shape, params(problem.shape))


def params(shape: tuple[int, ...]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(4)
    return {
        "u0": torch.rand(1, *shape[:-1], generator=generator, dtype=torch.float64),
        "left": torch.rand(1, generator=generator, dtype=torch.float64),
    }


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_count(name: str) -> None:
    structure, problem = analyzed(name), PUBLISHED[name]
    assert structure.rows == problem.rows
    assert structure.nnz == structure.pattern.nnz == problem.nnz


@pytest.mark.parametrize("name", PUBLISHED)
def test_count_holds_no_entry_that_is_always_zero(name: str) -> None:
    problem, structure = PUBLISHED[name], analyzed(name)
    u = 0.1 + torch.rand(1, *problem.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    assert np.count_nonzero(structure.jacobian(u, params(problem.shape))) == problem.nnz


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_row_is_a_sum_of_functions_of_one_unknown(name: str) -> None:
    structure, problem = analyzed(name), PUBLISHED[name]
    assert (structure.kinds == RowKind.SEPARABLE).sum() == problem.separable
    assert (structure.kinds == RowKind.AFFINE).sum() == problem.rows - problem.separable
    assert structure.affine == (problem.separable == 0)
    assert structure.opaque == {}
    pattern = structure.hessian_pattern
    assert pattern is not None
    assert (pattern.row_of() == pattern.indices).all()
    assert pattern.nnz == problem.nonlinear


@pytest.mark.parametrize("name", PUBLISHED)
def test_values_agree_with_one_product(name: str) -> None:
    """At the example, by the package's own check; at a field with both signs, by a product of torch's with the oracle."""
    problem, structure = PUBLISHED[name], analyzed(name)
    structure.check()
    generator = torch.Generator().manual_seed(6)
    u = torch.randn(1, *problem.shape, generator=generator, dtype=torch.float64)
    weight = torch.randn(structure.rows, generator=generator, dtype=torch.float64)
    given = {key: value[0] for key, value in params(problem.shape).items()}

    def residual(x: Tensor) -> Tensor:
        return torch.cat([law.residual(x, given).reshape(-1) for law in problem.laws])

    truth = torch.func.vjp(residual, u[0])[1](weight)[0].flatten()
    values = structure.jacobian(u, params(problem.shape))[0].numpy()
    found = torch.from_numpy(structure.pattern.csr(values).T @ weight.numpy())
    assert torch.allclose(found, truth, rtol=0, atol=ROUNDINGS * torch.finfo(torch.float64).eps)


@pytest.mark.parametrize("name", PUBLISHED)
def test_colored_passes_give_the_same_values(name: str) -> None:
    """Every law as one that only torch can differentiate: patterns by rules, and the same entries and values."""
    problem, structure = PUBLISHED[name], analyzed(name)
    u = torch.randn(2, *problem.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    given = {key: value.expand(2, *value.shape[1:]) for key, value in params(problem.shape).items()}
    values, law_rows = structure.jacobian(u, given), list(structure.slices().values())
    for place, rows in enumerate(law_rows):
        oracle = dense.oracle(structure, place)
        mine = structure.pattern.take(np.arange(rows.start, rows.stop))
        assert np.array_equal(oracle.pattern.indptr, mine.indptr)
        assert np.array_equal(oracle.pattern.indices, mine.indices)
        entries = structure.pattern.entries(np.arange(rows.start, rows.stop))
        off = (oracle.jacobian(u, given) - values[:, entries]).abs().max()
        assert off <= ROUNDINGS * torch.finfo(torch.float64).eps


def test_burgers_first_mass_row_repeats_the_initial_rows() -> None:
    found = analyzed("burgers-ic-mass").presolve
    (redundant,) = found.redundant
    assert redundant.row == 101  # the first of 'mass'
    assert redundant.rows.tolist() == list(range(101))
    np.testing.assert_allclose(redundant.weights, 0.01, rtol=1e-12)
    assert found.fixed.tolist() == [101 * i for i in range(101)]
    assert len(found.kept) == 202 - 101 - 1
    assert "law 'mass' row 0 repeats 'initial' rows 0..100" in str(analyzed("burgers-ic-mass"))


def test_heat_laws_are_independent() -> None:
    found = analyzed("heat-ic-mass").presolve
    assert found.redundant == ()
    assert len(found.fixed) == 100
    assert len(found.kept) == 99


def test_stencils_cost_passes_of_their_width() -> None:
    # Four entries per flux row, of which three on one time slice: neighbours 3 apart in space never meet.
    passes = dense.oracle(analyzed("burgers-ic-mass-flux-10"), 2).passes
    assert sum(one.count for one in passes) <= 6
    # One total per time slice: the rows share no unknown.
    (passes,) = dense.oracle(analyzed("heat-ic-mass"), 1).passes
    assert (passes.side, passes.count) == ("rows", 1)


TOY_JACOBIAN = [
    [1, 0, 0, 0, 0, 0, 0, 0, 0],
    [0, 1, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, 1, 0, 0, 0, 0, 0, 0],
    [-1, -1, 0, 1, 1, 0, 0, 0, 0],
    [-1, -1, 0, 0, 0, 0, 1, 1, 0],
]


def test_toy_jacobian() -> None:
    """Initial condition and left-Riemann mass on a 3 × 3 field (time, space): unknowns go slice by slice."""
    laws = [
        Equality("initial", lambda u, p: u[0] - p["u0"]),
        Equality("mass", lambda u, p: u[1:, :-1].sum(1) - u[0, :-1].sum()),
    ]
    given = {"u0": torch.zeros(1, 3, dtype=torch.float64)}
    structure = compile_laws(laws, (3, 3), given)
    values = structure.jacobian(torch.zeros(1, 3, 3, dtype=torch.float64), given)[0]
    assert structure.nnz == 11
    np.testing.assert_array_equal(structure.pattern.csr(values.numpy()).toarray(), TOY_JACOBIAN)
