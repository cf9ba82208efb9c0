import inspect
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from snapfm.cli.train import RECIPES, train
from snapfm.errors import CheckpointError, UnknownName
from snapfm.flow import TrainingSettings, load_checkpoint
from snapfm.problems import names, problem

app = typer.Typer()
app.command()(train)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """torch's threads spin, which crawls where others work too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


def test_train_says_that_it_resumes_and_refuses_another_run(tmp_path: Path) -> None:
    first = run(tmp_path, "--steps", "1")
    assert "Resuming" not in first
    assert "Resuming at step 1 of 1" in run(tmp_path, "--steps", "1")
    with pytest.raises(CheckpointError, match="settings steps=2; got one with steps=1"):
        run(tmp_path, "--steps", "2")


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
        recipe = RECIPES[chosen.equation]
        assert all(-1 <= axis < len(chosen.grid.shape) for axis in recipe.imposed)
        assert min(recipe.steps, recipe.rows, recipe.columns, recipe.truth) > 1


def test_steps_and_fields_left_out_come_from_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECIPES, "heat", replace(RECIPES["heat"], steps=1, rows=2, columns=3, truth=3))
    options = ["heat-ic-mass", "--out", str(tmp_path), "--batch", "1", "--samples", "2"]
    result = CliRunner().invoke(app, options, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    record = load_checkpoint(tmp_path / "model").record
    assert "--steps 1 --batch 1 --rows 2 --columns 3 " in record["command"]
    assert (record["settings"]["imposed"], record["settings"]["rows"]) == ([-1], 2)
    assert record["data"]["shape"] == [6, 100, 100]
    assert record["quality"]["truth_count"] == 3
