"""Suites: what is shipped, and the errors of a wrong file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.tests.suites.quality.toys import tiny

from snapfm.errors import SnapfmError, UnknownName
from snapfm_bench.published import QUALITY, SAMPLERS
from snapfm_bench.record import load, to_line
from snapfm_bench.suites.quality import load_suite, suite_names
from snapfm_bench.suites.quality.suite import KINDS, QualitySuite


def test_six_are_shipped_and_survive_their_record():
    assert suite_names() == ["best", "paper", "plain", "plain-steps", "smoke", "steps"]
    for name in suite_names():
        suite = load_suite(name)
        assert load(QualitySuite, json.loads(to_line(suite))) == suite


def test_the_paper_suite_has_the_published_tasks_and_every_sampler():
    suite = load_suite("paper")
    assert {task.name for task in suite.tasks} == set(QUALITY)
    assert {sampler.kind for sampler in suite.samplers} == set(KINDS) - {"Conditional"}  # is for ordinary models
    assert set(SAMPLERS.values()) <= {sampler.name for sampler in suite.samplers}
    assert all(set(row) == set(SAMPLERS.values()) for row in QUALITY.values())
    assert suite.samples >= 32
    assert suite.steps == 20


def test_the_steps_suite_is_pcfm_on_the_same_tasks():
    suite = load_suite("steps")
    assert suite.tasks == load_suite("paper").tasks
    assert [(sampler.kind, sampler.steps) for sampler in suite.samplers] == [
        ("PCFM", steps) for steps in (5, 10, 20, 50, 100)
    ]


def test_the_best_suite_gives_every_sampler_equal_samples_and_the_same_choice():
    suite = load_suite("best")
    assert suite.tasks == load_suite("paper").tasks
    assert {(one.samples, one.steps, one.step_choices) for one in suite.samplers} == {(None, None, (10, 20, 50, 100))}
    assert len({one.kind for one in suite.samplers}) == len(suite.samplers)


def test_the_plain_suite_has_ordinary_models_and_every_sampler_but_descents():
    suite, paper = load_suite("plain"), load_suite("paper")
    assert {task.model.rpartition("-")[2] for task in suite.tasks} == {"plain"}
    assert [(task.name, task.problem, task.settings) for task in suite.tasks] == [
        (task.name, task.problem, task.settings) for task in paper.tasks
    ]
    assert {one.kind for one in suite.samplers} == set(KINDS) - {"DFlow"}
    assert {(one.samples, one.steps) for one in suite.samplers} == {(None, None)}
    assert all(len(one.step_choices) == 3 for one in suite.samplers)
    steps = load_suite("plain-steps")
    assert (steps.tasks, steps.seed) == (suite.tasks, suite.seed)
    assert {one.kind for one in steps.samplers} == {"Conditional"}
    assert [one.steps for one in steps.samplers] == [5, 10, 20, 50, 100]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("samples = 3", "samples = 1", "expects samples to be a whole number >= 2; got 1. Ask for at least 2."),
        ("samples = 3", "speed = 3", "expects keys among .*; got 'speed'. Use one of these names."),
        ("samples = 3", "", "expects a value for 'samples'; got none. Add a line `samples = …`."),
        ("steps = 2", "steps = 2\nbudget = 0", "expects budget to be a positive number; got 0. Give one."),
        ("steps = 2", "steps = 2\ndtype = 'half'", r"expects dtype to be one of \['float32', 'float64'\]; got 'half'."),
        ("steps = 2", "steps = ", "is expected to be TOML; got a file with .* Mend that line."),
        ("heat-ic-mass", "moon", "expects one of .*; got 'moon'"),
        ("nx = 12", "ny = 12", "expects settings among .*; got 'ny'"),
        ('kind = "PCFM"', 'kind = "Magic"', "sampler 'pcfm' expects kind to be one of .*; got 'Magic'. Choose one of these."),
        ('kind = "PCFM"', 'kind = "PCFM"\nsettings = { spin = 1 }', "sampler 'pcfm' expects settings among .*; got {'spin': 1}"),
        ('kind = "PCFM"', 'kind = "ECI"\nsettings = { mixing = 0 }', r"sampler 'pcfm': ECI\(mixing\) expects a whole number"),
        ('kind = "PCFM"', 'kind = "PCFM"\nstep_choices = [2, 0]', "expects step_choices to be a whole number >= 1; got 0."),
        ('kind = "PCFM"', 'kind = "PCFM"\nstep_choices = [2]', r"expects two or more different step_choices, .*; got \[2\]"),
        ('kind = "PCFM"', 'kind = "PCFM"\nstep_choices = 2', r"expects step_choices to be a list; got 2."),
        ('kind = "PCFM"', 'kind = "PCFM"\nsteps = 3\nstep_choices = [2, 3]', "and then no steps; .* and steps 3"),
        ("[samplers.flow]", '[samplers."flow@2"]', "expects a name without '@', which marks trials of steps."),
        ("[samplers.flow]", "[samplers.true-mean]", "expects a name other than .*, which are reference rows."),
    ],
)  # fmt: skip
def test_wrong_suites_are_refused_in_three_parts(old: str, new: str, words: str, tmp_path: Path):
    with pytest.raises(SnapfmError, match=words):
        tiny(tmp_path, **{old: new})


def test_steps_are_never_chosen_on_the_seed_they_are_scored_on(tmp_path: Path):
    for seed in (0, 1):  # the suite's, and that of its truth
        change = {
            "steps = 2": f"steps = 2\nselection_seed = {seed}",
            'kind = "PCFM"': 'kind = "PCFM"\nstep_choices = [2, 3]',
        }
        with pytest.raises(SnapfmError, match="expects a selection_seed at least 2 from seed 0; got"):
            tiny(tmp_path, **change)


def test_a_suite_without_samplers_or_of_no_name_is_refused(tmp_path: Path):
    file = tmp_path / "empty.toml"
    file.write_text("samples = 3\n[tasks.a]\nproblem='heat-ic-mass'\nmodel='toy'\n")
    with pytest.raises(
        SnapfmError, match=r"expects a table \[samplers.NAME\] for each of its samplers; got none. Add one."
    ):
        load_suite(str(file))
    with pytest.raises(
        UnknownName,
        match=r"expects one of \['best', 'paper', 'plain', .*\] or the path of a TOML file; got 'moon'",
    ):
        load_suite("moon")
