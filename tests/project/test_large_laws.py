"""Laws too large for factors: sizes are counted before anything is listed, and the matrix-free form takes over.

Limits are set so low that small fields meet them: with the real ones these are fields of 100 × 100 × 100 unknowns.
"""

import tracemalloc
from typing import NoReturn

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array
from torch import Tensor

import snapfm
from snapfm import Equality
from snapfm.compile import CompiledLaws, MatrixFreeLaws, compile_laws
from snapfm.compile.sparsity.pattern import Pattern, TooLarge, gram
from snapfm.laws import Params
from snapfm.linear import Automatic, Fronts, Lanes, Solver

SHAPE = (7, 6, 8)  # x, y, t


def _laplacian(v: Tensor) -> Tensor:
    return sum(torch.roll(v, step, axis) - v for step in (1, -1) for axis in (0, 1))


def _heat(u: Tensor, p: Params) -> Tensor:
    return u[..., 1:] - u[..., :-1] - 0.1 * _laplacian(u[..., 1:])


def _reaction(u: Tensor, p: Params) -> Tensor:
    middle = (u[..., 1:] + u[..., :-1]) / 2
    return u[..., 1:] - u[..., :-1] - 0.1 * _laplacian(middle) - 0.01 * middle * (1 - middle)


def _total(u: Tensor, p: Params) -> Tensor:
    total = u.sum((0, 1))
    return total[1:] - total[0]


# Nothing is fixed, so that no step can be substituted or solved for by itself.
CASES = {
    "affine": [Equality("heat", _heat)],
    "affine, with totals": [Equality("heat", _heat), Equality("total", _total)],
    "curved": [Equality("reaction", _reaction)],
    "curved, of neighbors": [
        Equality("burgers", lambda u, p: _heat(u, p) + 0.05 * u[..., 1:] * torch.roll(u, 1, 0)[..., 1:])
    ],
    "affine but for a border": [Equality("heat", _heat), Equality("energy", lambda u, p: (u**2).sum()[None] - 90.0)],
}


def _listed(*_: object) -> NoReturn:
    raise AssertionError("entries of a factor were listed")


@pytest.mark.parametrize("name", CASES)
def test_space_time_laws_with_nothing_fixed_are_prepared_without_factors(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "border" in name:
        monkeypatch.setattr("snapfm.solve.kkt._MANY", 10)
    ordinary = snapfm.Projector(CASES[name], SHAPE)
    assert isinstance(ordinary.structure, CompiledLaws)
    with monkeypatch.context() as patch:
        patch.setattr("snapfm.project.projector.LARGEST", 1e4)
        for listing in ("fronts.supernodes", "lanes.schedule"):
            patch.setattr(f"snapfm.linear.{listing}", _listed)
        project = snapfm.Projector(CASES[name], SHAPE)
    assert isinstance(project.structure, MatrixFreeLaws)
    assert "matrix-free: factors of 0 GB are not computed" in str(project.structure)
    u = torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = project(u)
    assert found.converged.all()
    torch.testing.assert_close(found.u, ordinary(u).u, rtol=0.0, atol=1e-7)


def test_where_there_is_no_other_form_factors_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapfm.project.projector.LARGEST", 1e4)
    kinked = Equality("kinked", lambda u, p: _heat(u, p) + 0.1 * u[..., 1:].abs())
    assert isinstance(snapfm.Projector([kinked], SHAPE).structure, CompiledLaws)
    assert isinstance(snapfm.Projector(CASES["affine"], SHAPE, linear=Lanes()).structure, CompiledLaws)


def test_entries_of_the_gram_matrix_are_counted_before_they_are_listed() -> None:
    sparse = csr_array(random_array((2_500, 60), density=0.02, rng=np.random.default_rng(0), format="csr"))
    full = csr_array(sparse @ sparse.T)
    assert (abs(gram(sparse, full.nnz) - full)).nnz == 0
    with pytest.raises(TooLarge, match="JJᵀ is not written out") as refusal:
        gram(sparse, full.nnz - 1)
    assert refusal.value.entries <= full.nnz
    huge = csr_array(np.ones((200_000, 1)))  # 4e10 entries
    tracemalloc.start()
    with pytest.raises(TooLarge):
        gram(huge, 20_000_000)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 12 * 20_000_000  # bytes of that many entries


def test_too_many_pairs_of_rows_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = [Equality("heat", _heat), Equality("again", lambda u, p: 2.0 * _heat(u, p))]
    assert len(compile_laws(twice, SHAPE).presolve.redundant) == 7 * 6 * 7
    for module in ("compile.presolve", "compile.describe"):
        monkeypatch.setattr(f"snapfm.{module}.ENTRY_LIMIT", 1_000)
    laws = compile_laws(twice, SHAPE)
    assert not laws.presolve.searched
    text = " ".join(str(laws).split())
    assert "too many rows to search" in text
    assert "factor of JJᵀ over the rows left: not looked at" in text


@pytest.mark.parametrize("solver", [Fronts(largest=1e3), Automatic(largest=1e3)])
def test_solvers_refuse_before_they_list(solver: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    for listing in ("fronts.supernodes", "lanes.schedule"):
        monkeypatch.setattr(f"snapfm.linear.{listing}", _listed)
    words = r"expect matrices that fit into memory; factors of 0 GB are not computed \(210 entries or more\)\. Use a coarser"
    with pytest.raises(TooLarge, match=words):
        solver.prepare(Pattern.from_coordinates(*np.tril_indices(20), (20, 20)))
