"""Conditional: right on exact cases within what chance allows, certified, sample by sample, and what it refuses."""

from __future__ import annotations

import importlib
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tests.sampling.toys import MEAN, SHAPE, Gaussian, pinned, seeded, summed
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Projector
from snapfm.adapters import Normalized
from snapfm.errors import ParamsError, ProjectionFailed, SnapfmError
from snapfm.sampling import COSINE, PCFM, STRAIGHT, Conditional, Flow, Path, Samples, Spread, sample
from snapfm.sampling.conditional.sampler import Measure, _explained
from snapfm_bench.suites.exact.curves import ellipse, saddle
from snapfm_bench.suites.exact.gaussian import gaussian_field
from snapfm_bench.suites.exact.heat import heat
from snapfm_bench.suites.exact.mixture import mixture
from snapfm_bench.suites.exact.run import ExactFixture
from snapfm_bench.suites.exact.suite import ExactSuite
from snapfm_bench.suites.exact.truncated import truncated

COUNT = 256
FAIR = 2.0  # times chance: what the mean over seeds of as many exact draws scores


@cache
def prepared(name: str, measure: Measure = "surface") -> ExactFixture:
    cases = {
        "gaussian": gaussian_field, "truncated": truncated, "heat": heat, "mixture": lambda: mixture(changed=False),
        "mixture-changed": lambda: mixture(changed=True),
    }  # fmt: skip
    curves = {"ellipse": ellipse, "saddle": saddle}
    case = cases[name]() if name in cases else curves[name](measure)
    return ExactFixture(case, ExactSuite(count=COUNT, fields=2048))


def drawn(shared: ExactFixture, sampler: Any, steps: int = 20, **settings: Any) -> Samples:
    return sample(
        shared.case.velocity, shared.projector, count=COUNT, steps=steps, generator=seeded(1), dtype=torch.float64,
        sampler=sampler, **settings,
    )  # fmt: skip


def excess(shared: ExactFixture, found: Samples) -> float:
    """Return the largest score in units of chance."""
    weights = torch.ones(COUNT, dtype=torch.float64) if found.weights is None else found.weights
    scores = shared.case.score(found.u, weights)
    return max(value / shared.chance[name] for name, value in scores.items() if name != "ratio")


@pytest.mark.parametrize("steps", [20, 30])
def test_a_gaussian_field_with_linear_laws_is_right_within_chance(steps: int):
    shared = prepared("gaussian")
    found = drawn(shared, Conditional(shared.spread), steps)
    assert excess(shared, found) <= FAIR
    assert found.projection is not None
    assert found.projection.converged.all()
    assert found.weights is None
    assert found.effective == COUNT
    assert found.calls == steps


def test_projection_alone_is_far_off_on_the_same_case():
    shared = prepared("gaussian")
    assert excess(shared, drawn(shared, PCFM())) > 10 * FAIR


@pytest.mark.parametrize("name", ["heat", "mixture", "mixture-changed"])
def test_fields_that_are_not_gaussian_are_right_within_chance(name: str):
    shared = prepared(name)
    assert shared.spread.pieces is not None
    assert excess(shared, drawn(shared, Conditional(shared.spread), steps=10)) <= FAIR


def test_inequalities_and_bounds_truncate():
    shared = prepared("truncated")
    found = drawn(shared, Conditional(shared.spread))
    assert excess(shared, found) <= FAIR
    assert found.projection is not None
    assert found.projection.converged.all()
    # No atoms: projected draws would lie on the boundary.
    assert ((found.u[:, 1] - found.u[:, 0]).abs() < 1e-9).double().mean() < 0.05


@pytest.mark.parametrize(("name", "measure"), [("ellipse", "residual"), ("saddle", "surface")])
def test_metropolis_draws_from_either_measure(name: str, measure: Measure):
    shared = prepared(name, measure)
    found = drawn(shared, Conditional(shared.spread, measure=measure, corrections=4), steps=6)
    assert excess(shared, found) <= FAIR
    assert found.weights is None
    assert found.projection is not None
    assert found.projection.converged.all()


