"""Steps chosen on another seed: what is run, kept and shown, and what becomes of trials without a score."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bench.tests.suites.quality.toys import Still, tiny

from snapfm_bench.suites.quality import CellState, run
from snapfm_bench.suites.quality import cell as cells
from snapfm_bench.suites.quality.cell import chosen_steps
from snapfm_bench.suites.quality.pages import text
from snapfm_bench.suites.quality.score_tables import NOT_MEASURED, score_table, step_table
from snapfm_bench.suites.quality.suite import Interval

CHOICE = {'kind = "PCFM"': 'kind = "PCFM"\nstep_choices = [4, 1, 3]'}


class Uneven(Still):
    """Leads to zero with three steps, and elsewhere with other numbers: steps of a third see τ = 1/3."""

    def forward(self, u: torch.Tensor, tau: float) -> torch.Tensor:
        third = abs(float(torch.as_tensor(tau)) - 1 / 3) < 1e-6
        return super().forward(u, tau) + (0.0 if third else 3.0)


@pytest.mark.usefixtures("toy_model")
def test_the_best_trial_on_the_selection_seed_is_scored_on_the_suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cells, "shipped", lambda name: Uneven())
    seeds: list[tuple[str, int, int]] = []
    inner = cells.sample

    def watched(*args, **settings):
        seeds.append((type(settings["sampler"]).__name__, settings["steps"], settings["generator"].initial_seed()))
        return inner(*args, **settings)

    monkeypatch.setattr(cells, "sample", watched)
    suite, out = tiny(tmp_path, **CHOICE), tmp_path / "out"
    found = run(suite, out, "heat")
    assert [one for one in seeds if one[0] == "PCFM"] == [
        ("PCFM", 4, 1000), ("PCFM", 1, 1000), ("PCFM", 3, 1000), ("PCFM", found["heat", "pcfm"].steps, 0),
    ]  # fmt: skip
    scores = {steps: found["heat", f"pcfm@{steps}"].crps.value for steps in (4, 1, 3)}
    assert found["heat", "pcfm"].steps == min(scores, key=scores.get)
    assert len(set(scores.values())) > 1
    told = text(suite, found)
    assert "| CRPS on seed 1000 | 1 steps | 3 steps | 4 steps |" in told
    assert "pcfm@" not in told  # trials are no samplers of their own
    (row,) = step_table(suite, suite.tasks[0], found).rows
    assert [one.first for one in row].index(True) == 1 + [1, 3, 4].index(found["heat", "pcfm"].steps)
    assert not (out / "moments" / "heat.pcfm@3.npz").exists()
    run(suite, out, "heat", lambda now: pytest.fail("nothing is left to do"))


@pytest.mark.usefixtures("toy_model")
def test_a_stopped_choice_goes_on_with_its_trials(tmp_path: Path):
    suite, out = tiny(tmp_path, **CHOICE), tmp_path / "out"

    def stop(now):
        if now.key == ("heat", "pcfm@3") and now.finished is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(suite, out, "heat", stop)
    ran: list[str] = []
    run(suite, out, "heat", lambda now: ran.append(now.key[1]) if now.finished else None)
    assert ran == ["pcfm@3", "pcfm"]


@pytest.mark.usefixtures("toy_model")
def test_trials_without_a_score_are_no_choice(tmp_path: Path):
    change = {'kind = "PCFM"': 'kind = "PCFM"\nbudget = 1e-9\nstep_choices = [4, 2]'}
    suite = tiny(tmp_path, **change)
    found = run(suite, tmp_path / "out", "heat")
    last = found["heat", "pcfm"]
    assert (last.status, last.error) == (CellState.FAILED, "no number of steps could be scored: trials are DNF")
    assert last.model == found["heat", "pcfm@4"].model  # so that the cell is not run again


def test_the_smaller_of_equal_trials_is_chosen_and_unscored_ones_are_left_out(tmp_path: Path):
    (_, pcfm) = tiny(tmp_path, **CHOICE).samplers
    same = Interval(0.5, 0.4, 0.6)
    done = {
        ("heat", one.name): cells.QualityCell("heat", one.name, CellState.DONE, 3, one.steps, crps=same)
        for one in pcfm.trials
    }
    assert chosen_steps(pcfm, "heat", done) == 1
    done["heat", "pcfm@1"] = replace(done["heat", "pcfm@1"], crps=None)
    assert chosen_steps(pcfm, "heat", done) == 3
    assert chosen_steps(pcfm, "elsewhere", done) is None


@pytest.mark.usefixtures("toy_model")
def test_scores_of_distributions_are_shown_and_records_without_them_show_no_table(tmp_path: Path):
    suite = tiny(tmp_path)
    found = run(suite, tmp_path / "out", "heat")
    task = suite.tasks[0]
    rows = {row[0].words: [one.words for one in row[3:]] for row in score_table(suite, task, found).rows}
    assert NOT_MEASURED not in rows["True fields"]
    assert rows["True mean"][2] == "0"  # spread over skill
    assert rows["Flow"][3:] == ["0.0 %", "0.0 %"]  # all samples are zero
    flow = found["heat", "flow"]
    assert flow.crps.value > found["heat", "true-fields"].crps.value
    assert flow.energy_distance.value > found["heat", "true-fields"].energy_distance.value
    assert [one.expected for one in flow.coverage] == [0.5, 0.5]  # of three samples: between the outer two
    old = {
        key: replace(cell, crps=None, energy_distance=None, spread_skill=None, coverage=())
        for key, cell in found.items()
    }
    assert score_table(suite, task, old) is None
    assert NOT_MEASURED not in text(suite, old)
    some = old | {("heat", "flow"): flow}
    rows = {row[0].words: [one.words for one in row[3:]] for row in score_table(suite, task, some).rows}
    assert rows["True fields"] == [NOT_MEASURED] * 5
    assert NOT_MEASURED not in rows["Flow"]


@pytest.mark.usefixtures("toy_model")
def test_trials_may_have_fewer_samples_than_are_scored(tmp_path: Path):
    suite = tiny(tmp_path, **CHOICE, **{"samples = 3": "samples = 3\ntrial_samples = 2"})
    found = run(suite, tmp_path / "out", "heat")
    assert {found["heat", f"pcfm@{steps}"].samples for steps in (4, 1, 3)} == {2}
    assert (found["heat", "pcfm"].samples, found["heat", "true-fields"].samples) == (3, 3)
