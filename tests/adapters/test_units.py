"""Normalised models: physical units outside, the model's own inside, and which field is nearest."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.adapters.toys import EPS, SHAPE, Gaussian, energies, is_in_three_parts, seeded
from torch import Tensor

import snapfm
from snapfm import Bounds, Equality, Projector, Status, adapters
from snapfm.errors import SnapfmError
from snapfm.sampling import COSINE, ECI, STRAIGHT, Flow, Path

POINTS = torch.randn(SHAPE, generator=seeded(1), dtype=torch.float64)
SCALES = 0.5 + torch.rand(SHAPE, generator=seeded(2), dtype=torch.float64)
LAWS = [
    Equality("energy", lambda u, p: u.square().sum(0) - p["energy"]),
    Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
]
WAVE = torch.sin(2 * torch.pi * torch.arange(8, dtype=torch.float64) / 8)
PARAMS = {"energy": energies(), "u0": WAVE[None]}
VP = adapters.variance_preserving()


def inside(z: Tensor, tau: Any) -> Tensor:
    return torch.tanh(z) - z


class Plain:
    """A function of fields and one flow time, with the path it belongs to."""

    def __init__(self, function: Any, path: Path) -> None:
        self.function, self.path = function, path

    def __call__(self, u: Tensor, tau: float) -> Tensor:
        return self.function(u, tau)


def draw(velocity: Any, project: Any, **settings: Any) -> Any:
    return snapfm.sample(velocity, project, PARAMS, 5, 6, seeded(3), dtype=torch.float64, **settings)


# Identity.


@pytest.mark.parametrize("path", [STRAIGHT, COSINE, VP], ids=["straight", "cosine", "vp"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mean_zero_and_std_one_change_no_bit(path: Path, dtype: torch.dtype):
    project = Projector(LAWS, SHAPE, PARAMS)
    plain = snapfm.sample(inside, project, PARAMS, 5, 6, seeded(3), path=path, dtype=dtype)
    for mean, std in ((0.0, 1.0), (torch.zeros(SHAPE), torch.ones(SHAPE)), (torch.zeros(8, 1), torch.ones(1, 6))):
        velocity = adapters.Normalized(adapters.field_first(inside, path=path), mean, std)
        chosen = velocity.projector(LAWS, SHAPE, PARAMS)
        assert type(chosen) is Projector
        adapted = snapfm.sample(velocity, chosen, PARAMS, 5, 6, seeded(3), dtype=dtype)
        assert torch.equal(adapted.u, plain.u)


# Known answers.


@pytest.mark.parametrize("path", [STRAIGHT, COSINE, VP], ids=["straight", "cosine", "vp"])
def test_sampling_in_physical_units_is_sampling_in_the_models_and_changing_units_after(path: Path):
    model = Gaussian(path).velocity
    velocity = adapters.Normalized(Plain(model, path), POINTS, SCALES)
    out = draw(velocity, velocity.projector(LAWS, SHAPE, PARAMS))
    written = [
        Equality(law.name, lambda z, p, law=law: law.function(POINTS + SCALES * z, p)) for law in LAWS
    ]  # the same laws, by hand, of normalised fields
    z = draw(model, Projector(written, SHAPE, PARAMS), path=path).u
    assert torch.allclose(out.u, POINTS + SCALES * z, rtol=0, atol=1e-9)


@pytest.mark.parametrize("path", [STRAIGHT, COSINE, VP], ids=["straight", "cosine", "vp"])
def test_the_plain_flow_of_a_normalised_gaussian_has_its_mean_and_std(path: Path):
    mean, std = torch.tensor([[3.0], [-5.0]]), torch.tensor([[0.1], [20.0]])  # two components
    velocity = adapters.Normalized(Plain(Gaussian(path, mean=0.0, std=1.0).velocity, path), mean, std)
    out = snapfm.sample(velocity, None, None, 400, 40, seeded(4), shape=(2, 30), dtype=torch.float64, sampler=Flow())
    found_mean, found_std = out.u.mean((0, 2)), out.u.std((0, 2))
    assert torch.allclose(found_mean, mean[:, 0].double(), atol=0, rtol=0.05)
    assert torch.allclose(found_std, std[:, 0].double(), atol=0, rtol=0.05)


def test_noise_is_in_the_units_of_the_data_and_renewed_in_them():
    velocity = adapters.Normalized(lambda z, tau: 0 * z, POINTS, SCALES)
    white = snapfm.sample(lambda u, tau: 0 * u, None, None, 4, 1, seeded(5), shape=SHAPE, dtype=torch.float64).u
    noise = snapfm.sample(velocity, None, None, 4, 1, seeded(5), shape=SHAPE, dtype=torch.float64).u
    assert torch.allclose(noise, POINTS + SCALES * white, rtol=0, atol=8 * EPS)
    # A sampler that draws again: a model of the data's own mean, normalised by hand or by the adapter, gives the same.
    project = velocity.projector(LAWS[:1], SHAPE, {"energy": energies()})
    plain = Projector(
        [Equality("energy", lambda z, p: LAWS[0].function(POINTS + SCALES * z, p))], SHAPE, {"energy": energies()}
    )
    renewing = ECI(mixing=2, renew=1)
    adapted = snapfm.sample(
        adapters.Normalized(inside, POINTS, SCALES), project, {"energy": energies()}, 3, 4, seeded(6), sampler=renewing,
        dtype=torch.float64,
    )  # fmt: skip
    by_hand = snapfm.sample(
        inside, plain, {"energy": energies()}, 3, 4, seeded(6), sampler=renewing, dtype=torch.float64
    )  # fmt: skip
    assert torch.allclose(adapted.u, POINTS + SCALES * by_hand.u, rtol=0, atol=1e-9)


def test_noise_goes_through_layouts():
    white = torch.randn(3, 2, 5, 4, generator=seeded(15), dtype=torch.float64)
    mean, std = (
        POINTS[:4, 0].view(4, 1, 1),
        SCALES[:4, 0].view(4, 1, 1),
    )  # one for each of four components, the last axis
    velocity = adapters.channels(adapters.Normalized(inside, mean, std), axis=-1)
    assert torch.equal(velocity.noise_from(white), POINTS[:4, 0] + SCALES[:4, 0] * white)
    flat = adapters.flat(adapters.Normalized(inside, POINTS.flatten(), SCALES.flatten()))
    white = torch.randn(3, *SHAPE, generator=seeded(16), dtype=torch.float64)
    assert torch.equal(flat.noise_from(white), POINTS + SCALES * white)


def test_one_time_per_sample_is_one_time_for_all_where_they_agree():
    for path in (STRAIGHT, VP):
        velocity = adapters.Normalized(adapters.field_first(inside, path=path), POINTS, SCALES)
        u = torch.randn(3, *SHAPE, generator=seeded(7), dtype=torch.float64)
        times = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
        each = torch.cat([velocity(u[i : i + 1], float(times[i])) for i in range(3)])
        assert torch.allclose(velocity(u, times), each, rtol=0, atol=1e-14)


# Laws hold in physical units, whatever those are.


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e5])
@pytest.mark.parametrize("how", ["plain", "in the model's units"])
def test_laws_hold_in_physical_units_to_rounding(unit: float, how: str):
    mean, std = unit * POINTS, unit * SCALES
    params = {"energy": unit**2 * PARAMS["energy"], "u0": unit * PARAMS["u0"]}
    velocity = adapters.Normalized(inside, mean, std)
    tolerance = 1e-12 * max(unit**2, unit)
    build = Projector if how == "plain" else velocity.projector
    project = build(LAWS, SHAPE, params, tolerance)
    out = snapfm.sample(velocity, project, params, 5, 6, seeded(8), dtype=torch.float64)
    assert out.projection.status.tolist() == [Status.CONVERGED] * 5
    energy = out.u.square().sum(1)
    assert float((energy - params["energy"]).abs().max()) <= tolerance + 8 * EPS * float(params["energy"].max())
    assert float((out.u[:, :, 0] - params["u0"]).abs().max()) <= 8 * EPS * unit * 4
    judged = Projector(LAWS, SHAPE, params, tolerance).check(
        out.u, params
    )  # the laws themselves, of the fields as they came
    assert torch.allclose(judged.violation, out.projection.violation, rtol=0, atol=64 * EPS * max(unit**2, unit))


def test_float32_fields_are_the_rounded_answer():
    velocity = adapters.Normalized(inside, POINTS, SCALES)
    project = velocity.projector(LAWS, SHAPE, PARAMS)
    u = torch.randn(4, *SHAPE, generator=seeded(9))
    assert project(u, PARAMS).u.dtype == torch.float32
    assert torch.equal(project(u, PARAMS).u, project(u.double(), PARAMS).u.float())


# Which field is nearest.


def test_nearest_is_measured_in_the_models_units():
    std = torch.tensor([[0.1], [10.0]], dtype=torch.float64)  # a component that hardly varies, and one that does
    total = [Equality("total", lambda u, p: u.sum(0) - 1.0)]
    u = torch.zeros(1, 2, 3, dtype=torch.float64)
    velocity = adapters.Normalized(inside, 0.0, std)
    moved = velocity.projector(total, (2, 3))(u).u
    share = (std**2 / (std**2).sum()).expand(2, 3)
    assert torch.allclose(moved[0], share, rtol=0, atol=1e-12)  # by variance, as for a Gaussian given its sum
    assert torch.allclose(Projector(total, (2, 3))(u).u[0], torch.full((2, 3), 0.5, dtype=torch.float64))


def test_one_std_for_all_moves_fields_as_a_plain_projector_does():
    u = torch.randn(6, *SHAPE, generator=seeded(10), dtype=torch.float64)
    plain = Projector(LAWS, SHAPE, PARAMS)(u, PARAMS)
    scaled = adapters.Normalized(inside, 0.3, 7.0).projector(LAWS, SHAPE, PARAMS)(u, PARAMS)
    assert torch.allclose(scaled.u, plain.u, rtol=0, atol=1e-8)
    assert torch.allclose(scaled.distance, plain.distance / 7.0, rtol=1e-8)


def test_a_warm_start_and_a_tolerance_go_through():
    project = adapters.Normalized(inside, POINTS, SCALES).projector(LAWS, SHAPE, PARAMS)
    u = torch.randn(6, *SHAPE, generator=seeded(11), dtype=torch.float64)
    cold = project(u, PARAMS)
    warm = project(u + 1e-6, PARAMS, warm=cold)
    assert bool(warm.converged.all())
    assert bool((warm.iterations <= cold.iterations).all())
    assert torch.allclose(warm.u, cold.u, rtol=0, atol=1e-4)
    assert project(u, PARAMS, tolerance=1e-3).tolerance == 1e-3


def test_gradients_are_those_of_the_change_of_units():
    project = adapters.Normalized(inside, POINTS[:3, :2], SCALES[:3, :2]).projector(
        [Equality("energy", lambda u, p: u.square().sum(0) - 2.0)], (3, 2)
    )
    u = torch.randn(2, 3, 2, generator=seeded(12), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda u: project(u).u, (u,), atol=1e-5)


# Bounds.


@pytest.mark.parametrize("unit", [2.0**-10, 1.0, 2.0**13])
def test_bounds_are_kept_and_judged_in_physical_units(unit: float):
    std = unit * torch.tensor([0.25, 0.5, 1.0, 2.0], dtype=torch.float64).repeat(2)[:, None]
    laws = [Bounds(-unit, unit * torch.ones(SHAPE)), Equality("total", lambda u, p: u.sum(0) - unit)]
    project = adapters.Normalized(inside, 0.0, std).projector(laws, SHAPE, tolerance=1e-9 * unit)
    u = 3 * unit * torch.randn(5, *SHAPE, generator=seeded(13), dtype=torch.float64)
    out = project(u).raise_for_status()
    assert float(out.u.abs().max()) <= unit
    assert float((out.u.sum(1) - unit).abs().max()) <= 1e-9 * unit
    by_hand = torch.maximum(u - unit, -unit - u).clamp(min=0).flatten(1)
    judged = project.check(u)
    assert torch.equal(judged.by_law["bounds"], by_hand.amax(1))
    assert torch.equal(judged.violation, torch.stack(list(judged.by_law.values())).amax(0))
    assert torch.equal(project.excess(u)[:, SHAPE[1] :], by_hand)
    assert set(out.by_law) == {"bounds", "total"}


def test_numbers_keep_all_their_digits():
    velocity = adapters.Normalized(inside, 0.1, [[0.3] * 6] * 8)
    assert float(velocity.mean) == 0.1
    assert velocity.std.unique().tolist() == [0.3]


# Mistakes.

OTHERS: dict[str, tuple[Any, str]] = {
    "a word": ("zero", "'zero'"), "nothing": (None, "None"), "a claim": (True, "True"), "a complex number": (1j, "1j"),
    "a mapping": ({"mean": 0.0}, "{'mean': 0.0}"),
    "an empty tensor": (torch.zeros(0), "a tensor of shape (0,), torch.float32"),
    "a complex tensor": (torch.zeros(2, dtype=torch.complex64), "a tensor of shape (2,), torch.complex64"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("mistake", "expected", "came", "cure"),
    [
        (
            lambda: adapters.Normalized(inside, 0.0, torch.tensor([1.0, 0.0])),
            "expects finite means and positive finite stds", "stds from 0 to 1", "std.clamp(min=1e-6)",
        ),
        (
            lambda: adapters.Normalized(inside, float("nan"), 1.0),
            "expects finite means and positive finite stds", "got means from nan", "std.clamp",
        ),
        (
            lambda: adapters.Normalized(inside, torch.zeros(3), 1.0)(torch.zeros(2, 3, 4, 3), 0.5),
            "Normalized(mean) expects a number, or the axes of a field (3, 4, 3)", "got (3,)", "mean.view(-1, 1, 1)",
        ),
        (
            lambda: adapters.Normalized(inside, 0.0, torch.ones(2, 5)).projector(LAWS, SHAPE, PARAMS),
            "Normalized(std) expects a number, or the axes of a field (8, 6)", "got (2, 5)", "std.view(-1, 1)",
        ),
        (
            lambda: adapters.Normalized(inside, 0.0, 2.0).projector(LAWS, SHAPE, PARAMS)(torch.zeros(2, 6, 8), PARAMS),
            "project(u_hat=…) expects (b, 8, 6)", "got (2, 6, 8)", "permute",
        ),
        (
            lambda: adapters.Normalized(inside, 0.0, 2.0).projector(LAWS[0], SHAPE, PARAMS),
            "expects a list of laws", "got one Equality", "laws=[law]",
        ),
        (
            lambda: adapters.Normalized(inside, 0.0, 2.0)(torch.zeros(2, 6, 8), None),
            "expects tau as a number or of shape (2,)", "got NoneType", "one per sample",
        ),
        (
            lambda: adapters.Normalized(inside, 0.0, 2.0).projector(LAWS, 8),
            "Projector(shape=…) expects the whole-number extents", "got 8", "shape=(8,)",
        ),
        *(
            (
                lambda mean=mean: adapters.Normalized(inside, mean, 1.0),
                "Normalized(mean) expects a real number, or a tensor of them", f"got {came}", "Normalized(model, mean, std)",
            )
            for mean, came in OTHERS.values()
        ),
    ],
    ids=["std", "mean", "axes", "extents", "fields", "laws", "tau", "shape", *(f"{name} for a mean" for name in OTHERS)],
)  # fmt: skip
def test_a_mistake_is_in_three_parts(mistake: Any, expected: str, came: str, cure: str):
    with pytest.raises(SnapfmError) as caught:
        mistake()
    assert is_in_three_parts(str(caught.value), expected, came, cure), str(caught.value)


def test_a_sample_that_is_not_finite_harms_only_itself():
    project = adapters.Normalized(inside, POINTS, SCALES).projector([*LAWS, Bounds(-5.0, 5.0)], SHAPE, PARAMS)
    u = torch.randn(3, *SHAPE, generator=seeded(14), dtype=torch.float64)
    clean = project(u, PARAMS)
    u[1, 2, 3] = torch.nan
    out = project(u, PARAMS)
    assert out.status.tolist() == [Status.CONVERGED, Status.NONFINITE, Status.CONVERGED]
    assert torch.equal(out.u[[0, 2]], clean.u[[0, 2]])