def test_weights_are_the_factor_between_the_measures():
    shared = prepared("ellipse", "residual")
    found = drawn(shared, Conditional(shared.spread, measure="residual"), steps=4)
    assert found.weights is not None
    slope = torch.stack([found.u[:, 0] / 2.0, 2.0 * found.u[:, 1]], dim=1).norm(dim=1)
    torch.testing.assert_close(found.weights, COUNT * slope.reciprocal() / slope.reciprocal().sum())
    assert found.effective == pytest.approx(float(found.weights.sum() ** 2 / found.weights.square().sum()))
    assert found.effective < COUNT
    plain = drawn(shared, Conditional(shared.spread), steps=4)
    assert plain.weights is None
    assert torch.equal(plain.u, found.u)


SPREAD = Spread.of_fields(MEAN + 0.5 * torch.randn(200, *SHAPE, generator=seeded(8), dtype=torch.float64), rank=4)
CURVED = Projector([Equality("size", lambda u, p: u.square().sum() - 9.0)], SHAPE)
MIXED = Projector(
    [Equality("sum", lambda u, p: u.sum() - 4.0), Inequality("order", lambda u, p: u[0] - u[1] - 3.0), Bounds(lower=-3.0)], SHAPE
)  # fmt: skip


MODES = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(200).view(-1, 1, 1)
TWO = Spread.of_fields(
    MEAN + 2.0 * MODES + 0.2 * torch.randn(400, *SHAPE, generator=seeded(9), dtype=torch.float64), rank=4
)


@pytest.mark.parametrize("project", [CURVED, MIXED], ids=["curved", "inequalities"])
@pytest.mark.parametrize(
    "settings", [{}, {"renewal": 0.5}, {"corrections": 2}, {"spread": TWO}, {"spread": TWO, "corrections": 1}],
    ids=["plain", "renewal", "corrections", "modes", "modes-corrections"],
)  # fmt: skip
def test_a_sample_alone_has_the_bits_it_has_in_a_batch(project: Projector, settings: dict[str, Any]):
    assert TWO.pieces is not None
    assert TWO.pieces.count == 2

    def run(count: int, first: int) -> Tensor:
        return sample(
            Gaussian(MEAN, 0.5), project, count=count, steps=3, generator=seeded(2), dtype=torch.float64, first=first,
            sampler=Conditional(**{"spread": SPREAD} | settings),
        ).u  # fmt: skip

    together = run(5, 0)
    assert torch.equal(together[3:4], run(1, 3))
    assert torch.equal(together, run(5, 0))


@pytest.mark.parametrize("corrections", [0, 1])
def test_a_network_that_blows_up_for_one_sample_spares_the_others_with_modes(corrections: int):
    def run(wrong: float) -> Samples:
        def velocity(u: Tensor, tau: Any) -> Tensor:
            found = Gaussian(MEAN, 0.5)(u, tau)
            return torch.cat([found[:1], wrong * found[1:2], found[2:]])

        return sample(
            velocity, MIXED, count=3, steps=3, generator=seeded(2), dtype=torch.float64, on_failure="keep",
            sampler=Conditional(TWO, corrections=corrections),
        )  # fmt: skip

    good, bad = run(1.0), run(torch.nan)
    assert bad.projection is not None
    assert bad.projection.converged.tolist() == [True, False, True]
    assert torch.equal(bad.u[[0, 2]], good.u[[0, 2]])


@pytest.mark.parametrize("renewal", [0.0, 1.0])
def test_params_and_other_paths(renewal: float):
    params = {"c": torch.tensor([1.0, 2.0, 30.0], dtype=torch.float64)}
    found = sample(
        Gaussian(MEAN, 0.5, cosine=True), summed(), params, count=3, steps=5, generator=seeded(3), dtype=torch.float64,
        sampler=Conditional(SPREAD, renewal=renewal), path=COSINE,
    )  # fmt: skip
    torch.testing.assert_close(found.u.flatten(1).sum(1), params["c"])


