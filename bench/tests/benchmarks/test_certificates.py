"""The audit of certificates: its judge catches planted false answers, and finds none of first order in a small draw."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Projection, Status
from snapfm.laws import Law

ROOT = Path(__file__).parents[3]
CIRCLE = Equality("circle", lambda u, p: (u**2).sum() - 1.0)
FIRST_ORDER = {"violation", "stationarity", "multipliers", "sign", "nonfinite"}


@pytest.fixture(scope="module")
def certificates() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield importlib.import_module("benchmarks.certificates")


def row(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


def caught(
    audit: ModuleType, laws: list[Law], u_hat: Tensor, u: Tensor, multipliers: dict[str, Tensor],
    status: Status = Status.CONVERGED, known: Tensor | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Let the judge look at an answer that somebody claims."""
    case = audit.Case(tuple(u_hat.shape[1:]), tuple(laws), ("planted",), {}, u_hat, known)
    nothing = torch.zeros(len(u_hat))
    claim = Projection(
        u,
        torch.full((len(u),), int(status), dtype=torch.int8),
        nothing,
        nothing,
        nothing,
        nothing,
        multipliers,
        {},
        1e-8,
        nothing,
        torch.ones(len(u), dtype=torch.int8),
        torch.zeros(len(u), dtype=torch.bool),
    )
    return audit.false_claims(case, claim, audit.measure(case, u, multipliers))


def faults(*planted: Any, **options: Any) -> list[str]:
    return [claim["fault"] for claim in caught(*planted, **options)]


def test_the_nearest_point_of_a_circle_passes(certificates: ModuleType):
    assert faults(certificates, [CIRCLE], row(2.0, 0.0), row(1.0, 0.0), {"circle": row(0.5)}) == []


def test_the_farthest_point_of_a_circle_is_caught_by_its_curvature(certificates: ModuleType):
    (claim,) = caught(certificates, [CIRCLE], row(2.0, 0.0), row(-1.0, 0.0), {"circle": row(-1.5)})
    assert claim["fault"] == "second order"
    assert claim["curvature"] == pytest.approx(-1.0)  # W = −2, over its norm
    assert claim["nearer_by"] > 0


def test_the_far_vertex_of_an_ellipse_seen_from_its_center_is_caught(certificates: ModuleType):
    ellipse: list[Law] = [Equality("ellipse", lambda u, p: u[0] ** 2 + u[1] ** 2 / 4.0 - 1.0)]
    assert faults(certificates, ellipse, row(0.0, 0.0), row(0.0, 2.0), {"ellipse": row(-2.0)}) == ["second order"]
    assert faults(certificates, ellipse, row(0.0, 0.0), row(1.0, 0.0), {"ellipse": row(-0.5)}) == []


