"""The contract of Projector and Projection, run for every shape of field and law in CASES."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields

import pytest
import torch
from torch import Tensor

import snapfm
from snapfm import Equality, Projection, Projector, Status
from snapfm.errors import ProjectionFailed

EPS = torch.finfo(torch.float64).eps
BATCH = 7  # odd, and no multiple of any vector width


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@dataclass(frozen=True)
class Case:
    name: str
    shape: tuple[int, ...]
    laws: tuple[Equality, ...]
    params: dict[str, tuple[int, ...]]  # shape of each param, without its batch axis

    def draw(self, count: int, seed: int = 100) -> dict[str, Tensor]:
        return {name: randn(count, *shape, seed=seed + i) for i, (name, shape) in enumerate(self.params.items())}


STENCIL = randn(4, 15, seed=1)  # a full matrix, as a law that measures a field with four sensors
CASES = [
    Case(
        "1d+t",
        (6, 5),
        (
            Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
            Equality("mass", lambda u, p: u[:-1, 1:].sum(0) - p["u0"][:-1].sum()),
        ),
        {"u0": (6,)},
    ),
    Case(
        "2d+t",
        (3, 5, 4),
        (
            Equality("initial", lambda u, p: u[..., 0] - p["w0"]),
            Equality("total", lambda u, p: u.sum((0, 1))[1:] - p["w0"].sum()),
        ),
        {"w0": (3, 5)},
    ),
    Case(
        "3d, a law that returns a scalar",
        (3, 4, 5),
        (Equality("mean", lambda u, p: u.mean() - p["mean"]),),
        {"mean": ()},
    ),
    Case(
        "channels, a law that returns a matrix",
        (2, 3, 5),
        (
            Equality("divergence", lambda u, p: u[0, 1:, :-1] - u[0, :-1, :-1] + u[1, :-1, 1:] - u[1, :-1, :-1]),
            Equality("sum", lambda u, p: u.sum((1, 2)) - p["flow"]),
        ),
        {"flow": (2,)},
    ),
    Case(
        "sensors, a matrix product",
        (3, 5),
        (Equality("sensors", lambda u, p: STENCIL @ u.flatten() - p["seen"]),),
        {"seen": (4,)},
    ),
    Case(
        "redundant rows",
        (3, 5),
        (
            Equality("columns", lambda u, p: u.sum(0) - p["c"]),
            Equality("twice", lambda u, p: 2 * u.sum(0)[:2] - 2 * p["c"][:2]),
            Equality("all", lambda u, p: u.sum() - p["c"].sum()),
        ),
        {"c": (5,)},
    ),
    Case("one unknown, one row", (1,), (Equality("value", lambda u, p: 3 * u - p["v"]),), {"v": (1,)}),
    Case("no params", (3, 5), (Equality("rows", lambda u, p: u.sum(1) - 1.0),), {}),
]


@dataclass(frozen=True)
class Run:
    case: Case
    project: Projector
    u_hat: Tensor
    params: dict[str, Tensor]
    result: Projection


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def run(request: pytest.FixtureRequest) -> Run:
    case: Case = request.param
    project = Projector(case.laws, shape=case.shape, params=case.draw(1))
    u_hat, params = randn(BATCH, *case.shape, seed=2), case.draw(BATCH)
    return Run(case, project, u_hat, params, project(u_hat, params))


def tensors(result: Projection) -> dict[str, Tensor]:
    """List every tensor of a projection under one name each."""
    out: dict[str, Tensor] = {}
    for field in fields(result):
        value = getattr(result, field.name)
        if isinstance(value, Tensor):
            out[field.name] = value
        elif isinstance(value, dict):
            out |= {f"{field.name}[{name}]": one for name, one in value.items()}
    return out


def assert_same_bits(one: Projection, other: Projection) -> None:
    left, right = tensors(one), tensors(other)
    assert left.keys() == right.keys()
    for name in left:
        a, b = left[name].detach(), right[name].detach()
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        assert a.contiguous().numpy().tobytes() == b.contiguous().numpy().tobytes(), f"{name}: {a} is not {b}"


def assert_same_answer(one: Projection, other: Projection) -> None:
    """Same bits in all but the violation: the law's own function measures it, and torch's sums round by batch size."""
    left, right = tensors(one), tensors(other)
    assert left.keys() == right.keys()
    for name in left:
        a, b = left[name].detach(), right[name].detach()
        if name.startswith(("violation", "by_law")):
            scale = float(one.u.abs().max()) * one.u[0].numel()
            assert torch.allclose(a, b, rtol=0.0, atol=scale * torch.finfo(a.dtype).eps), name
        else:
            assert a.contiguous().numpy().tobytes() == b.contiguous().numpy().tobytes(), f"{name}: {a} is not {b}"


def take(result: Projection, samples: list[int]) -> Projection:
    """Cut some samples out of a projection."""
    cut: dict[str, object] = {}
    for field in fields(result):
        value = getattr(result, field.name)
        if isinstance(value, Tensor):
            value = value[samples]
        elif isinstance(value, dict):
            value = {name: one[samples] for name, one in value.items()}
        cut[field.name] = value
    return Projection(**cut)  # type: ignore[arg-type]


def part(params: dict[str, Tensor], samples: list[int]) -> dict[str, Tensor]:
    return {name: value[samples] for name, value in params.items()}


def sizes_by_hand(laws: tuple[Equality, ...], u: Tensor, params: dict[str, Tensor]) -> dict[str, Tensor]:
    """Measure each law in float64, one sample at a time, from nothing but law.residual."""
    out = {}
    for law in laws:
        worst = [
            law.residual(u[i].double(), {name: value[i].double() for name, value in params.items()}).abs().max()
            for i in range(len(u))
        ]
        out[law.name] = torch.stack(worst)
    return out


def dense(law: Equality, shape: tuple[int, ...], params: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Give A (m, n) and the residual of the zero field (m,) of an affine law for one sample."""
    zero = torch.zeros(shape, dtype=torch.float64)
    jacobian = torch.func.jacrev(lambda u: law.residual(u, params).reshape(-1))(zero)
    return jacobian.reshape(jacobian.shape[0], -1), law.residual(zero, params).reshape(-1)