@pytest.mark.parametrize("path", [STRAIGHT, COSINE], ids=["straight", "cosine"])
def test_noise_levels_are_spaced_evenly_over_the_spread(path: Path):
    times = Conditional(SPREAD, levels=(2.0, 0.02)).times(6, path, Gaussian(MEAN, 0.5), SHAPE)
    assert (times[0], times[-1], len(times)) == (0.0, 1.0, 7)
    levels = torch.tensor([path.noise(tau) / path.data(tau) for tau in times[1:-1]], dtype=torch.float64) / SPREAD.size
    torch.testing.assert_close(levels, torch.logspace(math.log10(2.0), math.log10(0.02), 5, dtype=torch.float64))
    assert Conditional(SPREAD, levels=None).times(2, path, Gaussian(MEAN, 0.5), SHAPE) == (0.0, 0.5, 1.0)
    assert len(Conditional(SPREAD).times(1, path, Gaussian(MEAN, 0.5), SHAPE)) == 2


FIELDS = MEAN + 0.5 * torch.randn(200, *SHAPE, generator=seeded(8), dtype=torch.float64)


@pytest.mark.parametrize("std", [2.0, torch.linspace(0.5, 4.0, 5, dtype=torch.float64)[None]], ids=["one", "each"])
@pytest.mark.parametrize("given", [True, False], ids=["scale-given", "scale-found"])
def test_a_model_of_normalized_fields_draws_what_it_draws_in_its_own_units(std: float | Tensor, given: bool):
    mean = 3.0
    project = Projector([Equality("sum", lambda u, p: u.sum() - 50.0)], SHAPE)
    inside = Projector([Equality("sum", lambda z, p: (mean + std * z).sum() - 50.0)], SHAPE)
    rank = 8
    spread = Spread.of_fields(mean + std * FIELDS, rank, scale=std if given else 1.0)

    def run(velocity: Any, laws: Projector, spread: Spread) -> Tensor:
        sampler = Conditional(spread, levels=None)
        return sample(
            velocity, laws, count=3, steps=4, generator=seeded(4), dtype=torch.float64, sampler=sampler, shape=SHAPE
        ).u  # fmt: skip

    own = run(Gaussian(MEAN, 0.5), inside, Spread.of_fields(FIELDS, rank))
    found = run(Normalized(Gaussian(MEAN, 0.5), mean, std), project, spread)
    if given:  # the same directions, so the same draws
        torch.testing.assert_close(found, mean + std * own)
    torch.testing.assert_close(found.flatten(1).sum(1), torch.full((3,), 50.0, dtype=torch.float64))
    again = Spread.of_model(Normalized(Gaussian(MEAN, 0.5), mean, std), SHAPE, count=64, rest=0.0)
    assert torch.equal(
        torch.as_tensor(again.scale).expand(SHAPE), torch.as_tensor(std, dtype=torch.float64).expand(SHAPE)
    )


def test_noise_that_is_not_independent_at_every_point_is_refused():
    class Smooth:
        def noise_from(self, white: Tensor) -> Tensor:
            return white + white.roll(1, dims=-1)

        def __call__(self, u: Tensor, tau: Any) -> Tensor:
            return Gaussian(MEAN, 0.5)(u, tau)

    with pytest.raises(ParamsError, match="expects noise that is independent at every point, mean \\+ std·white"):
        sample(Smooth(), summed(), {"c": torch.ones(1, dtype=torch.float64)}, count=2, sampler=Conditional(SPREAD))


def test_modes_are_not_chosen_by_what_the_spread_cannot_explain():
    """Both modes are hundreds of standard deviations off: that one is a little further says little."""
    far = _explained(np.array([[1e5, 1.1e5]]), np.zeros((1, 2)), rows=10)
    near = _explained(np.array([[9.0, 15.0]]), np.zeros((1, 2)), rows=10)
    assert 0.0 < far[0, 0] - far[0, 1] < 2.0
    assert near[0, 0] - near[0, 1] == 3.0


