import inspect
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from snapfm.errors import CheckpointError, SettingError, ShapeError, UnknownName
from snapfm_bench.commands.train import train
from snapfm_bench.flow import TrainingSettings, load_checkpoint
from snapfm_bench.problems import names, problem
from snapfm_bench.problems.training import TRAINING_SETS

app = typer.Typer()
app.command()(train)


def run(out: Path, *more: str) -> str:
    options = [
        "--out",
        str(out),
        "--batch",
        "1",
        "--rows",
        "3",
        "--columns",
        "1",
        "--save-every",
        "1",
        "--samples",
        "0",
        *more,
    ]
    result = CliRunner().invoke(app, ["heat-ic-mass", *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_train_writes_a_checkpoint_with_its_record(tmp_path: Path) -> None:
    out = tmp_path / "tiny"
    output = run(out, "--steps", "2")
    assert "from the start" in output
    checkpoint = load_checkpoint(out / "model")
    assert (checkpoint.equation, checkpoint.preset, checkpoint.grid.shape) == ("heat", "small", (100, 100))
    assert checkpoint.record["command"] == (
        "snapfm train heat-ic-mass --preset small --seed 0 --steps 2 --batch 1 --rows 3 --columns 1 "
        "--learning-rate 0.002 --out build/train/tiny"
    )
    assert str(tmp_path) not in json.dumps(dict(checkpoint.record))


def nothing_simulated(*arguments: object) -> None:
    raise AssertionError("fields were simulated")


def test_a_finished_run_is_told_and_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, "--steps", "1")
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    monkeypatch.setattr("snapfm_bench.problems.training.table", nothing_simulated)
    told = " ".join(run(tmp_path, "--steps", "1").split())
    assert told == (
        f"{tmp_path} is finished: {tmp_path}/model holds the small network of heat after 1 step. Nothing was done. Extend it "
        "with a larger --steps, or train another one with another --out."
    )
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before
    run(tmp_path, "--steps", "1", "--save-every", "7")  # how often states are saved makes no other run


def test_a_finished_run_is_judged_when_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRAINING_SETS, "heat", replace(TRAINING_SETS["heat"], truth=3))
    run(tmp_path, "--steps", "1")
    assert "quality" not in load_checkpoint(tmp_path / "model").record
    judged = ["heat-ic-mass", "--out", str(tmp_path), "--batch", "1", "--rows", "3", "--columns", "1", "--steps", "1"]
    for samples, words in ((2, "Judging 2 samples"), (2, "Nothing was done."), (3, "Judging 3 samples")):
        result = CliRunner().invoke(app, [*judged, "--samples", str(samples)], catch_exceptions=False)
        assert words in result.output
        assert load_checkpoint(tmp_path / "model").record["quality"]["count"] == samples
    result = CliRunner().invoke(app, [*judged, "--samples", "3", "--flow-steps", "4"], catch_exceptions=False)
    assert "Judging 3 samples" in result.output
    assert load_checkpoint(tmp_path / "model").record["quality"]["steps"] == 4


def test_a_run_whose_checkpoint_is_missing_is_brought_to_its_end(tmp_path: Path) -> None:
    run(tmp_path, "--steps", "1")
    shutil.rmtree(tmp_path / "model")
    assert "Resuming at step 1 of 1" in run(tmp_path, "--steps", "1")
    assert load_checkpoint(tmp_path / "model").record["steps"] == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--steps", "1", "--seed", "5"], "settings seed=5; got one with seed=0"),
        (["--steps", "1", "--rows", "2"], "settings rows=2; got one with rows=3"),
        (["--steps", "1", "--preset", "paper"], "network kind="),
    ],
)
def test_another_run_is_refused_before_its_fields_are_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], words: str
) -> None:
    run(tmp_path, "--steps", "1")
    monkeypatch.setattr("snapfm_bench.problems.training.table", nothing_simulated)
    with pytest.raises(CheckpointError, match=words):
        run(tmp_path, *more)


