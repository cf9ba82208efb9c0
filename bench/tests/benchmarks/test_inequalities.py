"""The benchmark of the two tasks with inequalities, on a few samples and steps, and its page."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from benchmarks import inequalities
from benchmarks.inequalities_page import page

from snapfm_bench.problems import problem
from snapfm_bench.published import INEQUALITIES


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    found = inequalities.run(samples=2, steps=2, noise_samples=2)
    return json.loads(json.dumps(found))  # as a record is read


def test_every_sample_is_feasible_and_certified(record: dict[str, Any]):
    rows = [row for row in record["rows"] if row["method"] != "true fields"]
    assert len(rows) == 2 * len(inequalities.TASKS)
    for row in rows:
        assert (row["state"], row["feasible"], row["certified"]) == ("DONE", 1.0, 1.0)
        assert max(row["violation_worst"].values()) <= record["tolerance"]
    assert {row["problem"] for row in rows} == set(INEQUALITIES)


def test_true_fields_obey_but_for_the_error_of_their_scheme(record: dict[str, Any]):
    share = [row["feasible"] for row in record["rows"] if row["method"] == "true fields"]
    assert share == [0.0, 1.0, 1.0]  # Oleinik with E = 1 and 1/2, and limits


def test_fields_are_judged_by_the_laws_and_not_by_their_certificate():
    chosen = problem("reaction-diffusion-ic-mass-bounds", nx=9, nt=5)
    u, params = chosen.draw_truth(0, 0, 3)
    u[1, 3, 2] = 1.1
    found = inequalities._judged(chosen, u, params, torch.ones(3, dtype=torch.bool))
    assert found["feasible"] <= 2 / 3
    assert found["certified"] == 0.0  # true fields obey the mass evolution to the error of their scheme alone
    assert found["violation_worst"]["bounds"] == pytest.approx(0.1)


def test_a_flow_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inequalities, "PATIENCE", 0.0)
    monkeypatch.setattr(inequalities, "TASKS", inequalities.TASKS[2:])
    found = inequalities.run(samples=2, steps=3, noise_samples=1)["rows"]
    assert [row["state"] for row in found] == ["DONE", "DNF", "DONE"]
    assert found[1]["steps_done"] == 1


def test_published_figures_stand_beside_ours(record: dict[str, Any]):
    told = page({**record, "machine": {"cores": 2, "processor": "x"}})
    assert "| burgers-ic-mass-entropy | I-PCFM, as quoted, published | 0.53 | – | – | 17.5 s |" in told
    assert "| reaction-diffusion-ic-mass-bounds | I-PCFM, as quoted, published | 0.97 | – | – | 7.7 s |" in told
    assert told.count("published |") == 2
    assert told.count("| PCFM | 1.00 | 1.00 |") == len(inequalities.TASKS)
