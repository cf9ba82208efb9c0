"""Self-checks: `check` and `verify` pass on what compile_laws gives, and find what was tampered with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.sparse import csr_array
from tests.compile import dense
from torch import Tensor

from snapfm.compile import CompiledLaws, Pattern, compile_laws
from snapfm.compile.derivatives import Scalar
from snapfm.errors import LawError, StructureWarning
from snapfm.laws import Equality

SHAPE = (3, 5)
PARAMS = {"a": torch.tensor([1.5, 0.5, 2.0], dtype=torch.float64)}
U = torch.rand(3, *SHAPE, generator=torch.Generator().manual_seed(8), dtype=torch.float64)


def law(u: Tensor, params: dict[str, Tensor]) -> Tensor:
    return (params["a"] * u[1:] * u[:-1] - torch.sin(u[1:])).flatten()


FIRST = 2  # cell of the first unknown, behind the constant and the one param


def compiled() -> CompiledLaws:
    return compile_laws([Equality("sum", lambda u, p: u.sum(1)), Equality("product", law)], SHAPE, PARAMS)


def with_rows(change: dict[tuple[int, int], float]) -> CompiledLaws:
    """Write other coefficients into the lowered rows: (row, cell) → number. Rows 0..2 are 'sum', 3..12 'product'."""
    good = compiled()
    rows = good.scalar.rows.toarray()
    for place, number in change.items():
        assert rows[place] != number
        rows[place] = number
    return replace(good, scalar=Scalar(good.scalar.tape, csr_array(rows), good.scalar.example))


def by_torch() -> CompiledLaws:
    """Leave the second law to torch; its rows are empty in the scalar program."""
    good = compiled()
    rows = good.scalar.rows.toarray()
    rows[3:] = 0.0
    scalar = Scalar(good.scalar.tape, csr_array(rows), good.scalar.example)
    return replace(good, scalar=scalar, opaque={1: dense.oracle(good, 1)})


def without(pattern: Pattern, entry: int) -> Pattern:
    keep = np.arange(pattern.nnz) != entry
    return Pattern.from_coordinates(pattern.row_of()[keep], pattern.indices[keep], (pattern.rows, pattern.columns))


@pytest.mark.parametrize("make", [compiled, by_torch])
def test_good_laws_pass(make: object) -> None:
    laws: CompiledLaws = make()  # type: ignore[operator]
    laws.check()
    laws.verify(U, PARAMS)


def test_laws_left_to_torch_give_the_same_derivatives() -> None:
    one, other = compiled(), by_torch()
    weight = torch.randn(3, one.rows, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert np.array_equal(one.pattern.indices, other.pattern.indices)
    assert torch.allclose(one.jacobian(U, PARAMS), other.jacobian(U, PARAMS), rtol=1e-14, atol=1e-15)
    assert dense.pairs(one.hessian_pattern) <= dense.pairs(other.hessian_pattern)
    for i in range(3):
        matrices = [
            laws.hessian_pattern.csr(laws.hessian(U, PARAMS, weight)[i]).toarray()  # type: ignore[union-attr]
            for laws in (one, other)
        ]
        np.testing.assert_allclose(matrices[0], matrices[1], atol=1e-13)


def lost_sine() -> CompiledLaws:
    """Lose the sine of unknown 5 from the first row of 'product': the only term that is subtracted."""
    rows = compiled().scalar.rows
    (cell,) = (cell for cell in rows[[3]].indices if rows[3, int(cell)] == -1.0)
    return with_rows({(3, int(cell)): 0.0})


def test_wrong_slope_is_found_by_one_product() -> None:
    with pytest.raises(LawError) as refusal:
        lost_sine().check()
    assert str(refusal.value).startswith(
        "law 'product' expects a pattern with every entry that can be non-zero; unknown 5 lacks some (its slope is off by "
    )


def test_wrong_slope_is_found_and_named() -> None:
    bad = lost_sine()
    with pytest.raises(LawError) as refusal:
        bad.verify(U, PARAMS)
    truth = float(PARAMS["a"][0] * U[0, 0, 0] - torch.cos(U[0, 1, 0]))
    assert str(refusal.value) == (
        f"law 'product': Jacobian entry (0, 5) expects {truth:.6e}; the sparse one is "
        f"{float(PARAMS['a'][0] * U[0, 0, 0]):.6e}. Give the pattern by hand and report the law."
    )


def test_missing_entry_is_found_by_one_product() -> None:
    """Entry (4, 4) of 'product' is lost, from the pattern and from the passes that serve it."""
    good = by_torch()
    thinned = dense.oracle(good, 1, pattern=without(good.opaque[1].pattern, 8))
    with pytest.raises(
        LawError, match=r"^law 'product' expects a pattern with every entry .*; unknown 4 lacks some \(its slope"
    ):
        replace(good, opaque={1: thinned}).check()


def test_missing_entry_is_found_and_named() -> None:
    good = by_torch()
    thinned = dense.oracle(good, 1, pattern=without(good.opaque[1].pattern, 8))
    with pytest.raises(LawError) as refusal:
        replace(good, opaque={1: thinned}).verify(U, PARAMS)
    truth = float(PARAMS["a"][0] * U[0, 1, 4])
    assert str(refusal.value) == (
        f"law 'product': Jacobian entry (4, 4) expects {truth:.6e}; the sparse one is {0:.6e}. Give the pattern by hand and "
        "report the law."
    )


def test_missing_curvature_is_found_and_named() -> None:
    """Entry (0, 5) of the Hessian is lost."""
    bad = by_torch()
    whole = bad.opaque[1].hessian_pattern
    assert whole is not None
    (entry,) = np.flatnonzero((whole.row_of() == 0) & (whole.indices == 5))
    bad.opaque[1].__dict__["hessian_pattern"] = without(whole, entry)
    bad.check()  # one product sees slopes alone
    with pytest.raises(LawError, match=r"^law 'product': Hessian entry \(0, 5\) expects .*; the sparse one is 0\.0"):
        bad.verify(U, PARAMS)


def test_wrong_curvature_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    hessian = Scalar.hessian
    monkeypatch.setattr(Scalar, "hessian", lambda *given: 1.001 * hessian(*given))
    bad = compiled()
    bad.check()
    with pytest.raises(LawError, match=r"^law 'product': Hessian entry "):
        bad.verify(U, PARAMS)


def test_wrong_constant_is_found() -> None:
    bad = with_rows({(1, FIRST + 7): 1.001})
    with pytest.raises(LawError, match=r"law 'sum' expects .*; unknown 7 lacks some"):
        bad.check()
    with pytest.raises(LawError, match=r"law 'sum': Jacobian entry \(1, 7\)"):
        bad.verify(U, PARAMS)


def test_value_that_is_not_a_number_is_found() -> None:
    bad = with_rows({(0, FIRST + 3): np.nan})
    with pytest.raises(LawError, match="law 'sum'"):
        bad.check()
    with pytest.raises(LawError, match=r"law 'sum': Jacobian entry \(0, 3\)"):
        bad.verify(U, PARAMS)


def test_points_outside_the_domain_are_passed_over() -> None:
    roots = compile_laws([Equality("roots", lambda u, p: torch.sqrt(u))], (4,))
    roots.verify(torch.tensor([[1.0, -1.0, 4.0, 0.0]], dtype=torch.float64), {})
    outside = compile_laws([Equality("roots", lambda u, p: torch.sqrt(u - 2.0))], (4,))  # at the example, too
    outside.check()


def test_laws_through_half_precision_are_held_to_it() -> None:
    half = compile_laws([Equality("half", lambda u, p: torch.sin(3 * u.half()).cumsum(0).double())], (9,))
    assert half.opaque[0].reason == "_to_copy in torch.float16"
    u = torch.rand(2, 9, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    half.check()
    half.verify(u, {})


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_law_without_forward_derivative() -> None:
    """Torch has no JVP of this interpolation: only VJPs are planned, and the check multiplies from the left."""
    places = 2 * torch.rand(1, 2, 2, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64) - 1

    def at_places(u: Tensor, params: object) -> Tensor:
        return F.grid_sample(u[None, None], places, align_corners=True)

    with pytest.warns(StructureWarning, match=r"law 'places': no sparsity rule for aten.grid_sampler_2d.default"):
        sampled = compile_laws([Equality("places", at_places)], SHAPE)
    assert {passes.side for passes in sampled.opaque[0].passes} == {"rows"}
    sampled.check()
    given = replace(Equality("places", at_places), pattern=([0, 1, 2], [0, 0, 0]))
    with pytest.raises(LawError, match=r"; unknown \d+ lacks some"):
        compile_laws([given], SHAPE).check()


def test_law_without_any_derivative() -> None:
    """Rows of an operator that is pointwise by torch's own mark: there is no warning, only the refusal."""
    with pytest.raises(LawError) as refusal:
        compile_laws([Equality("odd", lambda u, p: torch.special.zeta(u + 2, u + 1))], SHAPE)
    assert str(refusal.value) == (
        "law 'odd' expects operators that torch can differentiate; it says: the derivative for 'zeta' is not implemented. "
        "Write that part with others, or detach it where its slope does not matter."
    )
