"""Checks of `sample` and of the samplers: every wrong argument raises an error in three parts, before the network is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.sampling.toys import SHAPE, Watched, mixed, seeded
from torch import Tensor, nn

import snapfm
from snapfm import Projector, sample
from snapfm.errors import DtypeError, ParamsError, SettingError, ShapeError, SnapfmError
from snapfm.grid import Axis, Grid
from snapfm.sampling import (
    COSINE,
    ECI,
    PCFM,
    STRAIGHT,
    DFlow,
    EndProjection,
    Flow,
    Guidance,
    Path,
    Projected,
    Relaxation,
)
from snapfm_bench.flow import Checkpoint

U0 = torch.randn(2, SHAPE[0], generator=seeded(1), dtype=torch.float64)


def decay(u: Tensor, tau: Any) -> Tensor:
    return -u


@pytest.fixture(scope="module")
def project() -> Projector:
    return mixed()


@pytest.fixture
def arguments(project: Projector) -> dict[str, Any]:
    return {"velocity": decay, "project": project, "params": {"u0": U0}, "count": 2, "steps": 2, "generator": seeded()}


def message_of(arguments: dict[str, Any], error: type[SnapfmError] = SettingError, **wrong: Any) -> str:
    """Return the message of a call that must not reach the network."""
    asked: list[Tensor] = []

    def watched(u: Tensor, tau: Any) -> Tensor:
        asked.append(u)
        return -u

    with pytest.raises(error) as caught:
        sample(**({**arguments, "velocity": watched} | wrong))
    assert not asked
    return str(caught.value)


class Tall(nn.Module):
    """A model that takes no time."""

    def forward(self, u: Tensor) -> Tensor:
        return u


VELOCITY = "sample(velocity) expects a model to call as velocity(u, tau)"
NETWORK = "Pass the trained network itself, or a function of (u, tau)."


@pytest.mark.parametrize(
    ("velocity", "rest"),
    [
        (None, f"got NoneType. {NETWORK}"),
        (torch.zeros(3), f"got Tensor. {NETWORK}"),
        (Tall, f"got the class Tall. {NETWORK}"),
        ("heat-small", "got the text 'heat-small'. Load a shipped model: snapfm_bench.flow.shipped('heat-small')."),
        (
            Checkpoint(nn.Identity(), Grid((Axis("x", 0, 1, 3),)), "heat", "small", {}),  # type: ignore[arg-type]
            "got a Checkpoint. Pass its network: checkpoint.network.",
        ),
        (Tall(), "got one that takes (u). Adapt it: snapfm.adapters.conditioned for a model with more inputs, joined"),
        (lambda u, tau, label: u, "got one that takes (u, tau, label). Adapt it: snapfm.adapters.conditioned"),
    ],
    ids=["none", "tensor", "class", "text", "checkpoint", "no-time", "more-inputs"],
)
def test_a_velocity_is_called_with_field_and_time(arguments: dict[str, Any], velocity: Any, rest: str):
    assert message_of(arguments, velocity=velocity).startswith(f"{VELOCITY}; {rest}")


def test_swapped_velocity_and_projector_are_named_in_the_message(arguments: dict[str, Any], project: Projector):
    assert message_of(arguments, velocity=project, project=decay) == (
        f"{VELOCITY}; got a Projector. The velocity comes first: sample(velocity, project)."
    )


PROJECT = "sample(project) expects a Projector, or None for the plain flow"
BUILD = "Build one: snapfm.Projector(laws, shape, params)."


@pytest.mark.parametrize(
    ("wrong", "rest"),
    [
        (lambda project: list(project.laws), f"got a list of laws. {BUILD}"),
        (lambda project: project.laws, f"got a list of laws. {BUILD}"),
        (lambda project: project.laws[0], f"got a law. {BUILD}"),
        (lambda project: {"u0": U0}, "got dict. Params come third: sample(velocity, project, params)."),
        (lambda project: Projector, f"got the class Projector. {BUILD}"),
        (lambda project: decay, f"got function. {BUILD}"),
        (lambda project: "heat-ic-mass", f"got str. {BUILD}"),
        (lambda project: True, f"got bool. {BUILD}"),
    ],
    ids=["list", "tuple", "law", "params", "class", "function", "text", "flag"],
)
def test_a_projector_is_built_first(
    arguments: dict[str, Any], project: Projector, wrong: Callable[[Projector], Any], rest: str
):
    assert message_of(arguments, project=wrong(project)) == f"{PROJECT}; {rest}"


def test_a_stand_in_with_the_face_of_a_projector_is_taken(arguments: dict[str, Any], project: Projector):
    expected = sample(**arguments).u
    assert torch.equal(sample(**arguments | {"project": Watched(project), "generator": seeded()}).u, expected)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([U0], "params=… expects a mapping from names to tensors; got list. Write params={'u0': …}."),
        (U0, "params=… expects a mapping from names to tensors; got Tensor. Write params={'u0': …}."),
        ({0: U0}, "params=… expects a mapping from names to tensors; got 0 for a name. Write params={'u0': …}."),
        ({"u0": 1.0}, "params['u0'] expects a tensor; got float. Convert it with torch.as_tensor(value)."),
        ({"u0": torch.zeros(3, 3)}, "params['u0'] expects shape (2 or 1, 3) for 2 samples; got (3, 3)."),
    ],
    ids=["list", "tensor", "number-for-name", "number", "another-count"],
)
def test_params_are_looked_at_before_the_network(arguments: dict[str, Any], params: Any, message: str):
    late = PCFM(project_from=0.9)  # whose laws are asked last
    assert message_of(arguments, ParamsError, params=params, sampler=late).startswith(message)


@pytest.mark.parametrize("wrong", [True, 0, -1, 2.5, "3", None, [3], torch.tensor(3)])
@pytest.mark.parametrize("name", ["count", "steps"])
def test_counts_are_whole_numbers(arguments: dict[str, Any], name: str, wrong: Any):
    shown = {"count": 2, "steps": 2} | {name: wrong}
    assert message_of(arguments, ShapeError, **{name: wrong}) == (
        f"sample(count, steps) expects whole numbers >= 1; got count={shown['count']!r}, steps={shown['steps']!r}. Ask for at "
        "least one of each."
    )


@pytest.mark.parametrize("wrong", [True, -1, 0.5, "0", None])
def test_the_first_sample_has_a_number(arguments: dict[str, Any], wrong: Any):
    assert message_of(arguments, ParamsError, first=wrong) == (
        f"sample(first) expects the number of a sample, 0 or more; got {wrong!r}. The default is 0."
    )


def test_counts_of_numpy_are_whole_numbers(arguments: dict[str, Any]):
    expected = sample(**arguments).u
    given = {"count": np.int64(2), "steps": np.int32(2), "first": np.int64(0), "generator": seeded()}
    assert torch.equal(sample(**arguments | given).u, expected)


@pytest.mark.parametrize(
    ("wrong", "came", "write"),
    [
        (0, "the number 0", "seed=0"),
        (42, "the number 42", "seed=42"),
        (np.int64(7), "the number 7", "seed=7"),
        (np.random.default_rng(0), "a Generator of numpy", "generator=torch.Generator().manual_seed(0), or seed=0"),
        ("seed", "str", "generator=torch.Generator().manual_seed(0), or seed=0"),
        (torch.Generator, "the class Generator", "generator=torch.Generator().manual_seed(0), or seed=0"),
    ],
    ids=["zero", "number", "numpy-number", "numpy", "text", "class"],
)
def test_a_generator_is_one_of_torch(arguments: dict[str, Any], wrong: Any, came: str, write: str):
    assert message_of(arguments, generator=wrong) == (
        f"sample(generator) expects a torch.Generator, or None for torch's own; got {came}. Write {write}."
    )


@pytest.mark.parametrize("wrong", [-1, 2**64, 0.5, "3", True, torch.tensor(1)], ids=str)
def test_a_seed_is_a_whole_number(arguments: dict[str, Any], wrong: Any):
    assert message_of(arguments, generator=None, seed=wrong) == (
        f"sample(seed) expects a whole number from 0 to 2**64 − 1; got {wrong!r}. Write seed=0."
    )


def test_a_seed_and_a_generator_are_one_too_many(arguments: dict[str, Any]):
    assert message_of(arguments, seed=1) == (
        "sample(generator, seed) expects one of the two; got both. Leave generator out: a seed makes one."
    )


@pytest.mark.parametrize("wrong", [0, -3, 1.5, "8", True], ids=str)
def test_a_batch_is_a_number_of_samples(arguments: dict[str, Any], wrong: Any):
    assert message_of(arguments, batch=wrong) == (
        "sample(batch) expects how many samples are drawn at a time, a whole number >= 1; got "
        f"{wrong!r}. Leave it out to draw all at once."
    )


@pytest.mark.parametrize(
    ("wrong", "came", "meant"),
    [
        ("eci", "the text 'eci'", "ECI"),
        ("endprojection", "the text 'endprojection'", "EndProjection"),
        ("euler", "the text 'euler'", "PCFM"),
        (ECI, "the class ECI", "ECI"),
        (Flow, "the class Flow", "Flow"),
        (Relaxation(), "Relaxation", "PCFM"),
        (3, "int", "PCFM"),
    ],
    ids=["name", "longer-name", "unknown-name", "class", "another-class", "a-setting", "number"],
)
def test_a_sampler_is_an_object(arguments: dict[str, Any], wrong: Any, came: str, meant: str):
    assert message_of(arguments, sampler=wrong) == (
        "sample(sampler) expects a sampler with its settings, one of PCFM(…), Conditional(…), ECI(…), Projected(…), "
        f"EndProjection(…), Guidance(…), DFlow(…), Flow(…) of snapfm.sampling; got {came}. Write "
        f"sampler=snapfm.sampling.{meant}()."
    )


def test_the_samplers_named_are_those_that_exist(arguments: dict[str, Any]):
    message = message_of(arguments, sampler="none")
    kinds = [kind for name in snapfm.sampling.__all__ if hasattr(kind := getattr(snapfm.sampling, name), "run")]
    ready = [kind.__name__ for kind in kinds if kind is not snapfm.sampling.Sampler]
    assert len(ready) == 8
    assert all(f"{name}(…)" in message for name in ready)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("float64", "sample(dtype) expects torch.float32 or torch.float64; got 'float64'. The default is float32."),
        (torch.int64, "sample(dtype) expects torch.float32 or torch.float64; got torch.int64. The default is float32."),
        (None, "sample(dtype) expects torch.float32 or torch.float64; got None. The default is float32."),
    ],
)
def test_a_dtype_is_one_of_two(arguments: dict[str, Any], wrong: Any, message: str):
    assert message_of(arguments, DtypeError, dtype=wrong) == message


@pytest.mark.parametrize("wrong", ["rais", "Keep", True, None, ["keep"]])
def test_on_failure_is_one_of_two_words(arguments: dict[str, Any], wrong: Any):
    assert message_of(arguments, ParamsError, on_failure=wrong) == (
        f"on_failure expects 'raise' or 'keep'; got {wrong!r}. 'keep' returns unconverged samples, marked."
    )


@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        (3, "3"), ("ab", "'ab'"), ({0: 1}, "{0: 1}"), (torch.tensor(1.0), "tensor(1.)"), ([], "[]"), ([0.0], "[0.0]"),
        ([0, None, 1], "[0, None, 1]"), ([0, 1j], "[0, 1j]"), ([False, True], "[False, True]"), ([0, "1"], "[0, '1']"),
        (torch.zeros(1, 2), "[[0.0, 0.0]]"), ([0, float("nan"), 1], "[0, nan, 1]"), ([0, 0.5], "[0, 0.5]"),
        ([0, 0.5, 0.5, 1], "[0, 0.5, 0.5, 1]"), (list(range(9)), "[0, 1, 2] … [7, 8]"),
    ],
)  # fmt: skip
def test_times_are_numbers_that_rise(arguments: dict[str, Any], wrong: Any, shown: str):
    assert message_of(arguments, ParamsError, times=wrong) == (
        f"sample(times) expects flow times that rise from 0 to 1; got {shown}. For steps of one length leave times out and give "
        "steps."
    )


@pytest.mark.parametrize(
    "times",
    [(0, 0.5, 1), [0.0, 0.5, 1.0], torch.tensor([0, 0.5, 1]), np.array([0, 0.5, 1]), (tau / 2 for tau in range(3))],
)
def test_times_come_in_any_form(arguments: dict[str, Any], times: Any):
    expected = sample(**arguments).u  # two uniform steps
    assert torch.equal(sample(**arguments | {"times": times, "generator": seeded()}).u, expected)


@pytest.mark.parametrize(("wrong", "came"), [("cosine", "str"), (Path, "the class Path"), (3, "int"), (False, "bool")])
def test_a_path_is_a_path(arguments: dict[str, Any], wrong: Any, came: str):
    assert message_of(arguments, path=wrong) == (
        f"sample(path) expects a snapfm.sampling.Path; got {came}. Take snapfm.sampling.STRAIGHT or COSINE, or build one from α, "
        "σ and their slopes."
    )


@pytest.mark.parametrize(("own", "followed"), [(COSINE, COSINE), ("weights/model.pt", STRAIGHT), (None, STRAIGHT)])
def test_the_path_of_a_velocity_is_followed_where_it_is_one(arguments: dict[str, Any], own: Any, followed: Path):
    def velocity(u: Tensor, tau: Any) -> Tensor:
        return -u

    velocity.path = own  # type: ignore[attr-defined]
    expected = sample(**arguments | {"path": followed}).u
    assert torch.equal(sample(**arguments | {"velocity": velocity, "generator": seeded()}).u, expected)


@pytest.mark.parametrize(
    ("wrong", "rest"),
    [
        (3, "got 3. Write shape=(3,)."),
        ("ab", "got 'ab'. Write them as a tuple;"),
        ((3, -1), "got (3, -1). Write each as a whole number >= 0."),
        ((3, True), "got (3, True). Write each as a whole number >= 0."),
    ],
)
def test_a_shape_is_a_tuple(arguments: dict[str, Any], wrong: Any, rest: str):
    for project in (arguments["project"], None):
        message = message_of(arguments, ShapeError, shape=wrong, project=project)
        assert message.startswith(
            "sample(shape=…) expects the whole-number extents of ONE field, such as (100, 100); " + rest
        )


def test_a_shape_of_the_velocity_that_is_none_is_refused(arguments: dict[str, Any]):
    def velocity(u: Tensor, tau: Any) -> Tensor:
        return -u

    velocity.shape = "wide"  # type: ignore[attr-defined]
    assert message_of(arguments, ShapeError, velocity=velocity, project=None) == (
        "sample(velocity, None) expects the shape of one field; got velocity.shape = 'wide'. Pass shape=(100, 100)."
    )


PROGRESS = "sample(progress) expects True for a bar, or a function progress(done, total)"


@pytest.mark.parametrize(
    ("wrong", "rest"),
    [
        ("bar", "got str. Write progress=True."),
        (1, "got int. Write progress=True."),
        (dict, "got the class dict. Write progress=True."),
        (lambda done: None, "got one that takes (done). Write progress=lambda done, total: ..., or progress=True."),
    ],
    ids=["text", "number", "class", "one-argument"],
)
def test_progress_is_a_flag_or_a_function(arguments: dict[str, Any], wrong: Any, rest: str):
    assert message_of(arguments, progress=wrong) == f"{PROGRESS}; {rest}"


# Settings of samplers.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda x: DFlow(iterations=x),
            "DFlow expects iterations >= 1 and physics > 0; got {x} and 0.01. For no descent",
        ),
        (lambda x: DFlow(physics=x), "DFlow expects iterations >= 1 and physics > 0; got 20 and {x}. For no descent"),
        (
            lambda x: DFlow(tolerance=x),
            "DFlow(tolerance) expects a positive number; got {x}. None is the projector's own.",
        ),
        (lambda x: ECI(mixing=x), "ECI(mixing) expects a whole number >= 1; got {x}. The default is 5."),
        (
            lambda x: ECI(renew=x),
            "ECI(renew) expects a whole number >= 1 or None; got {x}. None keeps the first noise.",
        ),
        (lambda x: Flow(solver=x), "Flow(solver) expects 'euler' or 'adaptive'; got {x}. 'euler' visits"),
        (
            lambda x: Flow(relative_tolerance=x),
            "Flow(relative_tolerance, absolute_tolerance) expects positive numbers; got {x} and 1e-05. The default",
        ),
        (lambda x: Guidance(weight=x), "Guidance expects weight > 0 and physics > 0; got {x} and 0.01. The default is"),
        (
            lambda x: Guidance(physics=x),
            "Guidance expects weight > 0 and physics > 0; got 0.01 and {x}. The default is",
        ),
        (
            lambda x: PCFM(early_tolerance=x),
            "PCFM(early_tolerance) expects a positive number, or a function of τ; got {x}. None is the projector's own.",
        ),
        (
            lambda x: PCFM(project_from=x),
            "PCFM(project_from) expects a flow time in [0, 1]; got {x}. 0 projects at every",
        ),
        (
            lambda x: PCFM(relaxation=x),
            "PCFM(relaxation) expects a Relaxation, or None; got {x}. Write PCFM(relaxation=",
        ),
        (lambda x: Relaxation(weight=x), "Relaxation expects weight > 0 and iterations >= 1; got {x} and 5. Leave"),
        (
            lambda x: Relaxation(iterations=x),
            "Relaxation expects weight > 0 and iterations >= 1; got 1.0 and {x}. Leave",
        ),
        (
            lambda x: EndProjection(x),
            "EndProjection(flow) expects how to integrate, a Flow; got {x}. Write EndProjection(",
        ),
    ],
)
@pytest.mark.parametrize("wrong", ["fast", True, -1.0, float("nan"), [1]])
def test_settings_of_a_wrong_kind_are_refused(make: Callable[[Any], object], message: str, wrong: Any):
    with pytest.raises(ParamsError) as caught:
        make(wrong)
    assert str(caught.value).startswith(message.replace("{x}", repr(wrong)))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda x: PCFM(warm=x), "PCFM(warm)"),
        (lambda x: ECI(warm=x), "ECI(warm)"),
        (lambda x: Projected(warm=x), "Projected(warm)"),
        (lambda x: Guidance(through_network=x), "Guidance(through_network)"),
    ],
)
@pytest.mark.parametrize("wrong", ["yes", 1, None])
def test_flags_are_true_or_false(make: Callable[[Any], object], name: str, wrong: Any):
    with pytest.raises(ParamsError) as caught:
        make(wrong)
    assert str(caught.value) == f"{name} expects True or False; got {wrong!r}. Leave it out for the default."


def test_a_path_is_made_of_functions():
    with pytest.raises(SettingError) as caught:
        Path(data=lambda tau: tau, noise=1.0, data_slope=lambda tau: 1.0, noise_slope=lambda tau: -1.0)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "Path(noise) expects a function of flow time; got 1.0. Write noise=lambda tau: ...; STRAIGHT and COSINE are ready-made."
    )


class Output:  # as models of diffusers return it
    def __init__(self, sample: Tensor) -> None:
        self.sample = sample


DOUBLE = nn.Conv1d(SHAPE[0], SHAPE[0], 1).double()


@pytest.mark.parametrize(
    ("velocity", "told"),
    [
        (lambda u, tau: u * tau[:, None, None], "snapfm.adapters.field_first(model), or time_first(model)"),
        (lambda u, tau: torch.cat([u, tau], 1), "snapfm.adapters.field_first(model), or time_first(model)"),
        (lambda u, tau: u * tau.view(-1, 1, 1), "snapfm.adapters.field_first(model), or time_first(model)"),
        (lambda u, tau: DOUBLE(u), "sample(…, dtype=torch.float64)"),
        (lambda u, tau: u @ torch.ones(99, 99), "snapfm.adapters.flat for flat fields"),
        (lambda u, tau: u + torch.ones(99), "snapfm.adapters.flat for flat fields"),
        (lambda u, tau: u[:, :, :, 0], "channels for an axis of components"),
        (lambda u, tau: Output(u), "got Output with a tensor .sample. Adapt the model: snapfm.adapters.diffusers("),
        (lambda u, tau: u[:, 0], "snapfm.adapters.time_first for a model that takes the time first"),
        (lambda u, tau: (u, None), "got tuple. Return one tensor"),
    ],
)
def test_a_model_that_is_called_otherwise_is_told_the_adapter(velocity: Any, told: str):
    with pytest.raises(SnapfmError) as caught:
        sample(velocity, None, count=2, steps=2, shape=SHAPE)
    assert told in str(caught.value)


def test_the_adapters_named_in_messages_can_be_had_from_the_package():
    names = ("conditioned", "diffusers", "field_first", "flat", "joined", "channels", "time_first")
    assert all(callable(getattr(snapfm.adapters, name)) for name in names)


def test_a_model_with_an_error_of_its_own_raises_it():
    def broken(u: Tensor, tau: float) -> Tensor:
        raise RuntimeError("my own")

    with pytest.raises(RuntimeError, match=r"^my own$"):
        sample(broken, None, count=2, steps=2, shape=SHAPE)
