"""`snapfm data`: what it writes, prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from snapfm.cli.app import app, main
from snapfm.files import load

pytest.importorskip("zarr")
RUN = CliRunner()
SMALL = ["--set", "nx=7", "--set", "nt=6"]


def run(*arguments: str | Path) -> str:
    answer = RUN.invoke(app, ["data", *map(str, arguments)], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_it_writes_says_what_and_does_not_write_twice(tmp_path: Path):
    out = tmp_path / "deep" / "heat.zarr"
    told = run("heat-ic-mass", "--count", "5", "--out", out, *SMALL)
    assert told.startswith(f"{out}: 5 fields of 7×6, float64 (")
    assert load(out)[0].shape == (5, 7, 6)
    assert "already holds 5 fields of this run" in run("heat-ic-mass", "--count", "5", "--out", out, *SMALL)


def test_a_summary_for_scripts(tmp_path: Path):
    out = tmp_path / "a.zarr"
    told = json.loads(
        run("burgers-ic", "--count", "3", "--seed", "4", "--dtype", "float32", "--out", out, *SMALL, "--json")
    )
    assert told.pop("seconds") >= 0
    assert told.pop("bytes") > 0
    assert told == {
        "problem": "burgers-ic", "count": 3, "seed": 4, "dtype": "float32", "settings": {"nx": 7, "nt": 6},
        "path": str(out), "shape": [7, 6], "found": 0, "missing": 0,
    }  # fmt: skip


def test_settings_are_read_by_what_they_look_like(tmp_path: Path):
    more = ["--set", "position=none", "--set", "flux=godunov", "--set", "flux_steps=2"]
    told = json.loads(
        run("burgers-ic-mass-flux", "--count", "2", "--out", tmp_path / "a.zarr", *SMALL, *more, "--json")
    )
    assert told["settings"] == {"nx": 7, "nt": 6, "position": None, "flux": "godunov", "flux_steps": 2}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["moon", "--count", "2"], "UnknownName: snapfm.problem(name) expects one of"),
        (["moon", "--count", "paper"], "UnknownName: snapfm.problem(name) expects one of"),
        (["heat-ic-mass", "--count", "many"], "--count expects a whole number or 'paper'; got 'many'. Try --count"),
        (["heat-ic-mass", "--count", "2", "--set", "nx"], "--set expects NAME=VALUE; got 'nx'. Write it as in"),
        (["heat-ic-mass", "--count", "2", "--set", "nx=1"], "ShapeError: Axis('x') expects at least 2 points"),
    ],
)
def test_mistakes_are_one_clear_line_and_exit_code_2(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setattr("sys.argv", ["snapfm", "data", *arguments, "--out", str(tmp_path / "a.zarr")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert words in told
    assert "Traceback" not in told
    assert list(tmp_path.iterdir()) == []


def test_another_run_in_the_same_place_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    out = tmp_path / "a.zarr"
    run("heat-ic-mass", "--count", "3", "--out", out, *SMALL)
    argv = ["snapfm", "data", "heat-ic-mass", "--count", "4", "--seed", "1", "--out", str(out), *SMALL]
    monkeypatch.setattr("sys.argv", argv)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "with count=4, seed=1; got count=3, seed=0. Ask for what it holds, remove it" in told


def test_without_zarr_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setitem(__import__("sys").modules, "zarr", None)
    monkeypatch.setattr("sys.argv", ["snapfm", "data", "heat-ic-mass", "--count", "1", "--out", str(tmp_path / "a")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "zarr is needed for data files; it is not installed. Install it with: pip install 'snapfm[data]'" in told
