"""The benchmark of any law: its cases are what they claim, its methods are judged, its summary counts right."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import benchmarks.any_law as any_law
import pytest
import torch
from benchmarks.any_law.case import CASES, LEVELS, broken
from benchmarks.any_law.job import Job
from benchmarks.any_law.methods import DEFAULT, METHODS, OURS, TUNED, prepared
from benchmarks.any_law.summary import allowed_bytes, compared, relative, summary
from benchmarks.laws_page import page

from snapfm_bench.suites.supervise import ProcessEnd, Progress

# Every row of the issues' tables, by the stem of its cases.
TABLE = {
    "darcy", "euler", "divergence_energy", "divergence_free", "joint_poisson", "joint_helmholtz", "particles",
    "shallow_water", "unit_vectors", "small_network", "reaction_diffusion", "free_reaction_diffusion",
    "reaction_diffusion_large", "free_reaction_diffusion_large", "spectral_vorticity", "total_variation", "upwind",
    "upwind_slopes", "highest", "softmax", "cumprod", "determinant", "silu", "gelu", "entropy", "float32_network", "rotations",
    "shells", "moduli", "shock_tube", "power_grid", "gas_network", "diffusion", "climate", "downscaling", "maxwell",
    "unicycle", "arm", "orbit", "kepler_steps",
}  # fmt: skip


def test_tables_of_issues_are_covered_and_forty_laws_are_our_own():
    assert {case.stem for case in CASES.values() if case.group == "issue"} == TABLE
    assert len({case.stem for case in CASES.values() if case.group == "own"}) >= 40


@pytest.mark.parametrize("name", CASES)
def test_true_fields_obey_and_inputs_do_not(name: str):
    case = CASES[name]
    setting = case.setting(case.tiny, 2)
    assert setting.truth.dtype == torch.float64
    assert broken(setting) <= case.slack
    for level in LEVELS:
        u_hat = case.input(setting, level)
        assert u_hat.isfinite().all()
        assert torch.equal(u_hat, case.input(setting, level)), "an input has to be the same every time"
        away = (u_hat - setting.truth).square().mean().sqrt() / setting.truth.square().mean().sqrt()
        assert 0.4 * case.noise[level] < away < 2.5 * case.noise[level]


def test_settings_follow_from_the_case_alone():
    one, two = (CASES["darcy_64"].setting(6, 2) for _ in range(2))
    assert torch.equal(one.truth, two.truth)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_timed_and_judged(method: str):
    case = CASES["unit_vectors_32"]
    setting = case.setting(case.tiny, 3)
    u_hat = case.input(setting, "far")
    asked = prepared(method, case, setting, 60.0).ask(u_hat, setting.params, 60.0, lambda doing, done: None)
    figures = asked.figures(setting, u_hat, case.tolerance)
    assert (figures["asked"], figures["claimed"], figures["certified"]) == (3, 3, 3)
    assert figures["seconds"] > 0.0
    assert figures["violation"] <= case.tolerance
    expected = (u_hat - u_hat / u_hat.norm(dim=1, keepdim=True)).flatten(1).norm(dim=1)
    assert figures["distances"] == pytest.approx(expected.tolist(), abs=1e-7)
    json.dumps(figures, allow_nan=False)


def test_nearest_is_meant_in_the_units_of_a_setting_by_all_methods():
    case = CASES["shock_tube_64"]
    setting = case.setting(case.tiny, 2)
    assert setting.units is not None
    u_hat, found = case.input(setting, "small"), {}
    for method in (OURS, DEFAULT):
        asked = prepared(method, case, setting, 60.0).ask(u_hat, setting.params, 60.0, lambda doing, done: None)
        found[method] = asked.figures(setting, u_hat, case.tolerance)
        moved = ((asked.answers.u - u_hat) / setting.units).flatten(1).norm(dim=1)
        assert found[method]["distances"] == pytest.approx(moved.tolist(), rel=1e-4)
        assert broken(replace(setting, truth=asked.answers.u)) <= case.tolerance
        assert found[method]["certified"] == 2
    assert found[OURS]["distances"] == pytest.approx(found[DEFAULT]["distances"], rel=1e-4)


def test_the_judge_does_not_believe_a_claim():
    case = CASES["unit_vectors_32"]
    setting = case.setting(case.tiny, 2)
    u_hat = case.input(setting, "far")
    asked = prepared(OURS, case, setting, 60.0).ask(u_hat, setting.params, 60.0, lambda doing, done: None)
    asked.answers.u[1] += 0.1
    figures = asked.figures(setting, u_hat, case.tolerance)
    assert (figures["claimed"], figures["certified"]) == (2, 1)
    assert figures["distances"][1] is None


def test_a_peer_stops_asking_when_the_next_sample_may_be_too_late():
    case = CASES["unit_vectors_32"]
    setting = case.setting(case.tiny, 3)
    u_hat = case.input(setting, "far")
    asked = prepared(TUNED, case, setting, 60.0).ask(u_hat, setting.params, 0.0, lambda doing, done: None)
    assert len(asked.answers.u) == 1
    assert asked.figures(setting, u_hat, case.tolerance)["asked"] == 1


def figures(seconds: float, distances: list[float | None], **more: Any) -> dict[str, Any]:
    certified = sum(one is not None for one in distances)
    return {
        "state": "DONE", "seconds": seconds, "cpu_seconds": seconds, "asked": len(distances), "claimed": certified,
        "certified": certified, "distances": distances, "peak_bytes": 0, **more,
    }  # fmt: skip


def test_samples_are_compared_one_by_one():
    ours = figures(0.1, [1.0, 1.0, 2.0, None, 1.0, None])
    tuned = figures(0.5, [1.0, 1.1, 1.0, 1.0])  # stopped before the last two
    found = compared({OURS: ours, TUNED: tuned, DEFAULT: {"state": "DNF"}})
    assert (found["same"], found["nearer"], found["farther"]) == (1, 1, 1)
    assert (found["only_ipopt"], found["only_ours"]) == (1, 1)
    assert found["ratio"] == pytest.approx(5.0)
    assert found["differences"][2] == pytest.approx(3.0)
    assert len(found["differences"]) == 6


def test_the_better_of_both_configurations_counts():
    both = {OURS: figures(1.0, [1.0] * 2), TUNED: figures(0.1, [1.0, None]), DEFAULT: figures(9.0, [1.0] * 2)}
    assert compared(both)["ipopt"] == DEFAULT  # certifies more
    both[TUNED] = figures(0.1, [1.0] * 2)
    assert compared(both)["ipopt"] == TUNED  # is faster
    neither = {**both, TUNED: {"state": "REFUSED"}, DEFAULT: {"state": "DNF"}}
    assert (compared(neither)["ipopt"], compared(neither)["ratio"], compared(neither)["only_ours"]) == (None, None, 2)


def test_times_without_an_answer_make_no_ratio():
    late = {"state": "DNF"}
    assert compared({OURS: figures(1.0, [1.0]), TUNED: figures(0.1, [None]), DEFAULT: late})["ratio"] is None
    assert compared({OURS: figures(1.0, [None]), TUNED: figures(0.1, [1.0]), DEFAULT: late})["ratio"] is None


def test_objectives_that_vanish_can_be_compared():
    assert relative(0.0, 0.0) == 0.0
    assert math.isfinite(relative(1.0, 0.0))
    assert relative(1.0, 0.0) > 1.0


def row(name: str, ours: dict[str, Any], tuned: dict[str, Any]) -> dict[str, Any]:
    found = {OURS: ours, TUNED: tuned, DEFAULT: {"state": "DNF"}}
    level = {"noise": 0.1, **found, "comparison": compared(found)}
    return {"name": name, "samples": 2, "batch_bytes": 1000, "levels": {"small": level}}


def test_the_summary_counts_and_names():
    found = summary([
        row("fast", figures(1.0, [1.0, 1.0]), figures(9.0, [1.0, 1.0])),
        row("slow", figures(2.0, [1.0, 3.0]), figures(1.0, [1.0, 1.0])),
        row("large", figures(1.0, [1.0, None], claimed=2, peak_bytes=3 * 2**30), figures(3.0, [1.0, 1.0])),
        row("late", {"state": "DNF"}, figures(3.0, [1.0, 1.0])),
    ])  # fmt: skip
    assert (found["cases"], found["samples"], found["certified"]) == (4, 8, 5)
    assert (found["ratio_median"], found["ratio_worst"]) == (3.0, 0.5)
    assert found["slower_than_ipopt"] == ["slow small"]
    assert found["only_ipopt"] == ["large small: 1", "late small: 2"]
    assert found["farther"] == ["slow small: 1"]
    assert found["uncertified"] == ["large small: 1 of 2"]
    assert found["false_claims"] == ["large small: 1"]
    assert found["unfinished"] == ["late small: DNF"]
    assert found["too_much_memory"] == ["large small"]
    assert found["table"]["fast small"]["ratio"] == 9.0


def test_the_page_shows_what_is_lost_first_and_names_what_is_missing():
    about = {"shape": [2], "timeout": 120.0, "machine": {"commit": "abc", "date": "2026-01-01"}}
    fast = row("fast", figures(1.0, [1.0, 1.0]), figures(9.0, [1.0, 1.0])) | about | {"code": "a"}
    slow = row("slow", figures(2.0, [1.0, 1.0]), figures(1.0, [1.0, 1.0])) | about | {"code": "b"}
    late = row("late", {"state": "DNF"}, figures(3.0, [1.0, None])) | about | {"code": "a"}
    words = page([fast, slow, late], ["fast", "slow", "late", "absent"])
    places = [
        words.index(part) for part in ("## Lost", "| slow", "| late", "## Neither", "## Shared", "## Won", "| fast")
    ]
    assert places == sorted(places)
    assert "Of 3 rows ours wins 1, loses 2 and shares 0" in words
    assert "Not run yet: `absent`." in words
    assert "Rows are of 2 states of the code: 2, 1 of them." in words
    whole = page([fast], ["fast"])
    assert "1 laws of the any-law suite, which are all; ours" in whole
    assert "Not run yet" not in whole
    assert "states of the code" not in whole


def test_memory_may_be_forty_batches_or_two_gigabytes():
    assert allowed_bytes(1) == 2 * 2**30
    assert allowed_bytes(2**30) == 40 * 2**30


@pytest.mark.parametrize(
    ("late", "why", "state"),
    [
        (True, None, "DNF"),
        (False, "its process died of SIGALRM", "DNF"),
        (False, "its process ended with code 1: snapfm.errors.UnsupportedLaw: a casadi peer expects …", "REFUSED"),
        (False, "its process ended with code 1: MemoryError", "OUT_OF_MEMORY"),
        (False, "its process died of SIGSEGV", "FAILED"),
    ],
)
def test_every_end_has_a_name(late: bool, why: str | None, state: str):
    assert any_law.outcome(ProcessEnd(1.0, late, why, Progress("small: call 1")))["state"] == state


def test_a_process_that_dies_costs_one_level(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    asked = []

    def dying(module: str, line: str, folder: Path, threads: int, budget: float) -> ProcessEnd:
        job = Job.of(line)
        asked.append(job.levels)
        folder.mkdir(parents=True)
        (folder / "prepared.json").write_text('{"prepare_seconds": 1.0}')
        if job.levels == ("far",):
            (folder / "far.json").write_text('{"seconds": 2.0}')
            return ProcessEnd(1.0, False, None, Progress())
        return ProcessEnd(1.0, False, "its process died of SIGSEGV", Progress("small: call 1"))

    monkeypatch.setattr(any_law, "supervised", dying)
    found = any_law.levels(CASES["darcy_64"], OURS, 1.0, tmp_path)
    assert asked == [("small", "far"), ("far",)]
    assert (found["small"]["state"], found["small"]["prepare_seconds"]) == ("FAILED", 1.0)
    assert found["far"] == {"state": "DONE", "seconds": 2.0}


def test_what_cannot_be_prepared_is_not_tried_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    calls = []

    def refused(*asked: Any) -> ProcessEnd:
        calls.append(asked)
        return ProcessEnd(1.0, False, "its process ended with code 1: UnsupportedLaw: …", Progress("preparing"))

    monkeypatch.setattr(any_law, "supervised", refused)
    found = any_law.levels(CASES["darcy_64"], TUNED, 1.0, tmp_path)
    assert len(calls) == 1
    assert {one["state"] for one in found.values()} == {"REFUSED"}


def test_a_run_goes_on_where_it_was_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    chosen = {name: CASES[name] for name in ("darcy_64", "rotations_16")}
    done = []

    def one_case(case: Any, timeout: float, folder: Path) -> dict[str, Any]:
        done.append(case.name)
        return {"name": case.name, "samples": 1, "batch_bytes": 1, "levels": {}}

    def append(case: str, row: dict[str, Any]) -> None:
        with (tmp_path / "any_law.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    monkeypatch.setattr(any_law, "CASES", chosen)
    monkeypatch.setattr(any_law, "RECORDS", tmp_path)
    monkeypatch.setattr(any_law, "append", append)
    monkeypatch.setattr(any_law, "one_case", one_case)
    monkeypatch.setattr(any_law, "supervised", lambda *asked: None)
    append("any_law", {"name": "darcy_64", "code": any_law.digest(), "timeout": 7.0, "levels": {}, "samples": 1})
    assert any_law.run(timeout=7.0)["cases"] == 2
    assert done == ["rotations_16"]
    any_law.run(["darcy_64"], timeout=7.0)
    assert done == ["rotations_16", "darcy_64"], "a case that is named is run again"
    any_law.run(timeout=8.0)
    assert done[2:] == ["darcy_64", "rotations_16"], "other settings are another run"
    with pytest.raises(SystemExit, match="names of cases"):
        any_law.run(["darcy"])
