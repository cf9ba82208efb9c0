"""Laws that cannot be used as written are refused with what was expected, what came and what to do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from snapfm.compile import compile_laws
from snapfm.errors import LawError, ShapeError
from snapfm.laws import Bounds, Equality
from snapfm.project import Projector

PARAMS = {"p": torch.ones(1, 3, dtype=torch.float64), "mask": torch.tensor([[True, False, True]])}
CONSTANT = torch.ones(3, 5, dtype=torch.float64)


def refusal(law: Callable[..., object], name: str = "odd") -> str:
    with pytest.raises(LawError) as caught:
        compile_laws([Equality(name, law)], (3, 5), PARAMS)  # type: ignore[arg-type]
    return str(caught.value)


READS_A_VALUE = (
    "law 'odd' expects the same operators for every field; it reads a value out of a tensor (if, float(), .item(), "
    ".tolist()). Use torch.where for a choice, and keep params as tensors."
)


@pytest.mark.parametrize(
    "law",
    [
        lambda u, p: u if u.sum() > 0 else -u,
        lambda u, p: u if p["p"][0] > 0 else -u,
        lambda u, p: float(p["p"][0]) * u,
        lambda u, p: u.max().item() * u,
        lambda u, p: u[: int(u[0, 0])],
    ],
    ids=["if-field", "if-param", "float-param", "item", "int"],
)
def test_control_flow_on_values(law: Callable[..., object]) -> None:
    assert refusal(law) == READS_A_VALUE


LEAVES_TORCH = (
    "law 'odd' expects a pure torch function of (u, params); its traced graph gives other values than the function itself. "
    "It leaves torch (numpy, u.data), draws random numbers or keeps state: rewrite it in torch."
)


def _counting() -> Callable[..., object]:
    calls = []

    def law(u: Tensor, p: object) -> Tensor:
        calls.append(None)
        return u * len(calls)

    return law


@pytest.mark.parametrize(
    "law",
    [
        lambda u, p: u * torch.from_numpy(np.sin(u.detach().numpy())),
        lambda u, p: u * u[0].tolist()[0],
        lambda u, p: u * torch.rand(3, 5),
        _counting(),
    ],
    ids=["numpy", "tolist", "random", "state"],
)
def test_leaving_torch(law: Callable[..., object]) -> None:
    assert refusal(law) == LEAVES_TORCH


VARYING_COUNT = (
    "law 'odd': u[mask], nonzero and unique expect a mask that is the same at every call; this one is computed from the "
    "field or the params, so the number of rows would change. Use torch.where(mask, u, 0.0), which keeps the shape."
)


@pytest.mark.parametrize(
    "law",
    [
        lambda u, p: u[u > 0.5],
        lambda u, p: u[p["p"] > 0.5],
        lambda u, p: u.masked_select(u > 0.5),
        lambda u, p: u[torch.where(u > 0.5)],
        lambda u, p: torch.unique(u),
        lambda u, p: torch.unique(u, dim=0),
        lambda u, p: torch.unique_consecutive(u),
        lambda u, p: torch.bincount((9 * u).long().flatten()).double(),
        lambda u, p: u[p["mask"]],
        lambda u, p: u[torch.where(p["p"] > 0.5)],
        lambda u, p: u[p["p"].nonzero()[:, 0]],
        lambda u, p: u[:, 0].sum() - torch.unique(p["p"]),
        lambda u, p: u[:, 0].sum() - p["p"].masked_select(p["mask"]),
        lambda u, p: u[:, 0].sum() - torch.bincount(p["p"].long()),
        lambda u, p: u[:, 0].repeat_interleave(p["p"].long()),
        lambda u, p: u[p["mask"]].sum(),  # torch cannot batch it, whatever comes after
    ],
    ids=[
        "mask", "param-mask", "masked-select", "nonzero", "unique", "unique-rows", "unique-consecutive", "bincount",
        "mask-in-params", "where-params", "nonzero-params", "unique-params", "masked-select-params", "bincount-params",
        "repeats-in-params", "sum-of-mask",
    ],
)  # fmt: skip
def test_result_of_varying_length(law: Callable[..., object]) -> None:
    assert refusal(law) == VARYING_COUNT


@pytest.mark.parametrize(
    ("law", "rows"),
    [
        (lambda u, p: u[torch.tensor([True, False, True])], 10),
        (lambda u, p: u[torch.where(CONSTANT > 0.5)], 15),
        (lambda u, p: u.masked_select(torch.ones_like(u) > 0.5), 15),
        (lambda u, p: u[torch.unique(torch.tensor([2, 0, 2]))] * p["p"][0], 10),
        (lambda u, p: torch.where(p["mask"][:, None], u, 0.0), 15),
    ],
    ids=["mask", "nonzero", "shape", "unique", "where"],
)
def test_a_count_that_never_changes_is_taken(law: Callable[..., Tensor], rows: int) -> None:
    assert compile_laws([Equality("even", law)], (3, 5), PARAMS).rows == rows


@pytest.mark.parametrize(("value", "kind"), [([1], "list"), (None, "NoneType"), (1.0, "float"), ((1, 2), "tuple")])
def test_result_that_is_no_tensor(value: object, kind: str) -> None:
    assert refusal(lambda u, p: value) == (
        f"law 'odd' expects a tensor from its function; got {kind}. Return the residual as one tensor (torch.stack or "
        "torch.cat join several)."
    )


@pytest.mark.parametrize(
    ("law", "dtype"),
    [
        (lambda u, p: torch.fft.fft(u), "torch.complex128"),
        (lambda u, p: u.long(), "torch.int64"),
        (lambda u, p: u > 0, "torch.bool"),
    ],
)
def test_result_that_is_not_real(law: Callable[..., object], dtype: str) -> None:
    assert refusal(law) == (
        f"law 'odd' expects a real floating-point residual; got {dtype}. Return numbers that vanish when the law holds; "
        "split complex ones with torch.view_as_real."
    )


def test_missing_param() -> None:
    assert refusal(lambda u, p: u - p["u0"], "initial") == (
        "law 'initial' reads params['u0']; given are ['mask', 'p']. Pass it in Projector(..., params={...})."
    )


def test_law_that_raises() -> None:
    assert refusal(lambda u, p: u - torch.ones(4)) == (
        "law 'odd' expects to run on one float64 field of shape (3, 5); it raised RuntimeError: The size of tensor a (5) must "
        "match the size of tensor b (4) at non-singleton dimension 1. Try it by hand: law.residual(torch.zeros((3, 5), "
        "dtype=torch.float64), params)."
    )


def _writes_field(u: Tensor, p: object) -> Tensor:
    u[0] = 0.0
    return u


def _writes_param(u: Tensor, p: dict[str, Tensor]) -> Tensor:
    return u[:, 0] - p["p"].add_(1.0)


def _writes_constant(u: Tensor, p: object) -> Tensor:
    CONSTANT[0] = u[0]
    return CONSTANT - u


@pytest.mark.parametrize("law", [_writes_field, _writes_param])
def test_law_that_writes_into_its_inputs(law: Callable[..., object]) -> None:
    assert refusal(law) == (
        "law 'odd' expects to leave u and params as they are; it writes into one of them. Write into a copy: u = u.clone()."
    )
    assert torch.equal(PARAMS["p"], torch.ones(1, 3, dtype=torch.float64))


def test_law_that_writes_into_its_closure() -> None:
    assert refusal(_writes_constant) == (
        "law 'odd' expects to leave the tensors it closes over as they are; it writes into one of them. Write into a copy: "
        "constant.clone()."
    )


def test_operator_whose_derivative_torch_gets_wrong() -> None:
    index = torch.zeros(3, 5, dtype=torch.int64)
    assert refusal(lambda u, p: u.scatter_reduce(1, index, u, "prod")) == (
        "law 'odd': scatter_reduce(reduce=...) expects 'sum', 'mean', 'amax' or 'amin'; got 'prod', whose derivative torch "
        "gets wrong for batches. Gather the factors and use torch.prod."
    )


def test_thing_that_is_no_law() -> None:
    with pytest.raises(LawError) as caught:
        compile_laws([lambda u, p: u], (3, 5))  # type: ignore[list-item]
    assert str(caught.value) == (
        "laws expects Equality, Inequality, Bounds and Oracle; got function. Wrap a function: snapfm.Equality('name', function)."
    )


def test_bounds_have_no_rows() -> None:
    assert compile_laws([Bounds(lower=0.0)], (3, 5)).rows == 0


@pytest.mark.parametrize("pattern", [([0], [15]), ([12], [0])])
def test_pattern_outside_the_matrix(pattern: tuple[list[int], list[int]]) -> None:
    with pytest.raises(ShapeError) as caught:
        compile_laws([Equality("odd", lambda u, p: u.diff(dim=1), pattern)], (3, 5))
    (row,), (column,) = pattern
    assert str(caught.value) == (
        f"pattern=(rows, columns) expects two equally long lists of indices within (12, 15); got 1 from {row} to {row} and 1 "
        f"from {column} to {column}. Index the flattened residual and the flattened field, from 0."
    )


# A law that nothing in the field can move.

UNMOVED = (
    "law 'odd' expects a residual that changes with u; got one whose slopes all vanish, so that no move of the field could "
    "make it hold. Look for .detach() or .data in it, for steps without a slope (round, sign, u > 0), and for a residual of "
    "params or constants alone. A pattern=… without entries says the same."
)


@pytest.mark.parametrize(
    "law",
    [
        lambda u, p: u.detach().sum(1) - p["p"],
        lambda u, p: (u.detach() ** 2).sum(1) - p["p"],
        lambda u, p: torch.sin(u.data).sum(1) - p["p"],
        lambda u, p: u.round().sum(1) - p["p"],
        lambda u, p: u.detach() + torch.sign(u.detach()),
        lambda u, p: p["p"] - 1.0,
        lambda u, p: torch.ones(3, dtype=torch.float64),
        lambda u, p: torch.zeros_like(u),
        lambda u, p: 0.0 * u,
        lambda u, p: u**0 - 1.0,
        lambda u, p: u.argmax(1).double() - p["p"],
        lambda u, p: u.sort(1).values.round() - 1.0,
        lambda u, p: 0.0 * u.sort(1).values,
        lambda u, p: (u.sort(1).values > 0.5).float(),
    ],
    ids=[
        "detach",
        "detach-curved",
        "data",
        "round",
        "detach-twice",
        "params",
        "constant",
        "shape",
        "zeros",
        "power-0",
        "argmax",
        "sorted-round",
        "sorted-zeros",
        "sorted-steps",
    ],
)
def test_law_that_does_not_depend_on_the_field(law: Callable[..., object]) -> None:
    assert refusal(law) == UNMOVED


@pytest.mark.parametrize(
    ("law", "pattern"),
    [
        (lambda u, p: p["p"] - 1.0, ([0, 1, 2], [0, 5, 10])),
        (lambda u, p: u.detach()[:, 0] - p["p"], ([0, 1, 2], [0, 5, 10])),
        (lambda u, p: u[:, 0] - p["p"], ([], [])),
    ],
    ids=["params", "detach", "pattern-without-entries"],
)
def test_a_pattern_by_hand_does_not_hide_it(law: Callable[..., Tensor], pattern: tuple[list[int], list[int]]) -> None:
    with pytest.raises(LawError) as caught:
        compile_laws([Equality("odd", law, pattern)], (3, 5), PARAMS)
    assert str(caught.value) == UNMOVED


def test_the_law_is_refused_when_the_projector_is_built() -> None:
    laws = [Equality("initial", lambda u, p: u[:, 0]), Equality("mass", lambda u, p: u.detach().sum(0))]
    with pytest.raises(LawError, match=r"^law 'mass' expects a residual that changes with u"):
        Projector(laws, (3, 5))


@pytest.mark.parametrize(
    ("law", "nnz"),
    [
        (lambda u, p: u.detach() * u, 15),  # half of it carries a slope
        (lambda u, p: p["p"][:, None] * u, 15),  # the example may hold zeros
        (lambda u, p: torch.relu(u - 50.0), 15),  # flat at the example
        (lambda u, p: u[:0], 0),  # no rows: nothing is asked
    ],
    ids=["half-detached", "params-of-zero", "flat-here", "no-rows"],
)
def test_laws_that_look_like_it_are_taken(law: Callable[..., Tensor], nnz: int) -> None:
    nothing = {"p": torch.zeros(1, 3, dtype=torch.float64)}
    assert compile_laws([Equality("odd", law)], (3, 5), nothing).nnz == nnz


def test_a_law_under_no_grad_is_differentiated_all_the_same() -> None:
    def law(u: Tensor, p: object) -> Tensor:
        with torch.no_grad():
            return u.sum(1)

    structure = compile_laws([Equality("quiet", law)], (3, 5))
    assert structure.jacobian(torch.zeros(1, 3, 5, dtype=torch.float64), {}).tolist() == [[1.0] * 15]


FLOAT32 = torch.ones(2, 3)
NETWORK = torch.nn.Linear(3, 2)


@pytest.mark.parametrize(
    "law",
    [
        lambda u, p: FLOAT32 @ u,
        lambda u, p: NETWORK(u.T),
        lambda u, p: torch.nn.Conv2d(1, 1, 3)(u[None, None]),
        lambda u, p: torch.nn.BatchNorm1d(3)(u.T),
        lambda u, p: torch.zeros(2, 5).index_add(0, torch.tensor([0, 1, 0]), u),
    ],
)
def test_a_law_of_two_dtypes_is_told_that_fields_are_float64(law: Callable[..., object]) -> None:
    told = refusal(law)
    assert told.startswith("law 'odd' expects to run on one float64 field of shape (3, 5); it raised RuntimeError: ")
    assert "tensor.to(u.dtype)" in told
    assert "network.double()" in told


def test_the_cures_for_two_dtypes_work() -> None:
    for law in (
        lambda u, p: FLOAT32.to(u.dtype) @ u,
        lambda u, p: NETWORK(u.T.float()),
        lambda u, p: torch.zeros(2, 5, dtype=u.dtype).index_add(0, torch.tensor([0, 1, 0]), u),
    ):
        assert compile_laws([Equality("even", law)], (3, 5), PARAMS).rows == 10


def test_autograd_inside_a_law_is_told_the_function_that_works() -> None:
    def slope(u: Tensor, p: object) -> Tensor:
        v = u.detach().requires_grad_()
        return torch.autograd.grad(v.square().sum(), v)[0]

    assert "torch.func.grad" in refusal(slope)
    law = Equality("even", lambda u, p: torch.func.grad(lambda v: v.square().sum())(u))
    assert compile_laws([law], (3, 5), PARAMS).rows == 15


def test_a_compiled_function_is_a_law_as_well() -> None:
    law = Equality("even", torch.compile(lambda u, p: u[0] ** 2 - 1.0))
    assert compile_laws([law], (3, 5), PARAMS).nnz == 5
