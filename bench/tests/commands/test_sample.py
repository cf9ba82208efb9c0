"""`snapfm sample`: what it writes, prints and refuses, and its exit codes."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from pathlib import Path

import pytest
from bench.tests.files.tiny import GRID, PROBLEM, write_model
from click.testing import Result
from typer.testing import CliRunner

from snapfm.cli.app import app, main
from snapfm.cli.fields import sample
from snapfm.errors import DataError
from snapfm.files import load
from snapfm_bench.files import SampleRecipe

pytest.importorskip("neuralop")
pytest.importorskip("zarr")
RUN = CliRunner()
SMALL = [word for name, value in GRID.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


def run(out: Path, model: Path, *more: str) -> Result:
    options = ["--count", "7", "--steps", "2", "--batch", "3", "--model", str(model), "--out", str(out), *SMALL, *more]
    return RUN.invoke(app, ["sample", PROBLEM, *options], catch_exceptions=False)


def test_it_writes_says_what_and_does_not_write_twice(model: Path, tmp_path: Path):
    out = tmp_path / "deep" / "heat.zarr"
    answer = run(out, model)
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.startswith(f"{out}: 7 samples of 9×7; 7 of 7 converged, worst violation ")
    split = answer.stdout.rstrip().rpartition(" s: ")[2]
    shares = [int(part.rpartition(" ")[2].rstrip("%).")) for part in split.split(", ")]
    assert [part.split()[0] for part in split.split(", ")] == ["network", "projection", "other"]
    assert abs(sum(shares) - 100) <= 1
    assert answer.stdout.rstrip().endswith("%).")
    assert load(out)[0].shape == (7, 9, 7)
    again = run(out, model)
    assert f"{out} already holds 7 samples of this run: 7 of 7 converged" in again.stdout


def test_a_summary_for_scripts(model: Path, tmp_path: Path):
    out = tmp_path / "a.zarr"
    answer = run(out, model, "--json", "--seed", "5", "--dtype", "float32", "--tolerance", "1e-7")
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    seconds = told.pop("seconds")
    assert list(seconds) == ["velocity", "projection", "other", "total"]
    assert min(seconds.values()) > 0
    assert (
        abs(seconds["velocity"] + seconds["projection"] + seconds["other"] - seconds["total"]) <= 2e-3
    )  # three decimals
    assert told.pop("bytes") > 0
    assert 0 <= told.pop("worst_violation") < 1e-7
    weights = json.loads((model / "model.json").read_text())["weights"]["sha256"]
    assert told == {
        "fields": "sampled", "problem": PROBLEM, "count": 7, "seed": 5, "dtype": "float32", "settings": GRID,
        "model": weights, "steps": 2, "batch": 3, "tolerance": 1e-7, "path": str(out), "shape": [9, 7], "found": 0, "missing": 0,
        "converged": 7, "statuses": {"CONVERGED": 7},
    }  # fmt: skip


def test_failed_samples_end_with_exit_code_1_and_their_numbers(model: Path, tmp_path: Path):
    out = tmp_path / "a.zarr"
    answer = run(out, model, "--tolerance", "1e-300")  # below what rounding leaves
    assert answer.exit_code == 1
    assert answer.stdout == ""
    told = " ".join(answer.stderr.split())
    assert "ProjectionFailed: samples 0 to 2 are expected to converge; 3 of 3 failed: sample 0: " in told
    assert "Go on with --keep-failed" in told
    assert not out.exists()


def test_kept_samples_are_counted_and_the_exit_code_is_1(model: Path, tmp_path: Path):
    out = tmp_path / "a.zarr"
    answer = run(out, model, "--tolerance", "1e-300", "--keep-failed", "--json")
    assert answer.exit_code == 1
    told = json.loads(answer.stdout)
    assert told["converged"] == 0
    assert sum(told["statuses"].values()) == 7
    again = run(out, model, "--tolerance", "1e-300", "--keep-failed")
    assert again.exit_code == 1
    assert "already holds 7 samples of this run: 0 of 7 converged (" in again.stdout
    refused = run(out, model, "--tolerance", "1e-300")
    assert refused.exit_code == 1
    assert "7 of 7 did not converge" in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["moon", "--count", "2"], "UnknownName: snapfm.problem(name) expects one of"),
        ([PROBLEM, "--count", "2", "--set", "nx"], "snapfm sample --set expects NAME=VALUE; got 'nx'. Write it as"),
        ([PROBLEM, "--count", "2", "--set", "nx=9"], "CheckpointError: sample(model) expects a model for the grid of"),
        ([PROBLEM, "--count", "2", "--model", "moon"], "UnknownName: sample(model) expects one of"),
        ([PROBLEM, "--count", "2", "--model", "burgers-small"], "expects a model of heat for 'heat-ic-mass-implicit'"),
    ],
)
def test_mistakes_are_one_clear_line_and_exit_code_2(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setattr("sys.argv", ["snapfm", "sample", *arguments, "--out", str(tmp_path / "a.zarr")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert words in told
    assert "Traceback" not in told
    assert list(tmp_path.iterdir()) == []


def test_defaults_are_those_of_the_library():
    """The command spells them out so that --help needs no torch; here they are held together."""
    ours = {name: parameter.default for name, parameter in inspect.signature(sample).parameters.items()}
    for field in fields(SampleRecipe):
        if field.name not in ("problem", "count", "settings"):
            assert ours[field.name] == field.default, field.name


@pytest.mark.parametrize("name", ["h.npy", "h.NPZ", "h.h5"])
def test_the_name_of_another_format_is_refused(name: str, model: Path, tmp_path: Path):
    with pytest.raises(
        DataError, match=r"sample\(out\) expects the name of a Zarr file; got .*h\.\w+, .* Write to .*h\.zarr\."
    ):
        run(tmp_path / name, model)
    assert list(tmp_path.iterdir()) == []


def test_one_sample_is_told_in_the_singular(model: Path, tmp_path: Path):
    answer = run(tmp_path / "one.zarr", model, "--count", "1")
    assert f"{tmp_path / 'one.zarr'}: 1 sample of 9×7; 1 of 1 converged" in answer.stdout
    again = run(tmp_path / "one.zarr", model, "--count", "1")
    assert "already holds 1 sample of this run" in again.stdout


@pytest.mark.parametrize(
    ("more", "came"),
    [
        ([], "got no --laws, no --shape."),
        (["--laws", "mine:laws"], "got no --shape."),
        ([PROBLEM, "--laws", "mine:laws", "--shape", "4,5"], "got the PROBLEM."),
        (["--laws", "mine:laws", "--shape", "4,5", "--set", "nx=4"], "got --set."),
    ],
)
def test_what_is_missing_beside_a_model_of_ones_own_is_named(more: list[str], came: str):
    answer = RUN.invoke(app, ["sample", *more, "--velocity", "mine:velocity", "--count", "2", "--out", "own.zarr"])
    assert came in str(answer.exception)