def rounding(run: Run) -> float:
    """Bound what two orders of the sums behind a residual can differ by: terms × eps × size of the largest sum."""
    worst = 0.0
    for i in range(BATCH):
        for law in run.case.laws:
            matrix, offset = dense(law, run.case.shape, {name: value[i] for name, value in run.params.items()})
            size = torch.maximum(run.u_hat[i].abs(), run.result.u[i].abs()).flatten()
            worst = max(worst, float((matrix.abs() @ size + offset.abs()).max()))
    terms = run.u_hat[0].numel() + max(1, *(value[0].numel() for value in run.params.values()), 1)
    return terms * EPS * worst


# The example of DESIGN.md, its affine part, word for word.


def test_the_example_of_the_contract_works_as_printed():
    u0 = randn(4, 100, seed=3)
    u_hat = randn(4, 100, 100, seed=4, dtype=torch.float32)
    laws = [
        snapfm.Equality("initial", lambda u, p: u[:, 0] - p["u0"]),  # u: ONE field, here (nx, nt)
        snapfm.Equality("mass", lambda u, p: u[:-1, 1:].sum(0) - p["u0"][:-1].sum()),
    ]
    project = snapfm.Projector(laws, shape=(100, 100), params={"u0": u0[:1]}, tolerance=1e-8)
    told = str(project.structure)
    for word in ("10 000 unknowns", "199 rows", "initial", "mass", "non-zeros", "affine", "redundant"):
        assert word in told.replace(" ", " ").replace(",", " "), told
    result = project(u_hat, {"u0": u0})
    assert result.u.shape == (4, 100, 100)
    assert result.u.dtype == torch.float32
    assert result.status.dtype == torch.int8
    assert result.status.tolist() == [snapfm.Status.CONVERGED] * 4
    assert result.converged.dtype == torch.bool
    assert result.converged.tolist() == [True] * 4
    assert set(result.by_law) == set(result.multipliers) == {"initial", "mass"}
    assert bool((result.violation <= 1e-8).all())
    assert result.raise_for_status() is result


