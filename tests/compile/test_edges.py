"""Edges: nothing to solve for, nothing asked, rows that do not read the field, in-place writes, batches of any size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.compile import dense
from torch import Tensor

from snapfm.compile import CompiledLaws, RowKind, compile_laws
from snapfm.compile.sparsity import passes
from snapfm.laws import Equality

U = torch.rand(5, 3, 4, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
PARAMS = {"p": torch.rand(5, 4, generator=torch.Generator().manual_seed(10), dtype=torch.float64)}


def one(law: Callable[..., Tensor], shape: tuple[int, ...] = (3, 4)) -> CompiledLaws:
    return compile_laws([Equality("law", law)], shape, PARAMS)


def evaluate(structure: CompiledLaws, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    params = {"p": PARAMS["p"][: len(u)]}
    weight = torch.ones(len(u), structure.rows, dtype=torch.float64)
    curvature = torch.from_numpy(structure.hessian(u, params, weight))
    return structure.residual(u, params), structure.jacobian(u, params), curvature


def passed(structure: CompiledLaws, u: Tensor) -> tuple[Tensor, Tensor]:
    """Evaluate the first law's derivatives by torch's colored passes."""
    law, params = dense.oracle(structure), {"p": PARAMS["p"][: len(u)]}
    return law.jacobian(u, params), law.hessian(u, params, torch.ones(len(u), law.pattern.rows, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(0,), (0, 4), (2, 0, 3)])
def test_field_without_unknowns(shape: tuple[int, ...]) -> None:
    structure = one(lambda u, p: u.sum(0), shape)
    u = torch.zeros(2, *shape, dtype=torch.float64)
    residual, slopes, curvature = evaluate(structure, u)
    assert structure.unknowns == structure.nnz == 0
    assert residual.shape == (2, structure.rows)
    assert slopes.shape == curvature.shape == (2, 0)
    structure.check()
    structure.verify(u, {"p": PARAMS["p"][:2]})
    assert len(structure.presolve.dropped) == structure.rows
    assert "0 unknowns" in str(structure)


def test_law_without_rows() -> None:
    structure = one(lambda u, p: u[:0] ** 2)
    residual, slopes, curvature = evaluate(structure, U)
    assert structure.rows == structure.nnz == 0
    assert residual.shape == slopes.shape == curvature.shape == (5, 0)
    structure.check()
    structure.verify(U, PARAMS)
    assert str(structure)


def test_no_laws() -> None:
    structure = compile_laws([], (3, 4))
    assert (structure.rows, structure.nnz, structure.affine) == (0, 0, True)
    assert structure.residual(U, {}).shape == structure.jacobian(U, {}).shape == (5, 0)
    assert structure.hessian(U, {}, torch.zeros(5, 0, dtype=torch.float64)).shape == (5, 0)
    structure.check()
    structure.verify(U, {})
    assert structure.presolve.kept.tolist() == []


def test_one_row_and_one_unknown() -> None:
    structure = one(lambda u, p: torch.exp(u) - 2.0, (1,))
    u = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    residual, slopes, curvature = evaluate(structure, u)
    assert residual.shape == slopes.shape == curvature.shape == (2, 1)
    assert torch.allclose(slopes, torch.exp(u), rtol=1e-15)
    assert torch.equal(slopes, curvature)
    structure.check()
    structure.verify(u, {"p": PARAMS["p"][:2]})


def test_scalar_field() -> None:
    structure = one(lambda u, p: torch.stack([u**3, 2 * u]), ())
    u = torch.tensor([1.0, 2.0], dtype=torch.float64)
    _, slopes, curvature = evaluate(structure, u)
    assert slopes.tolist() == [[3.0, 2.0], [12.0, 2.0]]
    assert curvature.tolist() == [[6.0], [12.0]]
    structure.verify(u, {"p": PARAMS["p"][:2]})


def test_rows_that_do_not_read_the_field() -> None:
    """A row of params alone, one of constants, one that reads only the shape: no entries, reported as redundant."""

    def law(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        return torch.stack([p["p"][0], torch.tensor(2.0).double(), torch.zeros_like(u).sum() + u.shape[0], u[0, 0]])

    structure = one(law)
    assert structure.pattern.counts.tolist() == [0, 0, 0, 1]
    assert (structure.kinds == RowKind.AFFINE).all()
    residual, slopes, _ = evaluate(structure, U)
    assert torch.equal(residual, torch.stack([law(U[i], {"p": PARAMS["p"][i]}) for i in range(5)]))
    assert slopes.tolist() == [[1.0]] * 5
    assert structure.presolve.dropped.tolist() == [0, 1, 2]


def boundary(u: Tensor, p: dict[str, Tensor]) -> Tensor:
    """Overwrite the ends, scale what is between, add neighbours: all in place, on a copy."""
    v = u.clone()
    v[:, 0] = p["p"][0]
    v[:, -1] = v[:, -2]
    v[1:] *= 2.0
    v[0, 1:3] += u[2, :2]
    v[v > 1.7] = 1.7
    return v


def test_in_place_writes_into_a_copy() -> None:
    structure = one(boundary)
    # Column 0 is overwritten, the last column copies the one before; two elements read another besides.
    assert structure.nnz == 9 + 2
    before = U.clone()
    structure.verify(U, PARAMS)
    residual = structure.residual(U, PARAMS)
    assert torch.equal(U, before)
    expected = torch.stack([boundary(U[i], {"p": PARAMS["p"][i]}).flatten() for i in range(5)])
    assert torch.equal(residual, expected)


def curved(u: Tensor, p: dict[str, Tensor]) -> Tensor:
    return p["p"] * u[1:] * u[:-1] + torch.exp(u[1:])


def test_a_sample_does_not_depend_on_its_batch() -> None:
    structure = one(curved)
    together = evaluate(structure, U)
    for i in range(5):
        params = {"p": PARAMS["p"][i : i + 1]}
        assert torch.equal(structure.jacobian(U[i : i + 1], params)[0], together[1][i])
    spoiled = U.clone()
    spoiled[3] = torch.nan
    for clean, beside in zip(together, evaluate(structure, spoiled)):
        others = [0, 1, 2, 4]
        assert torch.equal(clean[others], beside[others])
        assert beside[3].isnan().any()


def test_a_sample_in_passes_does_not_depend_on_its_batch() -> None:
    structure = one(curved)
    spoiled = U.clone()
    spoiled[3] = torch.nan
    for clean, beside in zip(passed(structure, U), passed(structure, spoiled)):
        others = [0, 1, 2, 4]
        assert torch.equal(clean[others], beside[others])
        assert beside[3].isnan().any()


@pytest.mark.parametrize("count", [1, 7, 8, 9, 17])
def test_batches_of_any_size(count: int) -> None:
    """Lanes are filled in packs of eight; what is left over is no sample's business."""
    structure = one(curved)
    u = torch.rand(count, 3, 4, generator=torch.Generator().manual_seed(12), dtype=torch.float64)
    params = {"p": torch.rand(count, 4, generator=torch.Generator().manual_seed(13), dtype=torch.float64)}
    slopes = structure.jacobian(u, params)
    curvature = structure.hessian(u, params, torch.ones(count, structure.rows, dtype=torch.float64))
    for i in range(count):
        alone = {"p": params["p"][i : i + 1]}
        assert torch.equal(structure.jacobian(u[i : i + 1], alone)[0], slopes[i])
        weight = torch.ones(1, structure.rows, dtype=torch.float64)
        assert np.array_equal(structure.hessian(u[i : i + 1], alone, weight)[0], curvature[i])


