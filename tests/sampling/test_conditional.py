"""Conditional: right on exact cases within what chance allows, certified, sample by sample, and what it refuses."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from tests.sampling.toys import MEAN, SHAPE, Gaussian, pinned, seeded, summed
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Projector
from snapfm.errors import ParamsError, ProjectionFailed, SnapfmError
from snapfm.evidence.exact.curves import ellipse, saddle
from snapfm.evidence.exact.gaussian import gaussian_field
from snapfm.evidence.exact.run import Prepared
from snapfm.evidence.exact.suite import Suite
from snapfm.evidence.exact.truncated import truncated
from snapfm.sampling import COSINE, PCFM, Conditional, Samples, Spread, sample
from snapfm.sampling.conditional import Measure

COUNT = 256
FAIR = 2.0  # times chance: what the mean over seeds of as many exact draws scores


@cache
def prepared(name: str, measure: Measure = "surface") -> Prepared:
    cases = {"gaussian": gaussian_field, "truncated": truncated}
    curves = {"ellipse": ellipse, "saddle": saddle}
    case = cases[name]() if name in cases else curves[name](measure)
    return Prepared(case, Suite(count=COUNT, fields=8192))


def drawn(shared: Prepared, sampler: Any, steps: int = 20, **settings: Any) -> Samples:
    return sample(
        shared.case.velocity, shared.projector, count=COUNT, steps=steps, generator=seeded(1), dtype=torch.float64,
        sampler=sampler, **settings,
    )  # fmt: skip


def excess(shared: Prepared, found: Samples) -> float:
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


def test_inequalities_and_bounds_truncate():
    shared = prepared("truncated")
    found = drawn(shared, Conditional(shared.spread))
    assert excess(shared, found) <= FAIR
    assert found.projection is not None
    assert found.projection.converged.all()
    # No atoms: projected draws would lie on the boundary.
    assert ((found.u[:, 1] - found.u[:, 0]).abs() < 1e-9).double().mean() < 0.05


@pytest.mark.parametrize("measure", ["surface", "residual"])
@pytest.mark.parametrize("name", ["ellipse", "saddle"])
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


@pytest.mark.parametrize("project", [CURVED, MIXED], ids=["curved", "inequalities"])
@pytest.mark.parametrize("settings", [{}, {"renewal": 0.5}, {"corrections": 2}], ids=str)
def test_a_sample_alone_has_the_bits_it_has_in_a_batch(project: Projector, settings: dict[str, Any]):
    def run(count: int, first: int) -> Tensor:
        return sample(
            Gaussian(MEAN, 0.5), project, count=count, steps=3, generator=seeded(2), dtype=torch.float64, first=first,
            sampler=Conditional(SPREAD, **settings),
        ).u  # fmt: skip

    together = run(5, 0)
    assert torch.equal(together[3:4], run(1, 3))
    assert torch.equal(together, run(5, 0))


@pytest.mark.parametrize("renewal", [0.0, 1.0])
def test_params_and_other_paths(renewal: float):
    params = {"c": torch.tensor([1.0, 2.0, 30.0], dtype=torch.float64)}
    found = sample(
        Gaussian(MEAN, 0.5, cosine=True), summed(), params, count=3, steps=5, generator=seeded(3), dtype=torch.float64,
        sampler=Conditional(SPREAD, renewal=renewal), path=COSINE,
    )  # fmt: skip
    torch.testing.assert_close(found.u.flatten(1).sum(1), params["c"])


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