# Fields of the result, for every case.


@pytest.mark.parametrize("count", [1, 3])
def test_every_field_has_its_shape_dtype_and_device(run: Run, count: int):
    result = run.project(run.u_hat[:count], part(run.params, list(range(count))))
    assert result.u.shape == (count, *run.case.shape)
    assert result.u.dtype == torch.float64
    expected = {"status": torch.int8, "iterations": torch.int64, "converged": torch.bool}
    for name in ("status", "iterations", "converged", "violation", "stationarity", "distance"):
        value = getattr(result, name)
        assert value.shape == (count,), name
        assert value.dtype == expected.get(name, torch.float64), name
    assert list(result.by_law) == list(result.multipliers) == [law.name for law in run.case.laws]
    for law in run.case.laws:
        rows = law.residual(run.u_hat[0], {name: value[0] for name, value in run.params.items()}).numel()
        assert result.multipliers[law.name].shape == (count, rows)
        assert result.by_law[law.name].shape == (count,)
    assert {value.device for value in tensors(result).values()} == {run.u_hat.device}


def test_every_sample_converges_and_moves(run: Run):
    assert run.result.status.tolist() == [Status.CONVERGED] * BATCH
    assert bool((run.result.distance > 0.01).all())  # noise does not obey by chance: the tests below see real steps


def test_distance_is_that_of_the_fields(run: Run):
    by_hand = (run.result.u - run.u_hat).flatten(1).norm(dim=1)
    assert torch.allclose(run.result.distance, by_hand, rtol=run.u_hat[0].numel() * EPS, atol=0.0)


def test_violation_is_that_of_the_laws_measured_by_hand(run: Run):
    by_hand = sizes_by_hand(run.case.laws, run.result.u, run.params)
    for name, value in by_hand.items():
        assert torch.allclose(run.result.by_law[name], value, rtol=0.0, atol=rounding(run)), name
        assert bool((value <= run.project.tolerance).all()), name
    worst = torch.stack(list(run.result.by_law.values())).amax(0)
    assert torch.equal(run.result.violation, worst)


def test_check_measures_fields_that_break_their_laws(run: Run):
    judged = run.project.check(run.u_hat, run.params)
    by_hand = sizes_by_hand(run.case.laws, run.u_hat, run.params)
    assert judged.by_law.keys() == by_hand.keys()
    for name, value in by_hand.items():
        assert torch.allclose(judged.by_law[name], value, rtol=0.0, atol=rounding(run)), name
    assert torch.equal(judged.violation, torch.stack(list(judged.by_law.values())).amax(0))
    assert bool((judged.violation > 1e-3).all())


def test_stationarity_is_the_dense_certificate_of_nearness(run: Run):
    for i in range(BATCH):
        params = {name: value[i] for name, value in run.params.items()}
        gradient = (run.result.u[i] - run.u_hat[i]).flatten()
        for law in run.case.laws:
            matrix, _ = dense(law, run.case.shape, params)
            gradient = gradient + matrix.T @ run.result.multipliers[law.name][i]
        by_hand = float(gradient.abs().max())
        assert by_hand <= rounding(run)  # so the answer is the nearest lawful field
        assert float(run.result.stationarity[i]) == pytest.approx(by_hand, rel=0.0, abs=rounding(run))


def test_float32_is_the_float64_answer_rounded(run: Run):
    single = run.u_hat.float()
    result, wide = run.project(single, run.params), run.project(single.double(), run.params)
    assert result.u.dtype == torch.float32
    assert torch.equal(result.u, wide.u.float())
    assert torch.equal(result.violation, wide.violation)
    assert torch.equal(result.stationarity, wide.stationarity)


# A sample's answer never depends on who shares its batch.


def test_calling_twice_gives_the_same_bits(run: Run):
    assert_same_bits(run.project(run.u_hat, run.params), run.result)


def test_a_second_projector_of_the_same_laws_gives_the_same_bits(run: Run):
    again = Projector(run.case.laws, shape=run.case.shape, params=run.case.draw(1, seed=55))
    assert_same_bits(again(run.u_hat, run.params), run.result)


