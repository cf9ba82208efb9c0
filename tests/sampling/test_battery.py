"""One battery for all samplers: what every way from noise to fields promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.sampling.toys import CERTIFIED, DIFFERENTIATES, LAWLESS, SAMPLERS, SHAPE, bent, mixed, run, seeded
from torch import Tensor, nn

from snapfm import Equality, Projector, Status
from snapfm.errors import ParamsError, ProjectionFailed
from snapfm.sampling import Samples, sample

U0 = torch.randn(5, SHAPE[0], generator=seeded(1), dtype=torch.float64)
DTYPES = [torch.float32, torch.float64]


@pytest.fixture(scope="module")
def project() -> Projector:
    return mixed()


@pytest.fixture(params=SAMPLERS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def draw(name: str, project: Projector) -> Callable[..., Samples]:
    def drawn(count: int = 3, first: int = 0, velocity: Any = bent, **more: Any) -> Samples:
        params = {"u0": U0[first : first + count]}
        return run(SAMPLERS[name], velocity, project, params, count, first=first, **({"on_failure": "raise"} | more))

    return drawn


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 3, 5])  # five is also the length of the last axis
def test_fields_have_the_shape_and_dtype_asked_for(draw: Any, count: int, dtype: torch.dtype):
    out = draw(count, dtype=dtype)
    assert out.u.shape == (count, *SHAPE)
    assert out.u.dtype == dtype
    assert bool(out.u.isfinite().all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sample_depends_on_the_seed_and_its_number_alone(draw: Any, dtype: torch.dtype):
    whole = draw(5, dtype=dtype).u
    for first in (4, 0, 2, 1, 3):
        assert torch.equal(draw(1, first, dtype=dtype).u[0], whole[first])
    assert torch.equal(draw(3, 1, dtype=dtype).u, whole[1:4])
    assert not torch.equal(whole[0], whole[1])


def test_one_seed_gives_one_result_and_a_generator_moves_on(draw: Any):
    generator = seeded(9)
    first, second = draw(generator=generator).u, draw(generator=generator).u
    assert torch.equal(first, draw(generator=seeded(9)).u)
    assert not torch.equal(first, second)


def test_certificates_are_given_by_those_who_project_last(draw: Any, name: str, project: Projector):
    out = draw()
    assert (out.projection is not None) == (name in CERTIFIED)
    if out.projection is not None:
        assert torch.equal(out.u, out.projection.u)
        assert out.projection.status.tolist() == [Status.CONVERGED] * 3
        assert float(project.check(out.u, {"u0": U0[:3]}).violation.max()) <= project.tolerance


def test_progress_is_reported_once_per_step(draw: Any):
    reported: list[tuple[int, int]] = []
    draw(steps=5, progress=lambda done, total: reported.append((done, total)))
    assert reported == [(k, 5) for k in range(1, 6)]
    reported.clear()
    draw(times=(0.0, 0.1, 0.5, 0.6, 1.0), progress=lambda done, total: reported.append((done, total)))
    assert reported == [(k, 4) for k in range(1, 5)]


def test_time_and_calls_are_counted(draw: Any, name: str):
    calls: list[int] = []

    def counted(u: Tensor, tau: Any) -> Tensor:
        calls.append(1)
        return bent(u, tau)

    out = draw(velocity=counted)
    assert out.calls == len(calls) > 0
    assert list(out.seconds) == ["velocity", "projection", "other"]
    assert out.seconds["velocity"] > 0
    assert (out.seconds["projection"] > 0) == (name in CERTIFIED)


def test_a_network_that_blows_up_for_one_sample_spares_the_others(draw: Any, name: str):
    def broken(u: Tensor, tau: Any) -> Tensor:
        lost = torch.arange(len(u)) == 1
        return torch.where(lost.view(-1, 1, 1), torch.nan, bent(u, tau))

    out, healthy = draw(velocity=broken, on_failure="keep"), draw()
    assert torch.equal(out.u[[0, 2]], healthy.u[[0, 2]])
    if name in CERTIFIED:
        assert out.projection.status.tolist() == [Status.CONVERGED, Status.NONFINITE, Status.CONVERGED]
        with pytest.raises(ProjectionFailed, match="sample 1: NONFINITE"):
            draw(velocity=broken)
    else:
        assert not bool(out.u[1].isfinite().any())


def test_a_sample_without_feasible_fields_spares_the_others(name: str):
    laws = [Equality("a", lambda u, p: u.sum() - p["a"]), Equality("b", lambda u, p: u.sum() - p["b"])]
    params = {"a": torch.tensor([1.0, 2.0, 3.0]), "b": torch.tensor([1.0, 9.0, 3.0])}
    project = Projector(laws, SHAPE, {key: value[:1] for key, value in params.items()})
    out = run(SAMPLERS[name], bent, project, params, on_failure="keep")
    agreeing = run(SAMPLERS[name], bent, project, params | {"b": params["a"]})
    assert torch.equal(out.u[[0, 2]], agreeing.u[[0, 2]])
    if name in CERTIFIED:
        assert out.projection.status.tolist() == [Status.CONVERGED, Status.INFEASIBLE, Status.CONVERGED]


def test_fields_are_tensors_to_go_on_with(draw: Any):
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(0.5))

        def forward(self, u: Tensor, tau: Any) -> Tensor:
            return self.weight * bent(u, tau)

    network = Network()
    out = draw(velocity=network)
    assert out.u.dtype == torch.float64  # whatever the network computes in
    assert not out.u.requires_grad
    assert network.weight.grad is None
    weight = torch.ones((), requires_grad=True)
    (weight * out.u).sum().backward()


def test_gradients_on_or_off_outside_make_no_difference(draw: Any):
    expected = draw().u
    with torch.no_grad():
        assert torch.equal(draw().u, expected)
    with torch.enable_grad():
        assert torch.equal(draw().u, expected)


def test_inference_mode_serves_those_who_do_not_differentiate(draw: Any, name: str):
    expected = draw().u
    with torch.inference_mode():
        if name in DIFFERENTIATES:
            with pytest.raises(
                ParamsError, match=r"expects to differentiate; got torch.inference_mode\(\).*torch.no_grad"
            ):
                draw()
        else:
            assert torch.equal(draw().u, expected)


def test_the_callers_noise_is_not_written_on(draw: Any):
    """A sampler that worked in place would change what the next look at the noise sees."""
    seen: list[Tensor] = []

    def watching(u: Tensor, tau: Any) -> Tensor:
        if not seen:
            seen.extend([u, u.detach().clone()])
        return bent(u, tau)

    draw(velocity=watching)
    assert torch.equal(seen[0].detach(), seen[1])


def test_without_a_projector_samplers_say_what_they_miss(name: str):
    calls: list[int] = []

    def counted(u: Tensor, tau: Any) -> Tensor:
        calls.append(1)
        return bent(u, tau)

    def drawn() -> Samples:
        return sample(counted, None, None, 2, 3, seeded(), sampler=SAMPLERS[name], shape=SHAPE)

    if name in LAWLESS:
        assert drawn().projection is None
        return
    with pytest.raises(ParamsError, match=r"expects a projector.*got None\. Pass snapfm\.Projector"):
        drawn()
    assert len(calls) <= 1  # raised before the first step


def test_settings_are_frozen_and_compare_by_value(name: str):
    sampler = SAMPLERS[name]
    assert sampler == type(sampler)(**{key: getattr(sampler, key) for key in sampler.__dataclass_fields__})
    with pytest.raises(AttributeError):
        setattr(sampler, next(iter(sampler.__dataclass_fields__)), None)