def test_twice_gives_the_same_bits() -> None:
    structure = one(curved)
    for first, second in zip(evaluate(structure, U), evaluate(structure, U)):
        assert torch.equal(first, second)
    for first, second in zip(passed(structure, U), passed(structure, U)):
        assert torch.equal(first, second)
    again = one(curved)
    assert again.pattern.indices.tolist() == structure.pattern.indices.tolist()
    assert torch.equal(evaluate(again, U)[1], evaluate(structure, U)[1])


def test_empty_batch() -> None:
    structure = one(lambda u, p: torch.sin(u).sum(0))
    residual, slopes, curvature = evaluate(structure, U[:0])
    assert residual.shape == (0, 4)
    assert slopes.shape == curvature.shape == (0, 12)
    slopes, curvature = passed(structure, U[:0])
    assert (slopes.shape, curvature.shape) == ((0, 12), (0, 4 * 9))  # each row may couple all it reads


def test_blocks_of_a_batch_join_up(monkeypatch: pytest.MonkeyPatch) -> None:
    structure = one(curved)
    whole = passed(structure, U)
    monkeypatch.setattr(passes, "_BLOCK", 50)  # two samples at a time
    for all_at_once, in_blocks in zip(whole, passed(structure, U)):
        assert torch.allclose(all_at_once, in_blocks, rtol=1e-15, atol=0)


