"""The audit: known verdicts, what they rest on, and that no law is left out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import snapfm
from snapfm.errors import ShapeError, UnknownName
from snapfm_bench.audit import READINGS, AuditVerdict, audit, audit_reading, finer, leftover, targets, verdict
from snapfm_bench.problems import names

OBEYED, APPROXIMATE, CONTRADICTED = AuditVerdict


def verdicts(target: str) -> dict[tuple[str, str, str], AuditVerdict]:
    found = audit(target, count=4)
    return {(one.problem, one.law, "".join(map(str, one.settings.values()))): one.verdict for one in found}


def test_heat() -> None:
    found = verdicts("heat")
    assert found["heat-ic-mass", "mass", ""] is OBEYED
    mixed = "heat-ic-mass-pde-energy"
    assert found[mixed, "mass", ""] is APPROXIMATE  # the repeated point counts twice: first order
    assert found[mixed, "pde", ""] is found[mixed, "pde", "release"] is CONTRADICTED  # κ = 0.01 is not α
    assert found[mixed, "energy", ""] is OBEYED
    assert found[mixed, "energy", "equality"] is CONTRADICTED
    assert found["heat-ic-mass-implicit", "pde", ""] is APPROXIMATE
    assert found["heat-ic-mass-implicit", "pde", "kernel"] is OBEYED


def test_burgers() -> None:
    found = verdicts("burgers")
    assert {key[2]: value for key, value in found.items() if key[:2] == ("burgers-bc-mass", "mass")} == {
        "": APPROXIMATE, "constant": CONTRADICTED, "flux": OBEYED,
    }  # fmt: skip
    assert {key[2]: value for key, value in found.items() if key[:2] == ("burgers-ic-mass", "mass")} == {
        "": CONTRADICTED, "balance": APPROXIMATE, "flux": OBEYED,
    }  # fmt: skip
    flux = {value for key, value in found.items() if key[:2] == ("burgers-ic-mass-flux", "flux")}
    assert flux == {OBEYED}
    assert {value for key, value in found.items() if key[1] in ("initial", "dirichlet", "neumann")} == {OBEYED}


def test_reaction_diffusion() -> None:
    found = audit("reaction-diffusion-ic-mass", count=4)
    assert {one.verdict for one in found if one.law == "mass"} == {APPROXIMATE}
    inner = next(one for one in found if one.settings == {"inner": True})
    assert inner.refined == "time"
    assert inner.order == pytest.approx(2.0, abs=0.1)
    first = next(one for one in found if one.law == "mass" and not one.settings)
    assert first.order == pytest.approx(1.0, abs=0.1)


def test_inequalities() -> None:
    entropy = {key[2]: value for key, value in verdicts("burgers-ic-mass-entropy").items() if key[1] == "entropy"}
    assert entropy == {"": APPROXIMATE, "0.5": OBEYED}
    assert verdicts("reaction-diffusion-ic-mass-bounds")["reaction-diffusion-ic-mass-bounds", "bounds", ""] is OBEYED


def test_limits_that_are_broken_are_compared_with_the_values() -> None:
    u = torch.tensor([[[0.5, 1.5], [-1.0, 1.0]]], dtype=torch.float64)
    assert leftover(snapfm.Bounds(0.0, 1.0), u, {}) == pytest.approx(1.5 / 4.0)


def test_navier_stokes() -> None:
    # 48 points are the fewest that resolve the refined grid; the whole audit takes a minute at 64.
    name, coarse = "navier-stokes-ic-mass-enstrophy", {"resolution": 48, "nt": 10}
    found = {one.law: one.verdict for one in audit_reading(name, coarse, None, count=1, seed=0)}
    assert found == {"initial": OBEYED, "mass": OBEYED, "enstrophy": CONTRADICTED}
    (mass,) = audit_reading(name, {**coarse, "discretization": "release"}, "mass", count=1, seed=0)
    assert mass.verdict is APPROXIMATE
    assert mass.order == pytest.approx(1.0, abs=0.1)


def test_errors_are_the_published_metric() -> None:
    problem = snapfm.problem("burgers-ic-mass")
    fields, params = problem.draw_truth(1, 0, 3)
    rows = torch.stack([problem.laws[1].residual(fields[i], {"u0": params["u0"][i]}) for i in range(3)])
    mass = next(one for one in audit("burgers-ic-mass", count=3, seed=1) if one.law == "mass" and not one.settings)
    assert mass.error == pytest.approx(float(rows.norm(dim=1).mean()))
    assert mass.largest == pytest.approx(float(rows.norm(dim=1).max()))
    assert (mass.rows, mass.samples, mass.equation) == (101, 3, "burgers")


def test_what_is_left_over_does_not_depend_on_how_a_law_is_written() -> None:
    """A balance as rate, as increment and in other units: the same share of the same two terms."""
    t = torch.linspace(0.0, 1.0, 21, dtype=torch.float64)
    u = torch.stack([torch.exp(-t), 2 * torch.exp(-t)])[None]  # u' = −u
    dt = float(t[1])

    def share(scale: float, rate: float) -> float:
        def residual(u: torch.Tensor, params: Any) -> torch.Tensor:
            return scale * ((u[:, 1:] - u[:, :-1]) / dt + rate * u[:, :-1])

        return leftover(snapfm.Equality("decay", residual), u, {})

    assert share(1.0, 1.0) == pytest.approx(dt / 4, rel=0.1)  # forward Euler: ½ dt of each of two equal terms
    assert share(1000 * dt, 1.0) == pytest.approx(share(1.0, 1.0))
    assert share(1.0, 0.0) == pytest.approx(share(1e-3, 0.0))  # a law of change only is compared with its values
    assert share(1.0, 1e-3) > 0.99


def test_a_law_within_a_slice_is_compared_with_its_values() -> None:
    law = snapfm.Equality("mass", lambda u, p: u.sum(0) - p["m"])
    u = torch.tensor([[[1.0, 1.0], [-3.0, -3.0]]], dtype=torch.float64)
    assert leftover(law, u, {"m": torch.zeros(1, 2, dtype=torch.float64)}) == pytest.approx(0.5)
    assert leftover(law, u, {"m": torch.full((1, 2), -2.0, dtype=torch.float64)}) == 0.0


def test_verdicts_at_their_limits() -> None:
    assert verdict(0.0, None) is verdict(1e-10, None) is OBEYED
    assert verdict(0.3, 0.5) is APPROXIMATE
    assert verdict(0.3, 0.4) is verdict(1e-6, 0.0) is CONTRADICTED


def test_refining_halves_every_spacing_and_keeps_what_is_covered() -> None:
    for name, settings in (("burgers-ic-mass-flux", {"flux_steps": 3}), ("navier-stokes-ic-mass", {})):
        grids = [snapfm.problem(name, **s).grid for s in (settings, finer(name, settings, "space and time"))]
        for axis in grids[0].axes:
            assert grids[1].spacing(axis.name) == pytest.approx(0.5 * axis.spacing)
    assert finer("burgers-ic-mass-flux", {"flux_steps": 3}, "time") == {"nt": 201, "flux_steps": 6}
    assert finer("heat-ic-mass-implicit", {"pde_steps": None}, "space") == {"pde_steps": None, "nx": 199}


def test_every_problem_is_listed_with_laws_it_has() -> None:
    assert sorted(READINGS) == names()
    for name, readings in READINGS.items():
        for settings, only in readings:
            assert only in {law.name for law in snapfm.problem(name, **settings).laws}


def test_what_can_be_audited() -> None:
    assert {"all", "heat", "burgers-ic"} <= set(targets())
    with pytest.raises(UnknownName, match=r"audit\(target\) expects one of \[.*\]; got 'moon'\. `snapfm problems`"):
        audit("moon")
    with pytest.raises(ShapeError, match=r"audit\(count\) expects a whole number >= 1; got 0\. Eight"):
        audit("heat", count=0)