def test_a_permuted_batch_gives_permuted_bits(run: Run):
    order = [3, 0, 6, 2, 5, 1, 4]
    assert_same_bits(run.project(run.u_hat[order], part(run.params, order)), take(run.result, order))


@pytest.mark.parametrize("sample", [0, 3, 6])
def test_a_sample_alone_has_the_bits_it_has_in_a_batch(run: Run, sample: int):
    alone = run.project(run.u_hat[[sample]], part(run.params, [sample]))
    assert_same_answer(alone, take(run.result, [sample]))


def test_a_part_of_the_batch_has_the_bits_of_the_whole(run: Run):
    some = [1, 2, 4, 5]
    assert_same_answer(run.project(run.u_hat[some], part(run.params, some)), take(run.result, some))


def test_a_long_total_has_the_same_bits_alone_and_in_a_batch():
    # 200 × 200 values: from about 32 000 on torch sums a single total on several threads, but each of a batch on one.
    project = Projector([Equality("total", lambda u, p: u.sum() - 1.0)], shape=(200, 200))
    u_hat = randn(3, 200, 200, seed=5)
    assert_same_answer(project(u_hat[[1]]), take(project(u_hat), [1]))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_nonfinite_sample_is_marked_and_leaves_the_others_alone(run: Run, value: float):
    bad, rest = 2, [0, 1, 3, 4, 5, 6]
    u_hat = run.u_hat.clone()
    u_hat[bad].view(-1)[-1] = value
    result = run.project(u_hat, run.params)
    without = run.project(run.u_hat[rest], part(run.params, rest))
    assert Status(int(result.status[bad])) is Status.NONFINITE
    assert_same_bits(take(result, rest), without)
    assert_same_bits(take(result, rest), take(run.result, rest))


def test_a_nonfinite_unknown_that_no_law_reads_is_marked_too():
    project = Projector([Equality("first", lambda u, p: u[0] - 1.0)], shape=(3, 5))
    u_hat = randn(2, 3, 5)
    u_hat[0, 2, 4] = float("nan")
    assert project(u_hat).status.tolist() == [Status.NONFINITE, Status.CONVERGED]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nonfinite_params_mark_their_sample_only(value: float):
    case = CASES[0]
    project = Projector(case.laws, shape=case.shape, params=case.draw(1))
    u_hat, params = randn(3, *case.shape), case.draw(3)
    clean = project(u_hat, params)
    params["u0"][1, 0] = value
    result = project(u_hat, params)
    assert result.status.tolist() == [Status.CONVERGED, Status.NONFINITE, Status.CONVERGED]
    assert_same_bits(take(result, [0, 2]), take(clean, [0, 2]))


def test_shared_params_equal_repeated_ones(run: Run):
    shared = part(run.params, [0])
    repeated = {name: value.repeat(BATCH, *[1] * (value.dim() - 1)) for name, value in shared.items()}
    assert_same_bits(run.project(run.u_hat, shared), run.project(run.u_hat, repeated))


# Memory: the caller's tensors stay the caller's.


def test_inputs_are_neither_changed_nor_handed_back(run: Run):
    u_hat, params = run.u_hat.clone(), {name: value.clone() for name, value in run.params.items()}
    result = run.project(u_hat, params)
    result.u.fill_(99.0)
    assert torch.equal(u_hat, run.u_hat)
    for name, value in params.items():
        assert torch.equal(value, run.params[name])


def by_torch(value: Tensor, new: Tensor) -> None:
    value.copy_(new)


def by_data(value: Tensor, new: Tensor) -> None:
    value.data.copy_(new)


def by_numpy(value: Tensor, new: Tensor) -> None:
    value.numpy()[:] = new.numpy()


