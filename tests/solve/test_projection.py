"""Which samples a result holds: select, scatter, where, to, concat, over all fields, so that none can be forgotten."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import snapfm
from snapfm.errors import ParamsError, Status
from snapfm.project import Moved
from snapfm.solve.base import Warm

SHAPE, COUNT, LAST = (3, 5), 7, 2  # sample 2 is NaN
LAWS = [
    snapfm.Equality("energy", lambda u, p: (u**2).sum(0) - p["energy"]),
    snapfm.Inequality("falls", lambda u, p: u[0, 1:] - u[0, :-1]),
    snapfm.Bounds(lower=-2.0, upper=2.0),
]


def given(count: int, seed: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    u_hat = torch.randn(count, *SHAPE, generator=generator, dtype=torch.float64)
    u_hat[LAST : LAST + 1, 0, 0] = torch.nan
    return u_hat, {"energy": torch.linspace(1.0, 2.0, 5 * count, dtype=torch.float64).view(count, 5)}


@pytest.fixture(scope="module")
def project() -> snapfm.Projector:
    return snapfm.Projector(LAWS, SHAPE, given(1)[1])


@pytest.fixture(params=["projection", "float32", "moved"])
def make(request: pytest.FixtureRequest, project: snapfm.Projector) -> Any:
    """Return a function from a number of samples, and of a seed, to a result of either kind."""

    def result(count: int, seed: int = 0) -> Any:
        u_hat, params = given(count, seed)
        if request.param == "moved":
            return project.move(u_hat, params)
        return project(u_hat.float() if request.param == "float32" else u_hat, params)

    return result


def flat(result: Any) -> dict[str, Any]:
    """List every field of a result by a name of its own; one of an unknown kind fails here."""
    found: dict[str, Any] = {}
    for one in fields(result):
        value = getattr(result, one.name)
        if isinstance(value, dict):
            found |= {f"{one.name} {law}": rows for law, rows in value.items()}
        elif isinstance(value, Warm):
            found |= {
                f"warm {name}": torch.as_tensor(getattr(value, name)) for name in ("place", "multipliers", "usable")
            }
        else:
            assert isinstance(value, Tensor | float | None), f"how are samples of {one.name} chosen?"
            found[one.name] = value
    return found


def assert_bits(one: Any, expected: dict[str, Any]) -> None:
    mine = flat(one)
    assert mine.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, Tensor):
            assert (mine[name].dtype, mine[name].shape) == (value.dtype, value.shape), name
            assert mine[name].detach().numpy().tobytes() == value.detach().numpy().tobytes(), name
        else:
            assert mine[name] == value, name


def chosen(result: Any, index: Any) -> dict[str, Any]:
    """Return what a result of some samples has to hold."""
    return {name: value[index] if isinstance(value, Tensor) else value for name, value in flat(result).items()}


def without_warm(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not name.startswith("warm")} | {"warm": None}


def test_a_result_of_the_battery_has_everything(make):
    result = make(COUNT)
    assert isinstance(result.warm, Warm)
    assert len(fields(result)) in (2, 13)  # a new field: what is missing in it, and is it one per sample?
    if not isinstance(result, Moved):
        assert result.status.tolist() == [Status.NONFINITE if i == LAST else Status.CONVERGED for i in range(COUNT)]
        assert set(result.by_law) == {"energy", "falls", "bounds"}


@pytest.mark.parametrize(
    "samples",
    [[4, 0, 2], [], [1, 1], 5, -1, slice(1, 4), slice(0), np.array([3, 2]), torch.tensor([6]), torch.arange(COUNT) > 4],
    ids=str,
)
def test_selected_samples_keep_every_entry(make, samples):
    result = make(COUNT)
    index = torch.arange(COUNT)[[samples] if isinstance(samples, int) else samples]
    assert_bits(result.select(samples), chosen(result, index))


def test_a_selected_batch_is_a_warm_start(project):
    u_hat, params = given(COUNT)
    some = [0, 4, 5]
    warm = project(u_hat, params).select(some)
    own = {name: value[some] for name, value in params.items()}
    assert project(u_hat[some], own).iterations.min() > 0
    assert project(u_hat[some], own, warm=warm).iterations.max() <= 1


@pytest.mark.parametrize("samples", [[8, 1, 3], torch.arange(6) % 2 == 1, slice(2, 5)], ids=str)
def test_scattered_samples_lie_among_missing_ones(make, samples):
    count = len(samples) if isinstance(samples, Tensor) else 9
    index = torch.arange(count)[samples]
    small, before = make(3), flat(make(3))
    result = small.scatter(samples, count)
    others = torch.ones(count, dtype=torch.bool)
    others[index] = False
    assert_bits(result.select(index), without_warm(before))
    for name, value in flat(result.select(others)).items():
        if name == "status":
            assert (value == Status.NONFINITE).all()
        elif name == "second_order":
            assert (value == -1).all()
        elif isinstance(value, Tensor):
            assert (value.isnan() if value.is_floating_point() else value == 0).all(), name
    if not isinstance(result, Moved):
        assert not result.converged[others].any()


def test_where_takes_each_sample_from_one_of_two(make):
    one, two = make(COUNT), make(COUNT, seed=1)
    mask = torch.arange(COUNT) % 3 == 0
    result = one.where(mask, two)
    assert_bits(result.select(mask), without_warm(chosen(one, mask)))
    assert_bits(result.select(~mask), without_warm(chosen(two, ~mask)))
    assert result.u.shape == (COUNT, *SHAPE)


def test_a_joined_batch_is_that_of_one_call(make):
    result = make(COUNT)
    for cuts in ((0, COUNT), (0, 3, COUNT), (0, 0, 1, 2, 3, COUNT, COUNT)):
        parts = [result.select(slice(*cut)) for cut in pairwise(cuts)]
        assert_bits(type(result).concat(parts), flat(result))


def test_a_warm_start_is_joined_if_all_parts_have_one_of_one_method(project, make):
    result = make(COUNT)
    assert result.concat([result, pickle.loads(pickle.dumps(result))]).warm is None
    assert result.concat([pickle.loads(pickle.dumps(result))] * 2).warm is None
    another = snapfm.Projector(LAWS, SHAPE, given(1)[1]).move(*given(COUNT))
    assert Moved.concat([project.move(*given(COUNT)), another]).warm is None


def test_an_empty_batch_goes_through_all_methods(make):
    empty, result = make(0), make(COUNT)
    assert_bits(empty.select([]), flat(empty))
    assert_bits(empty.concat([empty, result, empty]), flat(result))
    assert_bits(empty.where(torch.zeros(0, dtype=torch.bool), empty), without_warm(flat(empty)))
    assert_bits(empty.scatter([], 0), without_warm(flat(empty)))
    assert bool(empty.scatter([], 2).u.isnan().all())


def test_a_dtype_is_that_of_the_fields_alone(make):
    result = make(COUNT)
    assert_bits(result.to("cpu"), flat(result))
    assert_bits(result.to("cpu", torch.float32), {**flat(result), "u": result.u.float()})
    assert result.to("cpu", torch.float32).warm is result.warm
    there = result.to("meta")
    assert all(
        value.device.type == "meta" for name, value in flat(there).items() if name[:4] != "warm" and name != "tolerance"
    )


def test_gradients_flow_through_all_methods(project):
    u_hat, params = given(COUNT)
    keep = torch.arange(COUNT) != LAST
    weights = torch.linspace(-1.0, 1.0, COUNT * 15, dtype=torch.float64).view(COUNT, *SHAPE)

    def gradient(change: Any) -> Tensor:
        start = u_hat.clone().requires_grad_()
        (change(project(start, params)).u[keep] * weights[keep]).sum().backward()
        assert start.grad is not None
        return start.grad

    plain = gradient(lambda result: result)
    assert plain.abs().max() > 0.1
    detached = project(u_hat, params)
    for change in (
        lambda result: result.concat([result.select(slice(4)), result.select([4, 5, 6])]),
        lambda result: result.select(keep).scatter(keep, COUNT),
        lambda result: result.where(keep, detached),
        lambda result: result.to("cpu"),
    ):
        assert torch.equal(gradient(change), plain)


def test_laws_nobody_asked_for_have_no_entries():
    bare = snapfm.Projector([], SHAPE)(given(COUNT)[0])
    assert_bits(bare.select([0, 2]), chosen(bare, [0, 2]))
    assert bare.concat([bare, bare]).by_law == {}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: r.select([0.5]), "expects numbers .k,., a mask .b,. or a slice; got torch.float32 of shape .1,.. Write"),
        (lambda r: r.select([[1, 2]]), "got torch.int64 of shape .1, 2."),
        (lambda r: r.scatter(torch.ones(2), 4), "got torch.float32 of shape .2,."),
        (lambda r: r.concat([]), "concat.parts. expects at least one result; got none. Join"),
        (lambda r: r.concat([r, replace(r, tolerance=1e-3)]), "same laws, shapes and tolerance; got tolerance 0.001 beside"),
        (lambda r: r.concat([r, replace(r, by_law={})]), "got none beside bounds of by_law .., energy of by_law .., falls"),
        (lambda r: r.where(torch.ones(7) > 0, r.select([0])), "where.mask, other. expects .*u .1, 3, 5.* beside .*u .7, 3"),
    ],
    ids=["fraction", "matrix", "scatter", "nothing", "tolerance", "laws", "batch"],
)  # fmt: skip
def test_mistakes_are_refused_by_name(project, call, message):
    with pytest.raises(ParamsError, match=message):
        call(project(*given(COUNT)))
