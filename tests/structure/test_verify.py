"""Self-checks: `check` and `verify` pass on what compile_laws gives, and find what was tampered with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from snapfm.errors import LawError, StructureWarning
from snapfm.laws import Equality
from snapfm.structure import Pattern, CompiledLaws, compile_laws
from snapfm.structure.color import plan_passes
from snapfm.structure.plan import LawPlan

SHAPE = (3, 5)
PARAMS = {"a": torch.tensor([1.5, 0.5, 2.0], dtype=torch.float64)}
U = torch.rand(3, *SHAPE, generator=torch.Generator().manual_seed(8), dtype=torch.float64)


def law(u: Tensor, params: dict[str, Tensor]) -> Tensor:
    return (params["a"] * u[1:] * u[:-1] - torch.sin(u[1:])).flatten()


def structure() -> CompiledLaws:
    return compile_laws([Equality("sum", lambda u, p: u.sum(1)), Equality("product", law)], SHAPE, PARAMS)


def tampered(change: dict[str, object]) -> CompiledLaws:
    """Change the plan of the second law."""
    good = structure()
    return replace(good, plans=(good.plans[0], replace(good.plans[1], **change)))  # type: ignore[arg-type]


def without(pattern: Pattern, entry: int) -> Pattern:
    keep = np.arange(pattern.nnz) != entry
    return Pattern.from_coordinates(pattern.row_of()[keep], pattern.indices[keep], (pattern.rows, pattern.columns))


def first_of(params: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value[:1] for name, value in params.items()}


def test_good_structure_passes() -> None:
    structure().check(U[:1], first_of(PARAMS))
    structure().verify(U, PARAMS)


def thinned() -> dict[str, object]:
    """Lose entry (4, 4), from the pattern and from the passes that serve it."""
    plan: LawPlan = structure().plans[1]
    pattern = without(plan.pattern, 8)
    return {
        "pattern": pattern,
        "varying_passes": plan_passes(pattern, np.arange(pattern.rows)),
        "constants": np.zeros(pattern.nnz),
    }


def test_missing_entry_is_found_by_one_product() -> None:
    with pytest.raises(
        LawError, match=r"^law 'product' expects a pattern with every entry .*; row 4 lacks some \(its slope"
    ):
        tampered(thinned()).check(U[:1], first_of(PARAMS))


def test_missing_entry_is_found_and_named() -> None:
    with pytest.raises(LawError) as refusal:
        tampered(thinned()).verify(U, PARAMS)
    truth = float(PARAMS["a"][0] * U[0, 1, 4])
    assert str(refusal.value) == (
        f"law 'product': Jacobian entry (4, 4) expects {truth:.6e}; the sparse one is {0:.6e}. Give the pattern by hand and "
        "report the law."
    )


def test_missing_curvature_is_found_and_named() -> None:
    plan = structure().plans[1]
    assert plan.hessian_passes is not None
    assert plan.curvature.pattern is not None
    pattern = without(plan.curvature.pattern, 0)
    (passes,) = plan_passes(pattern, np.arange(pattern.rows))
    change: dict[str, object] = {
        "curvature": replace(plan.curvature, pattern=pattern),
        "hessian_passes": replace(plan.hessian_passes, pattern=pattern, entries=np.arange(pattern.nnz)),
    }
    tampered(change).check(U[:1], first_of(PARAMS))  # one product sees slopes alone
    with pytest.raises(LawError, match=r"^law 'product': curvature entry \(0, 5\) expects .*; the sparse one is 0\.0"):
        tampered(change).verify(U, PARAMS)
    assert passes.rows.size == 15


def test_wrong_constant_is_found() -> None:
    good = structure()
    plan = replace(good.plans[0], constants=good.plans[0].constants * 1.001)
    with pytest.raises(LawError, match="law 'sum'"):
        replace(good, plans=(plan, good.plans[1])).verify(U, PARAMS)


def test_value_that_is_not_a_number_is_found() -> None:
    good = structure()
    constants = good.plans[0].constants.copy()
    constants[3] = np.nan
    bad = replace(good, plans=(replace(good.plans[0], constants=constants), good.plans[1]))
    with pytest.raises(LawError, match="law 'sum'"):
        bad.check(U[:1], first_of(PARAMS))
    with pytest.raises(LawError, match=r"law 'sum': Jacobian entry \(0, 3\)"):
        bad.verify(U, PARAMS)


def test_points_outside_the_domain_are_passed_over() -> None:
    roots = compile_laws([Equality("roots", lambda u, p: torch.sqrt(u))], (4,))
    u = torch.tensor([[1.0, -1.0, 4.0, 0.0]], dtype=torch.float64)
    roots.check(u, {})
    roots.verify(u, {})


def test_laws_through_float32_are_held_to_float32() -> None:
    single = compile_laws([Equality("single", lambda u, p: torch.sin(3 * u.float()).cumsum(0).double())], (9,))
    u = torch.rand(2, 9, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    single.check(u[:1], {})
    single.verify(u, {})


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_law_without_forward_derivative() -> None:
    """Torch has no JVP of this interpolation: only VJPs are planned, and the check multiplies from the left."""
    places = 2 * torch.rand(1, 2, 2, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64) - 1

    def at_places(u: Tensor, params: object) -> Tensor:
        return F.grid_sample(u[None, None], places, align_corners=True)

    with pytest.warns(StructureWarning, match=r"law 'places': no sparsity rule for aten.grid_sampler_2d.default"):
        sampled = compile_laws([Equality("places", at_places)], SHAPE)
    (plan,) = sampled.plans
    assert {passes.side for passes in plan.varying_passes} == {"rows"}
    sampled.check(U[:1], {})
    given = replace(Equality("places", at_places), pattern=([0, 1, 2], [0, 0, 0]))
    with pytest.raises(LawError, match=r"; unknown \d+ lacks some"):
        compile_laws([given], SHAPE).check(U[:1], {})


def test_law_without_any_derivative() -> None:
    with (
        pytest.warns(StructureWarning, match=r"no sparsity rule for aten.special_zeta"),
        pytest.raises(LawError) as refusal,
    ):
        compile_laws([Equality("odd", lambda u, p: torch.special.zeta(u + 2, u + 1))], SHAPE)
    assert str(refusal.value) == (
        "law 'odd' expects operators that torch can differentiate; it says: the derivative for 'zeta' is not implemented. "
        "Write that part with others, or detach it where its slope does not matter."
    )
