"""Tolerances by law: one number inside, each law judged by its own."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Oracle, Projection, Projector, Status
from snapfm.errors import LawError, ProjectionFailed
from snapfm.laws import Law
from snapfm.project.tolerance import of_rows, row_weights

SHAPE = (4, 5)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mass(u, p):
    return u.sum(0) - 1.0


def energy(u, p):
    return 1e6 * ((u**2).sum(0) - 3.0)


LAWS: list[Law] = [
    Equality("mass", mass), Equality("energy", energy), Inequality("pairs", lambda u, p: u[0] * u[1] - 0.5),
    Bounds(lower=-2.0),
]  # fmt: skip
TOLERANCE = {"mass": 1e-9, "energy": 1.0, "pairs": 1e-5}


def test_rows_are_weighted_by_powers_of_two_that_never_loosen():
    slices = {"a": slice(0, 2), "b": slice(2, 3), "c": slice(3, 3)}
    tolerance = {"a": 1e-8, "b": 3e-3, "c": 1e-20}
    strictest, weights = row_weights(tolerance, slices)
    assert strictest == 1e-8  # of laws that have rows
    assert weights is not None
    assert np.array_equal(np.exp2(np.round(np.log2(weights))), weights)
    effective = strictest / weights
    assert (effective <= of_rows(tolerance, slices)).all()
    assert (effective > 0.5 * of_rows(tolerance, slices)).all()
    assert row_weights(1e-8, slices) == (1e-8, None)


def test_every_law_is_judged_by_its_own():
    u = drawn(6, *SHAPE, seed=1)
    found = Projector(LAWS, SHAPE, tolerance=TOLERANCE)(u)
    assert bool(found.converged.all())
    assert found.tolerance == {**TOLERANCE, "bounds": 1e-8}
    for name, size in found.by_law.items():
        assert float(size.max()) <= found.tolerance[name]
    strict = Projector(LAWS, SHAPE, tolerance=1e-7)(u)
    torch.testing.assert_close(found.u, strict.u, rtol=0.0, atol=1e-5)
    for name, multipliers in found.multipliers.items():
        torch.testing.assert_close(multipliers, strict.multipliers[name], rtol=1e-3, atol=1e-5)


def test_a_law_off_by_less_than_its_own_is_obeyed_by_more_is_not():
    """Two laws that contradict each other a little: the tolerance of the second decides."""
    laws = [Equality("points", lambda u, p: u[0] - 1.0), Equality("total", lambda u, p: u[0].sum() - p["total"])]
    project = Projector(laws, SHAPE, {"total": torch.zeros(1, dtype=torch.float64)}, {"total": 1e-3})
    found = project(drawn(3, *SHAPE), {"total": 5.0 + torch.tensor([0.0, 5e-4, 1e-2], dtype=torch.float64)})
    assert found.status.tolist() == [Status.CONVERGED, Status.CONVERGED, Status.INFEASIBLE]
    assert float(found.violation[1]) == pytest.approx(5e-4)


def test_a_call_has_its_own_and_others_keep_the_projectors():
    project, u = Projector(LAWS, SHAPE, tolerance=TOLERANCE), drawn(3, *SHAPE, seed=1)
    assert project(u, tolerance={"mass": 1e-7}).tolerance == {**TOLERANCE, "mass": 1e-7, "bounds": 1e-8}
    assert project(u, tolerance=1e-6).tolerance == 1e-6
    assert project.tolerance == {**TOLERANCE, "bounds": 1e-8}
    assert torch.equal(project(u).u, Projector(LAWS, SHAPE)(u, tolerance=project.tolerance).u)
    assert project.move(u, tolerance={"energy": 2.0}).u.shape == u.shape


def test_what_the_caller_writes_later_has_no_effect():
    own = dict(TOLERANCE)
    project = Projector(LAWS, SHAPE, tolerance=own)
    own["mass"] = 1.0
    assert project(drawn(1, *SHAPE)).tolerance["mass"] == TOLERANCE["mass"]


def test_gradients_and_warm_starts_do_not_depend_on_them():
    weight = drawn(3, *SHAPE, seed=7)

    def slope(tolerance) -> tuple[Tensor, Projection]:
        u = drawn(3, *SHAPE, seed=1).requires_grad_()
        found = Projector(LAWS[:2], SHAPE, tolerance=tolerance)(u)
        (found.u * weight).sum().backward()
        return u.grad, found

    (mine, found), (theirs, strict) = slope({"mass": 1e-9, "energy": 1e-3}), slope(1e-7)
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)
    project = Projector(LAWS[:2], SHAPE, tolerance={"energy": 1e-3})
    for known in (found, strict):  # of other projectors: through multipliers
        assert int(project(drawn(3, *SHAPE, seed=1), warm=known).iterations.max()) <= 2


def test_steps_of_a_march_opaque_laws_and_oracles():
    march = [
        Equality("start", lambda u, p: u[:, 0] - 0.3),
        Equality("steps", lambda u, p: 1e9 * (u[:, 1:] - u[:, :-1] + 0.1 * u[:, 1:] ** 3 + 0.2 * u[:, 1:].roll(1, 0))),
    ]
    opaque = [
        Equality("product", lambda u, p: 1e9 * (torch.cumprod(1.0 + 0.3 * u, 0)[-1] - 1.1)),
        Equality("mass", mass),
    ]
    oracle = [
        Oracle("cubes", lambda u, p: 1e9 * (u[0] ** 3 - 0.2), jacobian=lambda u, p: _cubes(u)), Equality("mass", mass)
    ]  # fmt: skip
    for laws, name in ((march, "steps"), (opaque, "product"), (oracle, "cubes")):
        found = Projector(laws, SHAPE, tolerance={name: 1.0})(0.5 + 0.1 * drawn(3, *SHAPE))
        assert bool(found.converged.all()), name
        assert float(found.by_law[name].max()) <= 1.0


def _cubes(u: np.ndarray) -> np.ndarray:
    slopes = np.zeros((5, 4, 5))
    slopes[np.arange(5), 0, np.arange(5)] = 3e9 * u[0] ** 2
    return slopes.reshape(5, 20)


def test_messages_name_the_law_that_is_furthest_from_its_own():
    project = Projector(LAWS, SHAPE, tolerance=TOLERANCE)
    with pytest.raises(ProjectionFailed, match=r"law '\w+' is off by .* \(tolerance 1e-0\d|\(tolerance 1e\+00"):
        project(5.0 * drawn(2, *SHAPE), limit=1).raise_for_status()
    assert "tolerance mass 1e-09, energy 1, pairs 1e-05, bounds 1e-08" in repr(project)
    assert "energy 1" in str(project(drawn(2, *SHAPE)))
    with pytest.raises(LawError, match=r"expects names of its laws, \['mass', .*\]; got \['mas'\]\. Correct the names"):
        Projector(LAWS, SHAPE, tolerance={"mas": 1.0})
    with pytest.raises(LawError, match="expects a positive number, and a finite one; got 0"):
        project(drawn(1, *SHAPE), tolerance={"mass": 0})


def test_results_and_projectors_travel_and_join():
    project = pickle.loads(
        pickle.dumps(Projector([Equality("mass", mass), Equality("energy", energy)], SHAPE, tolerance={"energy": 1.0}))
    )
    found = project(drawn(4, *SHAPE))
    assert found.tolerance == {"mass": 1e-8, "energy": 1.0}
    joined = Projection.concat([found.select([0, 1]), found.select([2, 3])])
    assert joined.tolerance == found.tolerance