@pytest.mark.parametrize("write", [by_torch, by_data, by_numpy])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("leading", [1, 3])
def test_params_count_by_value_however_they_were_changed(
    write: Callable[[Tensor, Tensor], None], dtype: torch.dtype, leading: int
):
    # The same tensor with other numbers in it is other params; writes through .data and numpy leave no trace in torch.
    case = CASES[0]
    project = Projector(case.laws, shape=case.shape, params=case.draw(1))
    u_hat, params = randn(3, *case.shape), {"u0": randn(leading, 6, seed=200, dtype=dtype)}
    for seed in (201, 202):
        project(u_hat, params)
        new = randn(leading, 6, seed=seed, dtype=dtype)
        write(params["u0"], new)
        result = project(u_hat, params)
        assert result.converged.all()
        assert torch.allclose(result.u[:, :, 0], new.double().expand(3, 6), rtol=0.0, atol=project.tolerance)
        assert torch.allclose(result.u, project(u_hat, {"u0": new}).u, rtol=0.0, atol=project.tolerance)


def test_a_shorter_batch_with_the_same_shared_params_is_a_shorter_batch():
    case = CASES[0]
    project = Projector(case.laws, shape=case.shape, params=case.draw(1))
    u_hat, shared = randn(5, *case.shape), case.draw(1)
    whole = project(u_hat, shared)
    assert_same_bits(project(u_hat[:2], shared), take(whole, [0, 1]))
    assert_same_bits(project(u_hat, shared), whole)


def test_strided_and_broadcast_inputs_count_by_value(run: Run):
    axes = list(range(run.u_hat.dim()))[::-1]
    strided = run.u_hat.permute(axes).contiguous().permute(axes)
    assert_same_bits(run.project(strided, run.params), run.result)
    spread = run.u_hat[:1].expand(3, *run.case.shape)
    same = part(run.params, [0, 0, 0])
    assert_same_bits(run.project(spread, same), run.project(spread.contiguous(), same))


def test_no_laws_leave_the_field_as_it_is():
    u_hat = randn(2, 3, 5)
    result = Projector([], shape=(3, 5))(u_hat)
    assert torch.equal(result.u, u_hat)
    assert result.u.data_ptr() != u_hat.data_ptr()
    assert result.converged.tolist() == [True, True]
    assert result.violation.tolist() == result.distance.tolist() == [0.0, 0.0]


def test_a_scalar_field_is_a_field():
    result = Projector([Equality("value", lambda u, p: 2 * u - 4)], shape=())(torch.zeros(3, dtype=torch.float64))
    assert result.u.tolist() == [2.0, 2.0, 2.0]


def test_whole_number_params_are_read_as_they_are():
    project = Projector([Equality("first", lambda u, p: u[0] - p["k"])], shape=(3,), params={"k": torch.tensor([1])})
    result = project(torch.zeros(2, 3), {"k": torch.tensor([2, 7])})
    assert result.u.tolist() == [[2.0, 0.0, 0.0], [7.0, 0.0, 0.0]]


@pytest.mark.parametrize("leading", [0, 1])
def test_an_empty_batch_gives_empty_results(run: Run, leading: int):
    params = {name: value[:leading] for name, value in run.params.items()}
    result = run.project(run.u_hat[:0], params)
    assert result.u.shape == (0, *run.case.shape)
    for name, value in tensors(result).items():
        assert len(value) == 0, name
    assert list(result.by_law) == [law.name for law in run.case.laws]
    assert result.raise_for_status() is result


# Laws that contradict each other.


def two_totals() -> list[Equality]:
    return [
        Equality("energy", lambda u, p: u.sum() - p["a"]),
        Equality("mass", lambda u, p: u.sum() - p["b"]),
    ]


def two_initials() -> list[Equality]:
    return [
        Equality("energy", lambda u, p: u[:, 0] - p["a"]),
        Equality("mass", lambda u, p: 2.0 * u[:, 0] - 2.0 * p["b"]),
    ]


def sum_of_parts() -> list[Equality]:
    return [
        Equality("energy", lambda u, p: u.sum(0) - p["a"] / 5),
        Equality("mass", lambda u, p: u.sum() - p["b"]),
    ]


@pytest.mark.parametrize("laws", [two_totals, two_initials, sum_of_parts])
def test_contradicting_params_are_infeasible_for_exactly_their_samples(laws: Callable[[], list[Equality]]):
    asked = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    also = torch.tensor([1.0, 5.0, 3.0, 0.0], dtype=torch.float64)
    project = Projector(laws(), shape=(3, 5), params={"a": asked[:1], "b": also[:1]})
    u_hat = randn(4, 3, 5, seed=6)
    result = project(u_hat, {"a": asked, "b": also})
    assert result.status.tolist() == [Status.CONVERGED, Status.INFEASIBLE, Status.CONVERGED, Status.INFEASIBLE]
    consistent = project(u_hat, {"a": asked, "b": asked})
    assert_same_bits(take(result, [0, 2]), take(consistent, [0, 2]))


