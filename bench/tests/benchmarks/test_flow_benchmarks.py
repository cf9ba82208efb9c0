"""The benchmarks of a flow from noise and of the exact Godunov flux, on small grids."""

from __future__ import annotations

import json
from typing import Any

import pytest
from benchmarks import godunov, noise_flow


def test_a_flow_from_noise_is_timed_and_certified():
    found = noise_flow.run(steps=2, samples=2, points=7)
    (row,) = found["rows"]
    assert (row["state"], row["statuses"]) == ("DONE", {"CONVERGED": 2})
    assert 0.0 < row["projection_seconds"] < noise_flow.ASKED
    assert row["fast_enough"]


def test_a_flow_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(noise_flow, "PATIENCE", 0.0)
    (row,) = noise_flow.run(steps=3, samples=1, points=5)["rows"]
    assert (row["state"], row["steps_done"], row["fast_enough"]) == ("DNF", 1, False)


def test_shares_of_godunov_inputs(monkeypatch: pytest.MonkeyPatch):
    asked = []

    def rows(name: str, settings: dict[str, Any], samples: int, distinct: int) -> list[dict[str, Any]]:
        asked.append(settings)
        return [
            {"input": "noise 1", "statuses": {"CONVERGED": 497, "STALLED": 3}},
            {"input": "raw model output", "statuses": "ABSENT: no model of this equation is shipped"},
        ]

    monkeypatch.setattr(godunov, "problem_rows", rows)
    found = godunov.run(500, 50)
    assert all(settings["flux"] == "godunov" for settings in asked)
    assert found["share_worst"] == pytest.approx(0.994)
    assert "share_certified" not in found["rows"][1]
    json.dumps(found)