@pytest.mark.parametrize("side", ["rows", "columns"])
def test_some_rows_vary_and_others_do_not(side: str) -> None:
    """Constant and varying rows take turns, so that a row's place among those served is not its place in the law."""

    def by_columns(u: Tensor, p: object) -> Tensor:
        return torch.stack([3 * u[0, 1:], u[0, 0] * u[1, 1:], -u[2, 1:], u[0, 0] ** 2 * u[2, 1:]], 1)

    def by_rows(u: Tensor, p: object) -> Tensor:
        return torch.stack([u[0] + u[1], u[0] * u[2], 2 * u[2]], 1)

    structure = one(by_columns if side == "columns" else by_rows)
    structure.verify(U, PARAMS)
    law = dense.oracle(structure)
    assert {passes.side for passes in law.passes} == {side}
    assert torch.allclose(law.jacobian(U, PARAMS), structure.jacobian(U, PARAMS), rtol=1e-15, atol=0)
    fixed = structure.kinds[structure.pattern.row_of()] == RowKind.AFFINE
    assert fixed.any()
    assert not fixed.all()
    assert (structure.jacobian(U, PARAMS)[:, fixed] == torch.from_numpy(structure.constants[fixed])).all()


def test_lowered_laws_and_others_take_turns() -> None:
    """Laws without a scalar form stand between lowered ones: every value goes to its own row."""
    laws = [
        Equality("square", lambda u, p: (u**2).sum(0)),
        Equality("order", lambda u, p: u[0].sort().values * p["p"]),
        Equality("total", lambda u, p: u.sum(1)),
        Equality("middle", lambda u, p: u.median(0).values ** 2),
        Equality("none", curved),
    ]
    structure = compile_laws(laws, (3, 4), PARAMS)
    assert sorted(structure.opaque) == [1, 3]
    assert [law.reason for law in structure.opaque.values()] == ["sort", "median"]
    structure.check()
    structure.verify(U, PARAMS)
    rows = structure.slices()
    assert structure.kinds[rows["order"]].tolist() == [RowKind.GENERAL] * 4
    assert structure.kinds[rows["total"]].tolist() == [RowKind.AFFINE] * 3
    assert structure.pattern.counts[rows["middle"]].tolist() == [3] * 4
    alone = compile_laws(laws[4:], (3, 4), PARAMS)
    entries = structure.pattern.entries(np.arange(rows["none"].start, rows["none"].stop))
    assert torch.equal(structure.jacobian(U, PARAMS)[:, entries], alone.jacobian(U, PARAMS))


def test_laws_stack_in_order() -> None:
    laws = [
        Equality("first", lambda u, p: u[0]),
        Equality("second", lambda u, p: u.sum(1) ** 2),
        Equality("none", curved),
    ]
    structure = compile_laws(laws, (3, 4), PARAMS)
    assert structure.slices() == {"first": slice(0, 4), "second": slice(4, 7), "none": slice(7, 15)}
    assert [structure.where(row)[1] for row in (0, 3, 4, 14)] == [0, 3, 0, 7]
    assert structure.where(4)[0].name == "second"
    with pytest.raises(IndexError):
        structure.where(15)
    values = structure.jacobian(U, PARAMS)
    matrix = structure.pattern.csr(values[0].numpy()).toarray()
    truth = [torch.func.jacrev(law.function)(U[0], {"p": PARAMS["p"][0]}).reshape(-1, 12) for law in laws]
    np.testing.assert_allclose(matrix, torch.cat(truth), rtol=1e-14)


def test_laws_of_one_name() -> None:
    """A projector refuses them, because it reports by name; here each keeps its own rows."""
    laws = [Equality("twin", lambda u, p: u[0] ** 2), Equality("twin", lambda u, p: u[1, :2] * u[2, :2])]
    structure = compile_laws(laws, (3, 4))
    assert [structure.where(row)[1] for row in (0, 3, 4, 5)] == [0, 3, 0, 1]
    structure.check()
    structure.verify(U, {})
    assert [line.split()[:4] for line in str(structure).splitlines()[2:4]] == [
        ["twin", "=", "0", "4"],
        ["twin", "=", "0", "2"],
    ]


def test_params_of_any_shape_and_dtype() -> None:
    """A number, a matrix, an index and a flag per sample; float32 params are read as float64."""
    generator = torch.Generator().manual_seed(11)
    params = {
        "number": torch.rand(2, generator=generator),
        "matrix": torch.rand(2, 4, 4, generator=generator, dtype=torch.float64),
        "index": torch.tensor([[0, 2], [1, 1]]),
        "flag": torch.tensor([True, False]),
    }

    def law(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        chosen = u[p["index"]]
        return torch.where(p["flag"], chosen @ p["matrix"], p["number"] * chosen)

    structure = compile_laws([Equality("law", law)], (3, 4), params)
    assert (structure.kinds == RowKind.PARAMETRIC).all()
    exact = {name: value.double() if value.is_floating_point() else value for name, value in params.items()}
    structure.verify(U[:2], exact)