def test_noise_that_obeys_is_caught(certificates: ModuleType):
    noise = torch.randn(1, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    laws: list[Law] = [Equality("mass", lambda u, p: u.sum() - 1.0)]
    lawful = noise + (1.0 - noise.sum()) / 6
    assert faults(certificates, laws, torch.zeros(1, 6).double(), lawful, {"mass": row(0.0)}) == ["stationarity"]


def test_a_field_that_breaks_its_law_is_caught(certificates: ModuleType):
    u, weight = row(1.0 + 1e-8, 0.0), row((1.0 - 1e-8) / (2.0 + 2e-8))
    assert faults(certificates, [CIRCLE], row(2.0, 0.0), u, {"circle": weight}) == ["violation"]


def test_multipliers_of_the_wrong_sign_or_of_a_slack_row_are_caught(certificates: ModuleType):
    laws: list[Law] = [Inequality("at most one", lambda u, p: u[0] - 1.0)]
    assert faults(certificates, laws, row(0.0, 0.0), row(1.0, 0.0), {"at most one": row(-1.0)}) == ["sign"]
    assert faults(certificates, laws, row(2.0, 0.0), row(0.5, 0.0), {"at most one": row(1.5)}) == ["sign"]
    assert faults(certificates, laws, row(2.0, 0.0), row(1.0, 0.0), {"at most one": row(1.0)}) == []


def test_a_right_field_with_multipliers_that_do_not_fit_is_told_apart(certificates: ModuleType):
    assert faults(certificates, [CIRCLE], row(2.0, 0.0), row(1.0, 0.0), {"circle": row(0.4)}) == ["multipliers"]


def test_a_bound_pushes_one_way_only(certificates: ModuleType):
    laws: list[Law] = [Bounds(lower=0.0)]
    assert faults(certificates, laws, row(-1.0, 2.0), row(0.0, 2.0), {}) == []
    assert faults(certificates, laws, row(1.0, 2.0), row(0.0, 2.0), {}) == ["stationarity"]


def test_at_a_kink_any_slope_between_the_two_sides_may_certify(certificates: ModuleType):
    laws: list[Law] = [Equality("largest", lambda u, p: torch.maximum(u[0], u[1]) - 1.0)]
    assert faults(certificates, laws, row(2.0, 1.0), row(1.0, 1.0), {"largest": row(1.0)}) == []
    assert faults(certificates, laws, row(2.0, 0.0), row(1.0, 1.0), {"largest": row(1.0)}) == ["stationarity"]


def test_many_kinks_are_weighed_one_by_one(certificates: ModuleType):
    """Twenty kinks have a million sides, of which a few can be drawn."""
    laws: list[Law] = [Inequality("sizes", lambda u, p: (u.abs().sum() - 1.0)[None])]
    u_hat = torch.cat([torch.tensor([3.0]), torch.linspace(-1.9, 1.9, 20)]).double()[None]
    u = torch.zeros(1, 21, dtype=torch.float64)
    u[0, 0] = 1.0
    assert faults(certificates, laws, u_hat, u, {"sizes": row(2.0)}) == []
    u_hat[0, 7] = 2.5  # no weight of |u[7]| up to one holds it at zero
    assert faults(certificates, laws, u_hat, u, {"sizes": row(2.0)}) == ["stationarity"]


def test_float32_is_allowed_its_rounding_and_no_more(certificates: ModuleType):
    laws: list[Law] = [Equality("first", lambda u, p: u[0] - 0.1)]
    rounded = torch.tensor([[0.1, 0.0]], dtype=torch.float32)  # off by 1.5e-9
    far = torch.tensor([[0.1 + 1e-7, 0.0]], dtype=torch.float32)
    u_hat = torch.tensor([[1.0, 0.0]], dtype=torch.float32)
    assert faults(certificates, laws, u_hat, rounded, {"first": row(0.9)}) == []
    assert faults(certificates, laws, u_hat, far, {"first": row(0.9)}) == ["violation"]


def test_infeasible_is_false_where_a_lawful_field_is_known(certificates: ModuleType):
    known, nothing = row(1.0, 0.0), {"circle": row(0.0)}
    infeasible: dict[str, Any] = {"status": Status.INFEASIBLE, "known": known}
    assert faults(certificates, [CIRCLE], row(2.0, 0.0), row(2.0, 0.0), nothing, **infeasible) == ["infeasible"]
    # At the center all slopes vanish: no step mends the law, and the claim is true nearby.
    center = row(0.0, 0.0)
    assert faults(certificates, [CIRCLE], center, center, nothing, **infeasible) == ["infeasible, true nearby"]
    infeasible["known"] = row(0.5, 0.0)  # it does not obey: nothing is known
    assert faults(certificates, [CIRCLE], row(2.0, 0.0), row(2.0, 0.0), nothing, **infeasible) == []


def test_nan_is_caught_whatever_is_claimed(certificates: ModuleType):
    u_hat, u = row(torch.nan, 0.0), row(1.0, 0.0)
    assert "nonfinite" in faults(certificates, [CIRCLE], u_hat, u, {"circle": row(0.0)})
    assert "violation" in faults(certificates, [CIRCLE], u, row(torch.nan, 0.0), {"circle": row(0.0)})
    assert faults(certificates, [CIRCLE], u, u, {"circle": row(torch.nan)}) == ["multipliers"]


KINDS = (
    "random", "curved", "square", "repeated", "scaled", "units", "lawful", "stationary", "symmetric", "kinked",
    "contradictory", "nonfinite", "simplex", "warm", "single", "domain", "physics",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_draw_holds_no_false_claim_of_first_order(certificates: ModuleType, kind: str):
    found = certificates.one(kind, 1)
    assert found["error"] is None
    assert [claim for claim in found["false"] if claim["fault"] in FIRST_ORDER] == []


def test_every_kind_is_drawn_by_kind_and_number_alone(certificates: ModuleType):
    assert {*KINDS, "large", "slow"} == set(certificates.KINDS)
    assert sum(share for _, share in certificates.KINDS.values()) == pytest.approx(1.0)
    for kind in certificates.KINDS:
        torch.manual_seed(0)
        first = certificates.draw(kind, 2)
        torch.manual_seed(1)
        again = certificates.draw(kind, 2)
        assert torch.equal(first.u_hat.nan_to_num(), again.u_hat.nan_to_num())
        assert first.makes == again.makes
    assert not torch.equal(certificates.draw("simplex", 0).u_hat[0], certificates.draw("simplex", 1).u_hat[0])


def test_a_run_counts_what_it_drew(certificates: ModuleType, monkeypatch: pytest.MonkeyPatch):
    few = {kind: (certificates.KINDS[kind][0], 0.5) for kind in ("simplex", "curved")}
    monkeypatch.setattr("benchmarks.certificates.audit.KINDS", few)
    found = certificates.run(60)
    assert set(found["kinds"]) == set(few)
    assert found["samples"] == sum(kind["samples"] for kind in found["kinds"].values()) >= 60
    assert sum(found["statuses"].values()) == found["samples"]
    assert found["second_order"] == found["statuses"]["CONVERGED"]
    json.dumps(found)


def test_one_case_can_be_shown_again(
    certificates: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "certificates", "--only", "simplex:3"])
    importlib.import_module("benchmarks.__main__").main()
    assert json.loads(capsys.readouterr().out)["case"] == "simplex:3"