def test_more_steps_make_a_run_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, "--steps", "1")
    told = " ".join(run(tmp_path, "--steps", "3").split())
    assert "Resuming at step 1 of 3, and making the run longer: it had 1" in told
    record = load_checkpoint(tmp_path / "model").record
    assert (record["steps"], record["settings"]["steps"]) == (3, 3)
    assert record["extended"] == [{"step": 1, "of": 1}]
    monkeypatch.setattr("snapfm_bench.problems.training.table", nothing_simulated)
    assert "after 3 steps. Nothing was done." in " ".join(run(tmp_path, "--steps", "3").split())
    with pytest.raises(
        CheckpointError, match=r"steps=2; got one with steps=3\. Use the same .*, or more steps to make it"
    ):
        run(tmp_path, "--steps", "2")


def test_other_data_are_refused(tmp_path: Path) -> None:
    run(tmp_path, "--steps", "1")
    with pytest.raises(CheckpointError, match=r"data shape=\[6, 100, 100\]"):
        run(tmp_path, "--steps", "1", "--columns", "2")


def test_one_sample_to_judge_by_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapfm_bench.problems.training.table", nothing_simulated)
    with pytest.raises(ShapeError, match=r"--samples expects 0, or at least 2 to have a spread; got 1\. The default"):
        run(tmp_path, "--samples", "1")


def test_plain_training_of_coefficients_is_recorded_and_left_when_finished(tmp_path: Path) -> None:
    options = ["--plain", "--preset", "latent", "--rows", "40", "--columns", "2", "--steps", "2", "--half"]
    run(tmp_path, *options)
    checkpoint = load_checkpoint(tmp_path / "model")
    assert checkpoint.training == "plain"
    assert " --preset latent --plain --seed 0 " in checkpoint.record["command"]
    assert " --half --out " in checkpoint.record["command"]
    settings = checkpoint.record["settings"]
    assert [settings[name] for name in ("pairing", "imposed", "stray", "own")] == ["independent", [], 0.0, 0.0]
    assert checkpoint.record["data"]["shape"] == [160, 64]  # each field and its mirror image
    assert "Nothing was done." in run(tmp_path, *options)
    assert "Nothing was done." not in run(tmp_path, *options[:-1])  # without --half


def test_a_network_of_coefficients_is_not_trained_for_laws(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"--preset latent expects --plain; without it .* Add --plain, or use"):
        run(tmp_path, "--preset", "latent")


def test_unknown_problems_and_presets_are_refused(tmp_path: Path) -> None:
    for arguments, match in ((["moon"], "'moon'"), (["heat-ic-mass", "--preset", "huge"], "'huge'")):
        with pytest.raises(UnknownName, match=match):
            CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)], catch_exceptions=False)


def test_defaults_are_those_of_the_library() -> None:
    """The command spells them out so that --help needs no torch; here they are held together."""
    ours = {name: parameter.default for name, parameter in inspect.signature(train).parameters.items()}
    library = TrainingSettings()
    for name in ("batch", "learning_rate", "seed", "save_every"):
        assert ours[name] == getattr(library, name)


def test_every_problem_has_a_recipe() -> None:
    for name in names():
        chosen = problem(name)
        recipe = TRAINING_SETS[chosen.equation]
        assert all(-1 <= axis < len(chosen.grid.shape) for axis in recipe.imposed)
        assert min(recipe.steps, recipe.rows, recipe.columns, recipe.truth) > 1


def test_steps_and_fields_left_out_come_from_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRAINING_SETS, "heat", replace(TRAINING_SETS["heat"], steps=1, rows=2, columns=3, truth=3))
    options = ["heat-ic-mass", "--out", str(tmp_path), "--batch", "1", "--samples", "2"]
    result = CliRunner().invoke(app, options, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    record = load_checkpoint(tmp_path / "model").record
    assert "--steps 1 --batch 1 --rows 2 --columns 3 " in record["command"]
    assert (record["settings"]["imposed"], record["settings"]["rows"]) == ([-1], 2)
    assert record["data"]["shape"] == [6, 100, 100]
    assert record["quality"]["truth_count"] == 3