def test_the_violation_of_a_contradiction_is_the_gap_between_the_laws():
    a, b = torch.tensor([2.0, 4.0], dtype=torch.float64), torch.tensor([5.0, 0.0], dtype=torch.float64)
    project = Projector(two_totals(), shape=(3, 5), params={"a": a[:1], "b": b[:1]})
    result = project(randn(2, 3, 5), {"a": a, "b": b})
    assert torch.allclose(result.violation, (a - b).abs(), rtol=15 * EPS, atol=0.0)


def test_raise_for_status_names_sample_law_size_and_advice():
    a, b = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 5.0, 3.0])
    project = Projector(two_totals(), shape=(3, 5), params={"a": a[:1], "b": b[:1]}, tolerance=1e-9)
    with pytest.raises(ProjectionFailed) as caught:
        project(randn(3, 3, 5), {"a": a, "b": b}).raise_for_status()
    said = str(caught.value)
    assert "expected 3 converged samples; 1 failed" in said
    # Either of the two may be the one that is kept; the other is off by the whole gap.
    assert re.search(r"sample 1: INFEASIBLE, law '(energy|mass)' is off by 3\.0e\+00 \(tolerance 1e-09\)", said)
    assert Status.INFEASIBLE.advice in said
    assert "on_failure='keep'" in said
    assert "sample 0" not in said
    assert "sample 2" not in said
    assert isinstance(caught.value, RuntimeError)


def test_raise_for_status_names_the_input_of_a_nonfinite_sample():
    project = Projector([Equality("total", lambda u, p: u.sum())], shape=(3, 5))
    u_hat = randn(2, 3, 5)
    u_hat[1, 0, 0] = float("nan")
    with pytest.raises(ProjectionFailed, match="sample 1: NONFINITE, law 'total'") as caught:
        project(u_hat).raise_for_status()
    assert Status.NONFINITE.advice in str(caught.value)


def test_raise_for_status_counts_what_it_does_not_list():
    project = Projector([Equality("total", lambda u, p: u.sum())], shape=(3, 5))
    with pytest.raises(ProjectionFailed) as caught:
        project(torch.full((11, 3, 5), float("nan"))).raise_for_status()
    said = str(caught.value)
    assert "11 failed" in said
    assert said.count("NONFINITE") == 8
    assert "and 3 more" in said


def test_a_tolerance_below_rounding_stalls_instead_of_lying():
    # Rows of size 1e9 round near 1e-7; nothing can meet 1e-12, so whoever misses it must not be called converged.
    project = Projector([Equality("big", lambda u, p: 1e9 * u.sum(0) - 1e9 / 3)], shape=(3, 5), tolerance=1e-12)
    result = project(randn(BATCH, 3, 5, seed=7))
    missed = result.violation > 1e-12
    assert bool(missed.any())
    assert result.status[missed].unique().tolist() == [Status.STALLED]
    with pytest.raises(ProjectionFailed, match=r"STALLED.*larger tolerance"):
        result.raise_for_status()


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_rounding_is_never_called_a_contradiction(scale: float):
    # The second law adds the first one's rows up: no params can contradict, so a miss is rounding, not INFEASIBLE.
    laws = [
        Equality("columns", lambda u, p: u.sum(0) - p["c"]),
        Equality("all", lambda u, p: scale * (u.sum() - p["c"].sum())),
    ]
    tolerance = 8 * EPS * scale  # sums of 40 values of order one mostly round to less, the sum of all 200 to more
    project = Projector(laws, shape=(40, 5), params={"c": randn(1, 5)}, tolerance=tolerance)
    result = project(randn(63, 40, 5, seed=8), {"c": randn(63, 5, seed=9)})
    assert bool((result.violation > tolerance).any())
    assert Status.INFEASIBLE not in result.status.tolist()