def test_models_with_a_spread_are_sampled_by_it_by_default():
    class Model:
        spread = SPREAD

        def __call__(self, u: Tensor, tau: Any) -> Tensor:
            return Gaussian(MEAN, 0.5)(u, tau)

    module = importlib.import_module("snapfm.sampling.sample")
    assert isinstance(module.default_sampler(Model(), MIXED), Conditional)
    assert isinstance(module.default_sampler(Gaussian(MEAN, 0.5), MIXED), PCFM)
    assert isinstance(module.default_sampler(Model(), None), Flow)


def test_a_law_without_solution_is_reported_and_leaves_the_others():
    law = Equality("size", lambda u, p: u.square().sum() - p["c"])
    project = Projector([law], SHAPE, {"c": torch.ones(1, dtype=torch.float64)})

    def run(values: list[float], count: int, **settings: Any) -> Samples:
        params = {"c": torch.tensor(values, dtype=torch.float64)}
        return sample(
            Gaussian(MEAN, 0.5), project, params, count=count, steps=1, generator=seeded(4), dtype=torch.float64,
            sampler=Conditional(SPREAD), **settings,
        )  # fmt: skip

    with pytest.raises(ProjectionFailed):
        run([9.0, -1.0, 9.0], 3)
    found, good = run([9.0, -1.0, 9.0], 3, on_failure="keep"), run([9.0, 4.0, 9.0], 3)
    assert found.projection is not None
    assert found.projection.converged.tolist() == [True, False, True]
    assert torch.equal(found.u[[0, 2]], good.u[[0, 2]])


def test_the_spread_of_the_velocity_is_taken_if_none_is_given():
    class Model:
        spread = SPREAD

        def __call__(self, u: Tensor, tau: Any) -> Tensor:
            return Gaussian(MEAN, 0.5)(u, tau)

    def run(velocity: Any, sampler: Conditional) -> Tensor:
        return sample(
            velocity, summed(), {"c": torch.ones(1, dtype=torch.float64)}, count=2, steps=3, generator=seeded(5), sampler=sampler,
            dtype=torch.float64,
        ).u  # fmt: skip

    assert torch.equal(run(Model(), Conditional()), run(Gaussian(MEAN, 0.5), Conditional(SPREAD)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"spread": 3.0}, "Conditional(spread) expects a Spread; got float. Write Spread.of_fields(fields)"),
        ({"renewal": 1.5}, "Conditional(renewal) expects a share in [0, 1]; got 1.5. The default is 1."),
        ({"renewal": True}, "Conditional(renewal) expects a share in [0, 1]; got True."),
        ({"rounds": 0}, "Conditional(rounds, tries) expects whole numbers >= 1; got 0 and 8."),
        ({"tries": 1.5}, "Conditional(rounds, tries) expects whole numbers >= 1; got 2 and 1.5."),
        ({"measure": "volume"}, "Conditional(measure) expects 'surface' or 'residual'; got 'volume'."),
        ({"corrections": -1}, "Conditional(corrections) expects a whole number >= 0; got -1."),
        ({"levels": (0.1, 1.0)}, "Conditional(levels) expects the largest and the least noise level"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], words: str):
    with pytest.raises(ParamsError) as refused:
        Conditional(**settings)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (Conditional(), "Conditional(spread) expects how the model's fields vary; got None"),
        (
            Conditional(Spread.of_fields(torch.randn(9, 4, generator=seeded(6)))),
            "Conditional(spread) expects directions of the fields' shape (3, 5); got (4,).",
        ),
    ],
)
def test_a_spread_that_is_missing_or_of_other_fields_is_refused(sampler: Conditional, words: str):
    with pytest.raises(SnapfmError) as refused:
        sample(
            Gaussian(MEAN, 0.5),
            pinned(),
            {"c": torch.ones(1, dtype=torch.float64)},
            count=2,
            generator=seeded(7),
            sampler=sampler,
        )
    assert words in str(refused.value)
