"""The door of the projector: every mistake has its exception, its builtin parent, and a message in three parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from snapfm import Bounds, Equality, Inequality, Projector
from snapfm.errors import DtypeError, LawError, ParamsError, ShapeError, SnapfmError

EXAMPLE = {"u0": torch.zeros(1, 3, dtype=torch.float64)}


def initial(name: str = "initial") -> Equality:
    return Equality(name, lambda u, p: u[:, 0] - p["u0"])


@pytest.fixture(scope="module")
def project() -> Projector:
    return Projector([initial()], shape=(3, 5), params=EXAMPLE)


@dataclass(frozen=True)
class Mistake:
    """What the caller does, and the three parts of what the caller is told."""

    name: str
    act: Callable[[Projector], Any]
    error: type[SnapfmError]
    builtin: type[Exception]
    expected: str
    came: str
    cure: str


def on_call(*arguments: Any) -> Callable[[Projector], Any]:
    return lambda project: project(*arguments)


def on_build(**arguments: Any) -> Callable[[Projector], Any]:
    settings = {"laws": [initial()], "shape": (3, 5), "params": EXAMPLE} | arguments
    return lambda _: Projector(**settings)


def on_law(make: Callable[[], Any]) -> Callable[[Projector], Any]:
    return lambda _: make()


U0 = {"u0": torch.zeros(2, 3)}
FIELD = torch.zeros(2, 3, 5)

FIELDS = [
    Mistake(
        "flattened fields", on_call(torch.zeros(2, 15), U0), ShapeError, ValueError,
        "project(u_hat=…) expects (b, 3, 5)", "got (2, 15)", "Reshape with u_hat.view(-1, 3, 5).",
    ),
    Mistake(
        "no batch axis", on_call(torch.zeros(3, 5), U0), ShapeError, ValueError,
        "project(u_hat=…) expects (b, 3, 5)", "got (3, 5)", "Add the batch axis: u_hat[None].",
    ),
    Mistake(
        "fields of another size", on_call(torch.zeros(2, 4, 4), U0), ShapeError, ValueError,
        "project(u_hat=…) expects (b, 3, 5)", "got (2, 4, 4)", "Build the Projector with the shape of these fields.",
    ),
    # A view of these would scramble the axes, so it must not be what the message advises.
    Mistake(
        "axes in another order", on_call(torch.zeros(2, 5, 3), U0), ShapeError, ValueError,
        "project(u_hat=…) expects (b, 3, 5)", "got (2, 5, 3)", "u_hat.permute(0, 2, 1)",
    ),
    Mistake(
        "whole numbers", on_call(torch.zeros(2, 3, 5, dtype=torch.int64), U0), DtypeError, TypeError,
        "project(u_hat=…) expects float32 or float64", "got torch.int64", "u_hat.float() or .double()",
    ),
    Mistake(
        "float16", on_call(torch.zeros(2, 3, 5, dtype=torch.float16), U0), DtypeError, TypeError,
        "project(u_hat=…) expects float32 or float64", "got torch.float16", "u_hat.float() or .double()",
    ),
    Mistake(
        "complex numbers", on_call(torch.zeros(2, 3, 5, dtype=torch.complex64), U0), DtypeError, TypeError,
        "project(u_hat=…) expects float32 or float64", "got torch.complex64",
        "torch.view_as_real(u_hat).movedim(-1, 1), build the Projector with shape=(2, 3, 5)",
    ),
    Mistake(
        "bfloat16", on_call(torch.zeros(2, 3, 5, dtype=torch.bfloat16), U0), DtypeError, TypeError,
        "project(u_hat=…) expects float32 or float64", "got torch.bfloat16", "rounded back, an answer would break its laws",
    ),
    # Of these each may be a field without its batch axis, or a batch for a shape that has one too many.
    Mistake(
        "the batch axis in both or in none", on_call(torch.zeros(3, 5), U0), ShapeError, ValueError,
        "project(u_hat=…) expects (b, 3, 5)", "got (3, 5)",
        "If 3 already is the number of samples, leave the batch axis out of Projector(shape=…): shape=(5,).",
    ),
    Mistake(
        "the batch axis in the shape", on_call(torch.zeros(7, 5), U0), ShapeError, ValueError,
        "project(u_hat=…) expects (b, 3, 5)", "got (7, 5)",
        "If 7 is the number of samples, leave the batch axis out of Projector(shape=…): shape=(5,).",
    ),
    Mistake(
        "samples one after the other", on_call(torch.zeros(6, 5), U0), ShapeError, ValueError,
        "project(u_hat=…) expects (b, 3, 5)", "got (6, 5)",
        "shape=(5,). If samples follow each other along that axis, reshape with u_hat.view(-1, 3, 5).",
    ),
    Mistake(
        "a list", on_call([[0.0]], U0), DtypeError, TypeError,
        "project(u_hat=…) expects a torch tensor", "got list", "torch.as_tensor",
    ),
    Mistake(
        "a numpy array", on_call(FIELD.numpy(), U0), DtypeError, TypeError,
        "project(u_hat=…) expects a torch tensor", "got ndarray", "torch.as_tensor",
    ),
]  # fmt: skip

PARAMS = [
    Mistake(
        "no params", on_call(FIELD), ParamsError, ValueError,
        "expects the names ['u0']", "got [] (missing ['u0'])", "Pass the same names as at construction.",
    ),
    Mistake(
        "a wrong name", on_call(FIELD, {"u_0": U0["u0"]}), ParamsError, ValueError,
        "expects the names ['u0']", "got ['u_0'] (missing ['u0'], unknown ['u_0'])", "Pass the same names",
    ),
    Mistake(
        "a name too many", on_call(FIELD, U0 | {"dt": torch.zeros(1)}), ParamsError, ValueError,
        "expects the names ['u0']", "got ['dt', 'u0'] (unknown ['dt'])", "Pass the same names",
    ),
    Mistake(
        "a wrong shape", on_call(FIELD, {"u0": torch.zeros(2, 4)}), ParamsError, ValueError,
        "params['u0'] expects shape (2 or 1, 3) for 2 samples", "got (2, 4)", "Its leading axis is the batch",
    ),
    Mistake(
        "another batch", on_call(FIELD, {"u0": torch.zeros(3, 3)}), ParamsError, ValueError,
        "params['u0'] expects shape (2 or 1, 3) for 2 samples", "got (3, 3)", "Its leading axis is the batch",
    ),
    Mistake(
        "params without a batch axis", on_call(FIELD, {"u0": torch.zeros(3)}), ParamsError, ValueError,
        "params['u0'] expects shape (2 or 1, 3)", "got (3,)", "Its leading axis is the batch",
    ),
    Mistake(
        "a number", on_call(FIELD, {"u0": 1.0}), ParamsError, ValueError,
        "params['u0'] expects a tensor", "got float", "torch.as_tensor(value)",
    ),
    Mistake(
        "whole numbers for real ones",
        on_call(FIELD, {"u0": torch.zeros(2, 3, dtype=torch.int64)}), ParamsError, ValueError,
        "expects the kind of dtype of its example, torch.float64", "got torch.int64", "value.to(torch.float64)",
    ),
    Mistake(
        "a bare tensor", on_call(FIELD, torch.zeros(2, 3)), ParamsError, ValueError,
        "params=… expects a mapping from names to tensors", "got Tensor", "Write params={'u0': …}",
    ),
    Mistake(
        "a number for a name", on_call(FIELD, {0: torch.zeros(2, 3)}), ParamsError, ValueError,
        "params=… expects a mapping from names to tensors", "got 0 for a name", "Write params={'u0': …}",
    ),
    Mistake(
        "example params that are no tensors", on_build(params={"u0": [0.0]}), ParamsError, ValueError,
        "params['u0'] expects a tensor with a leading batch axis", "got list", "torch.as_tensor(value), and add the batch axis",
    ),
    Mistake(
        "an example without a batch axis", on_build(params={"u0": torch.tensor(1.0)}), ParamsError, ValueError,
        "params['u0'] expects a leading batch axis of at least 1", "got shape ()", "value[None]",
    ),
    Mistake(
        "an empty example", on_build(params={"u0": torch.zeros(0, 3)}), ParamsError, ValueError,
        "params['u0'] expects a leading batch axis of at least 1", "got shape (0, 3)", "value[None]",
    ),
    Mistake(
        "an example that is no mapping", on_build(params=torch.zeros(1, 3)), ParamsError, ValueError,
        "params=… expects a mapping from names to tensors", "got Tensor", "Write params={",
    ),
]  # fmt: skip

BUILDING = [
    Mistake(
        "one law instead of a list", on_build(laws=initial()), LawError, ValueError,
        "Projector(laws=…) expects a list of laws", "got one Equality", "Write laws=[law].",
    ),
    Mistake(
        "no laws at all", on_build(laws=None), LawError, ValueError,
        "Projector(laws=…) expects a list of laws", "got NoneType", "laws=[",
    ),
    Mistake(
        "two laws of one name", on_build(laws=[initial("mass"), initial("mass")]), LawError, ValueError,
        "Projector(laws=…) expects distinct names", "got ['mass'] more than once", "Rename one of them.",
    ),
    Mistake(
        "a function for a law", on_build(laws=[lambda u, p: u]), LawError, ValueError,
        "laws expects Equality, Inequality, Bounds and Oracle", "got function", "snapfm.Equality('name', function)",
    ),
    Mistake(
        "two functions for laws", on_build(laws=[lambda u, p: u, lambda u, p: u]), LawError, ValueError,
        "laws expects Equality, Inequality, Bounds and Oracle", "got function", "snapfm.Equality('name', function)",
    ),
    Mistake(
        "a fractional shape", on_build(shape=(3.0, 5)), ShapeError, ValueError,
        "Projector(shape=…) expects the whole-number extents of ONE field", "got (3.0, 5)", "Leave the batch axis out.",
    ),
    Mistake(
        "a negative shape", on_build(shape=(-1, 5)), ShapeError, ValueError,
        "Projector(shape=…) expects the whole-number extents of ONE field", "got (-1, 5)", "Leave the batch axis out.",
    ),
    Mistake(
        "a number for a shape", on_build(shape=15), ShapeError, ValueError,
        "Projector(shape=…) expects the whole-number extents of ONE field", "got 15", "Write shape=(15,)",
    ),
    *(
        Mistake(
            f"{name} for a shape", on_build(shape=shape), ShapeError, ValueError,
            "Projector(shape=…) expects the whole-number extents of ONE field", f"got {came}", "Write them as a tuple",
        )
        for name, shape, came in (
            ("nothing", None, "None"), ("a fraction", 3.0, "3.0"), ("a word", "ab", "'ab'"), ("a claim", True, "True"),
            ("a set", {3, 5}, "{3, 5}"), ("a batch", torch.zeros(2, 3, 5), "a tensor of shape (2, 3, 5)"),
        )
    ),
    *(
        Mistake(
            f"{name} for an extent", on_build(shape=shape), ShapeError, ValueError,
            "Projector(shape=…) expects the whole-number extents of ONE field", f"got {shape}",
            "Write each as a whole number >= 0. Leave the batch axis out.",
        )
        for name, shape in (("a claim", (True, 5)), ("a word", (3, "x")), ("nothing", (3, None)), ("a tuple", ((3,), 5)))
    ),
    Mistake(
        "laws in two lists", on_build(laws=[initial(), [initial("a"), initial("b")]]), LawError, ValueError,
        "Projector(laws=…) expects one flat list of laws", "got a list of laws inside it", "laws=[*first, *second]",
    ),
    Mistake(
        "laws by name", on_build(laws={"initial": initial()}), LawError, ValueError,
        "Projector(laws=…) expects a list of laws", "got dict", "Write laws=[law, ...].",
    ),
    *(
        Mistake(
            f"{name} for a tolerance", on_build(tolerance=tolerance), SnapfmError, ValueError,
            "Projector(tolerance=…) expects a positive number, and a finite one", f"got {came}", cure,
        )
        for name, tolerance, came, cure in (
            ("infinity", float("inf"), "inf", "The default is 1e-8"), ("a complex number", 1e-8j, "1e-08j", "The default is"),
            ("a claim", True, "True", "The default is"), ("nothing", None, "None", "The default is"),
            ("a tensor", torch.tensor(1e-8), "a tensor of shape ()", "tolerance.item()"),
            ("one of each sample", torch.ones(2), "a tensor of shape (2,)", "Take one number out of it"),
        )
    ),
    Mistake(
        "tolerance zero", on_build(tolerance=0), SnapfmError, ValueError,
        "Projector(tolerance=…) expects a positive number", "got 0", "The default is 1e-8",
    ),
    Mistake(
        "tolerance below zero", on_build(tolerance=-1e-8), SnapfmError, ValueError,
        "Projector(tolerance=…) expects a positive number", "got -1e-08", "The default is 1e-8",
    ),
    Mistake(
        "tolerance not a number", on_build(tolerance=float("nan")), SnapfmError, ValueError,
        "Projector(tolerance=…) expects a positive number", "got nan", "The default is 1e-8",
    ),
    Mistake(
        "a word for a tolerance", on_build(tolerance="tight"), SnapfmError, ValueError,
        "Projector(tolerance=…) expects a positive number", "got 'tight'", "The default is 1e-8",
    ),
    Mistake(
        "params the laws read are missing", on_build(params=None), LawError, ValueError,
        "law 'initial' reads params['u0']", "given are []", "Pass it in Projector(..., params={...}).",
    ),
    Mistake(
        "a law that does not fit the field", on_build(laws=[Equality("edge", lambda u, p: u[7])]), LawError, ValueError,
        "law 'edge' expects to run on one float64 field of shape (3, 5)", "it raised IndexError", "law.residual(torch.zeros",
    ),
    Mistake(
        "a law that returns a number", on_build(laws=[Equality("total", lambda u, p: 1.0)]), LawError, ValueError,
        "law 'total' expects a tensor from its function", "got float", "Return the residual as one tensor",
    ),
    Mistake(
        "a law that returns a claim", on_build(laws=[Equality("sign", lambda u, p: u > 0)]), LawError, ValueError,
        "law 'sign' expects a real floating-point residual", "got torch.bool", "Return numbers that vanish",
    ),
    Mistake(
        "a law that branches",
        on_build(laws=[Equality("if", lambda u, p: u if u[0, 0] > 0 else -u)]), LawError, ValueError,
        "law 'if' expects the same operators for every field", "it reads a value out of a tensor", "Use torch.where",
    ),
]  # fmt: skip

LAWS = [
    Mistake(
        "bounds without limits", on_law(Bounds), LawError, ValueError,
        "Bounds(lower, upper) expects at least one limit", "got none", "Give lower=..., upper=... or both.",
    ),
    Mistake(
        "bounds that cross", on_law(lambda: Bounds(lower=1.0, upper=0.5)), LawError, ValueError,
        "Bounds(lower, upper) expects lower <= upper everywhere", "got a gap of -0.5", "Swap the two",
    ),
    Mistake(
        "bounds that cross at one point",
        on_law(lambda: Bounds(lower=torch.zeros(3), upper=torch.tensor([1.0, -2.0, 0.0]))), LawError, ValueError,
        "Bounds(lower, upper) expects lower <= upper everywhere", "got a gap of -2", "drop the points",
    ),
    Mistake(
        "bounds that are not numbers", on_law(lambda: Bounds(lower=0.0, upper=float("nan"))), LawError, ValueError,
        "Bounds(upper=…) expects numbers", "got nan", "Where a point has no limit write float('inf').",
    ),
    Mistake(
        "an empty name", on_law(lambda: Equality("", lambda u, p: u)), LawError, ValueError,
        "A law expects a non-empty name", "got ''", "such as 'mass'",
    ),
    Mistake(
        "no name", on_law(lambda: Inequality(None, lambda u, p: u)), LawError, ValueError,  # type: ignore[arg-type]
        "A law expects a non-empty name", "got None", "such as 'mass'",
    ),
    Mistake(
        "bounds without a name", on_law(lambda: Bounds(lower=0.0, name="")), LawError, ValueError,
        "A law expects a non-empty name", "got ''", "such as 'mass'",
    ),
    Mistake(
        "a function in the place of the name", on_law(lambda: Equality(lambda u, p: u, "mass")), LawError, ValueError,  # type: ignore[arg-type]
        "Equality(name, function) expects the name first", "got the function first", "Equality('mass', function)",
    ),
    Mistake(
        "a tensor for a function", on_law(lambda: Equality("mass", torch.zeros(3))), LawError, ValueError,  # type: ignore[arg-type]
        "Equality('mass', function) expects a callable function(u, params)", "got Tensor", "lambda u, p: ...",
    ),
]  # fmt: skip


def check(mistake: Mistake, project: Projector) -> None:
    with pytest.raises(mistake.error) as caught:
        mistake.act(project)
    assert isinstance(caught.value, mistake.builtin)
    assert isinstance(caught.value, SnapfmError)
    told = str(caught.value)
    places = [told.find(words) for words in (mistake.expected, mistake.came, mistake.cure)]
    assert -1 not in places, told
    assert places == sorted(places), f"expected, came, to do: not in that order in {told!r}"


@pytest.mark.parametrize("mistake", [*FIELDS, *PARAMS, *BUILDING, *LAWS], ids=lambda mistake: mistake.name)
def test_a_mistake_is_told_in_three_parts(mistake: Mistake, project: Projector):
    check(mistake, project)


@pytest.mark.parametrize("mistake", [*FIELDS, *PARAMS[:10]], ids=lambda mistake: mistake.name)
def test_judging_fields_has_the_same_door(mistake: Mistake, project: Projector):
    class Judging:
        def __call__(self, *arguments: Any) -> Any:
            return project.check(*arguments)

    with pytest.raises(mistake.error):
        mistake.act(Judging())  # type: ignore[arg-type]


def test_the_shape_message_reads_as_printed_in_the_style_guide(project: Projector):
    with pytest.raises(ShapeError) as caught:
        project(torch.zeros(32, 15), U0)
    assert str(caught.value) == (
        "project(u_hat=…) expects (b, 3, 5); got (32, 15). Reshape with u_hat.view(-1, 3, 5)."
    )  # fmt: skip


def test_the_advice_for_flattened_fields_works(project: Projector):
    flat = torch.arange(30, dtype=torch.float64).reshape(2, 15)
    assert project(flat.view(-1, 3, 5), U0).u.shape == (2, 3, 5)


def test_the_advice_for_complex_fields_works():
    """One law on the real part, one on the imaginary part; nearness is that of complex numbers."""
    laws = [Equality("real", lambda u, p: u[0].sum(0) - 1.0), Equality("imaginary", lambda u, p: u[1, 0])]
    field = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.complex128)
    found = Projector(laws, shape=(2, 3, 5))(torch.view_as_real(field).movedim(-1, 1))
    u = torch.view_as_complex(found.u.movedim(1, -1).contiguous())
    assert bool(found.converged.all())
    assert float((u.real.sum(1) - 1.0).abs().max()) <= found.tolerance
    assert float(u.imag[:, 0].abs().max()) <= found.tolerance
    assert torch.allclose(found.distance, (u - field).flatten(1).norm(dim=1), rtol=1e-12)


def test_a_shape_with_the_batch_axis_is_seen_at_the_first_call():
    whole = Projector([Equality("total", lambda u, p: u.sum())], shape=(32, 3, 5))
    with pytest.raises(ShapeError, match=r"If 16 is the number of samples, leave .*: shape=\(3, 5\)\.$"):
        whole(torch.zeros(16, 3, 5))
    with pytest.raises(
        ShapeError, match=r"u_hat\[None\]\. If 32 already is the number of samples, .*: shape=\(3, 5\)\.$"
    ):
        whole(torch.zeros(32, 3, 5))


def test_numbers_of_numpy_are_numbers():
    found = Projector([initial()], (np.int64(3), 5), EXAMPLE, tolerance=np.float32(1e-6))
    assert found.shape == (3, 5)
    assert type(found.shape[0]) is int
    assert found.tolerance == float(np.float32(1e-6))


def test_a_field_without_points_is_a_field():
    nothing = Projector([Equality("total", lambda u, p: u.sum(0))], shape=(0, 5))
    assert nothing(torch.zeros(2, 0, 5)).u.shape == (2, 0, 5)


def test_a_refused_call_leaves_the_projector_in_order(project: Projector):
    before = project(FIELD, U0)
    with pytest.raises(ShapeError):
        project(torch.zeros(2, 4, 4), U0)
    assert torch.equal(project(FIELD, U0).u, before.u)


def test_equal_limits_are_bounds():
    assert Bounds(lower=1.0, upper=1.0).upper == 1.0


def test_laws_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        initial().name = "other"  # type: ignore[misc]


# What has no scalar form takes the slow path, and the structure says so.


def test_the_slow_path_is_reported_with_law_and_operator():
    largest = Equality("largest", lambda u, p: torch.sort(u, dim=0).values[-1] - 1)
    project = Projector([initial(), largest], (3, 5), EXAMPLE)
    assert "slow path: law 'largest' uses sort" in str(project.structure)
    usual = Projector([initial()], (3, 5), EXAMPLE)
    assert "slow path" not in str(usual.structure)


def test_a_value_without_batch_axis_is_told_to_get_one():
    value = torch.ones(5)
    project = Projector([Equality("total", lambda u, p: u.sum(0) - p["total"])], (6, 5), {"total": value})
    with pytest.raises(ParamsError, match=r"got \(5,\)\. If \(5,\) is the value for one sample, .* value\[None\]"):
        project(torch.zeros(4, 6, 5), {"total": value})


def test_an_axis_of_components_is_not_taken_for_samples():
    project = Projector([Equality("total", lambda u, p: u.sum() - 1.0)], (6, 5))
    with pytest.raises(ShapeError, match=r"3 components of one field, build the Projector with shape=\(3, 6, 5\)"):
        project(torch.zeros(2, 3, 6, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("power", [1, 2])
def test_an_empty_batch_is_projected_and_differentiated(dtype: torch.dtype, power: int):
    project = Projector([Equality("total", lambda u, p: (u**power).sum(0) - 1.0)], (6, 5))
    u_hat = torch.zeros(0, 6, 5, dtype=dtype, requires_grad=True)
    result = project(u_hat)
    result.u.sum().backward()
    assert result.raise_for_status().u.shape == u_hat.grad.shape == (0, 6, 5)
    assert project.check(u_hat).violation.shape == (0,)
    assert "0 fields" in str(result)


@pytest.mark.parametrize("made", [lambda u: u.to_sparse(), lambda u: u.to("meta")])
def test_tensors_without_dense_values_are_refused(project: Projector, made: Callable[[torch.Tensor], torch.Tensor]):
    with pytest.raises(DtypeError, match=r"expects a dense tensor that holds values; got .*to_dense"):
        project(made(torch.zeros(2, *project.shape)), {"u0": torch.zeros(1, 3)})
