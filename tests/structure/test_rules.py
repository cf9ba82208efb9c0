"""Every sparsity rule: the count it promises, the kind of its rows, and its values against dense derivatives."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from tests.structure import dense
from tests.structure.operator_laws import GRID_INDEX, MASK, C, Case, cases
from torch import Tensor

from snapfm.errors import LawError, StructureWarning
from snapfm.laws import Equality
from snapfm.structure import RowKind, analyze, propagate
from snapfm.structure.plan import LawPlan
from snapfm.structure.rules import supported

CASES = {case.name: case for case in cases()}
ROUNDINGS = (
    1e3  # one operator on 15 unknowns, differentiated twice; special functions are good to some hundred roundings
)
FLOAT32 = {"cast", "cast-back", "write-copy"}  # pass through float32
# Torch has no derivative of these, though their slope is zero wherever it exists.
WITHOUT_REFERENCE = {"heaviside", "floor-divide"}


def points(shape: tuple[int, ...]) -> tuple[Tensor, dict[str, Tensor]]:
    """Two samples inside the domain of roots, logarithms and inverse sines."""
    generator = torch.Generator().manual_seed(3)
    u = 0.1 + 0.8 * torch.rand(2, *shape, generator=generator, dtype=torch.float64)
    return u, {"p": 0.6 + torch.rand(2, 5, generator=generator, dtype=torch.float64)}


@functools.cache
def planned(name: str) -> LawPlan:
    case = CASES[name]
    return analyze([Equality(name, case.residual)], case.shape, points(case.shape)[1]).plans[0]


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    case, plan = CASES[name], planned(name)
    u, params = points(case.shape)
    if case.nnz is not None:
        assert plan.pattern.nnz == case.nnz
    assert plan.curvature.kinds.max(initial=RowKind.AFFINE) == case.kind

    tolerance = ROUNDINGS * torch.finfo(torch.float32 if name in FLOAT32 else torch.float64).eps
    weight = torch.randn(2, plan.rows, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    sides = {"as planned": plan.jacobian(u, params), **dense.by_side(plan, u, params)}
    bends, bent = plan.hessian(u, params, weight), plan.curvature.pattern
    assert bent is not None
    for i in range(2):
        sample = {"p": params["p"][i]}
        if name in WITHOUT_REFERENCE:
            assert (plan.pattern.nnz, bent.nnz) == (case.nnz, 0)
            continue
        slopes = dense.jacobian(case.residual, u[i], sample)
        for side, values in sides.items():
            dense.assert_agrees(f"Jacobian {side}", plan.pattern, values[i], slopes, tolerance)
        if case.kind > RowKind.PARAMETRIC:
            hessian = dense.hessian(case.residual, u[i], sample, weight[i])
            dense.assert_agrees("curvature", bent, bends[i], hessian, tolerance, noisy=True)
        elif case.kind == RowKind.AFFINE and case.nnz is not None and not name.startswith("fft"):
            assert np.count_nonzero(slopes) == case.nnz  # the number in the table is that of the matrix itself


# Registered, but out of reach of a law: what they are kept for.
UNREACHED = {
    "_unique2": "refused: see test_result_of_varying_length",
    "nonzero": "refused: see test_result_of_varying_length",
    "unique_consecutive": "refused: see test_result_of_varying_length",
    "unique_dim": "refused: see test_result_of_varying_length",
    "bincount": "refused: see test_result_of_varying_length",
    "alias": "left by some functionalized views in other versions of torch",
    "view": "plain views are recorded as reshape; reinterpreted bits are in test_reinterpreted_bits",
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_every_rule_is_exercised(monkeypatch: pytest.MonkeyPatch) -> None:
    met: set[str] = set()

    def rule_for(target: object, find: object = propagate.rule_for) -> object:
        met.add(str(target.overloadpacket).removeprefix("aten."))  # type: ignore[attr-defined]
        return find(target)  # type: ignore[operator]

    monkeypatch.setattr(propagate, "rule_for", rule_for)
    for case in CASES.values():
        u, params = points(case.shape)
        sample = {"p": params["p"][0]}
        propagate.propagate(planned(case.name).graph, u[0], sample, case.name)
    assert set(supported()) - met == set(UNREACHED)
    assert met <= set(supported())


def test_reinterpreted_bits() -> None:
    plan = analyze([Equality("bits", lambda u, p: u + u.view(torch.int64).view(torch.float64))], (3, 5)).plans[0]
    assert plan.pattern.nnz == 15 * 15
    assert (plan.curvature.kinds == RowKind.GENERAL).all()


def test_operator_without_a_rule_is_named_once_and_dense() -> None:
    def law(u: Tensor, params: object) -> Tensor:
        return torch.linalg.det(u[:, :3]) + torch.linalg.det(u[:, 1:4]) + u[:, 4]

    with pytest.warns(StructureWarning) as caught:
        structure = analyze([Equality("volume", law)], (3, 5))
    (message,) = [str(one.message) for one in caught]
    assert message == (
        "law 'volume': no sparsity rule for aten._linalg_det.default; treated as dense on what it reads. The result is "
        "right but slower; give Equality(..., pattern=(rows, columns)) where you know it."
    )
    (plan,) = structure.plans
    assert plan.unruled == ("aten._linalg_det.default",)
    assert plan.pattern.counts.tolist() == [13, 13, 13]  # 12 unknowns of both determinants, one of the column
    u, _ = points((3, 5))
    structure.check(u[:1], {})
    structure.verify(u, {})


def test_pattern_by_hand_replaces_detection() -> None:
    """A pattern given by hand is taken as it is, silences the warning, and bounds the curvature too."""

    def law(u: Tensor, params: object) -> Tensor:
        return torch.linalg.det(u.reshape(4, 2, 2))

    rows, columns = np.repeat(np.arange(4), 4), np.arange(16)
    structure = analyze([Equality("volume", law, (rows.tolist(), columns.tolist()))], (16,))
    (plan,) = structure.plans
    assert plan.pattern.nnz == 16
    assert plan.curvature.pattern is not None
    assert plan.curvature.pattern.nnz == 4 * 16
    u = 0.1 + torch.rand(2, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    structure.check(u[:1], {})
    structure.verify(u, {})


def test_pattern_by_hand_may_name_too_many() -> None:
    everything = (np.repeat(np.arange(4), 5).tolist(), list(range(5)) * 4)
    structure = analyze([Equality("step", lambda u, p: u[1:] - u[:-1], everything)], (5,))
    assert structure.nnz == 20
    u = torch.rand(2, 5, dtype=torch.float64)
    structure.verify(u, {})
    assert np.count_nonzero(structure.jacobian(u, {})[0]) == 8


def test_pattern_by_hand_with_a_gap_is_found() -> None:
    """The first unknown of row 2 is missing."""
    given = ([0, 0, 1, 1, 2], [0, 1, 1, 2, 3])
    structure = analyze([Equality("step", lambda u, p: u[1:] - u[:-1], given)], (4,))
    with pytest.raises(LawError) as refusal:
        structure.check(torch.rand(1, 4, dtype=torch.float64), {})
    assert str(refusal.value).startswith(
        "law 'step' expects a pattern with every entry that can be non-zero; row 2 lacks some (its slope is off by "
    )
    assert str(refusal.value).endswith("). Correct the pattern given, or leave it out.")


def test_index_tensors_are_not_touched() -> None:
    before = GRID_INDEX.clone()
    analyze([Equality("gather", CASES["gather"].residual)], (3, 5))
    assert torch.equal(GRID_INDEX, before)


def test_branch_not_taken_at_the_example_is_kept() -> None:
    """The example lies in (0.1, 0.9); both branches are far from it."""

    def law(u: Tensor, params: object) -> Tensor:
        return torch.where(u[:, 0] > 5.0, u[:, 1] * u[:, 2], torch.where(u[:, 0] < -5.0, u[:, 3], torch.zeros(())))

    plan = analyze([Equality("rare", law)], (3, 5)).plans[0]
    assert plan.pattern.counts.tolist() == [3, 3, 3]  # the condition itself has no slope
    assert plan.pattern.indices.reshape(3, 3).tolist() == [[1, 2, 3], [6, 7, 8], [11, 12, 13]]
    assert (plan.curvature.kinds == RowKind.GENERAL).all()
    u = torch.zeros(3, 3, 5, dtype=torch.float64)
    u[:, :, 0] = torch.tensor([9.0, -9.0, 0.0])[:, None]
    u[:, :, 1], u[:, :, 2] = 2.0, 3.0
    expected = torch.tensor([[3.0, 2.0, 0.0] * 3, [0.0, 0.0, 1.0] * 3, [0.0] * 9]).double()
    assert torch.equal(plan.jacobian(u, {}), expected)


@pytest.mark.parametrize(
    ("law", "nnz"),
    [
        (lambda u: torch.relu(u - 50), 15),  # zero at the example
        (lambda u: u.clamp(20, 30), 15),
        (lambda u: torch.maximum(u, torch.full_like(u, 40)), 15),
        (lambda u: (u > 70).double() * u, 15),
        (lambda u: torch.where(MASK, u, 0 * u + C), 15),
        (lambda u: u.amax(0), 15),
    ],
)
def test_flat_at_the_example(law: object, nnz: int) -> None:
    plan = analyze([Equality("flat", lambda u, p: law(u))], (3, 5)).plans[0]  # type: ignore[operator]
    assert plan.pattern.nnz == nnz


def test_choice_by_a_param_keeps_both_sides() -> None:
    def law(u: Tensor, params: dict[str, Tensor]) -> Tensor:
        return torch.where(params["p"] > 0, u[0], u[1])

    params = {"p": torch.tensor([[1.0] * 5, [-1.0] * 5], dtype=torch.float64)}
    plan = analyze([Equality("choice", law)], (2, 5), params).plans[0]
    assert (plan.curvature.kinds == RowKind.PARAMETRIC).all()
    values = plan.jacobian(torch.zeros(2, 2, 5, dtype=torch.float64), params)
    matrix = np.stack([plan.pattern.csr(one.numpy()).toarray() for one in values])
    np.testing.assert_array_equal(matrix, [np.eye(5, 10), np.eye(5, 10, 5)])


def test_zeros_of_params_are_not_used() -> None:
    """A coefficient that happens to be zero in the example may be anything in the next sample."""
    params = {"p": torch.zeros(1, 5, dtype=torch.float64)}
    laws = {"product": lambda u, p: p["p"] * u, "sum": lambda u, p: u @ p["p"], "power": lambda u, p: u ** p["p"]}
    for name, law in laws.items():
        assert analyze([Equality(name, law)], (3, 5), params).nnz == 15, name


def test_case_table_has_no_double_names() -> None:
    assert len(CASES) == sum(1 for _ in cases())
    assert all(isinstance(case, Case) for case in CASES.values())
