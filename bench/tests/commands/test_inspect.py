"""`snapfm problems` and `snapfm inspect`: what they print, draw and refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from snapfm.cli.app import app, main
from snapfm.errors import DataError

RUN = CliRunner()


def test_problems_lists_sizes_for_scripts():
    answer = RUN.invoke(app, ["problems", "--json"])
    assert answer.exit_code == 0, answer.output
    found = {row["name"]: row for row in json.loads(answer.stdout)}
    assert found["heat-ic-mass"]["rows"] == 199
    assert found["burgers-ic-mass-flux"]["rows"] == 697
    assert found["burgers-ic-mass-flux"]["redundant_rows"] == 1
    heat = found["heat-ic-mass-pde-energy"]
    assert (heat["equality_rows"], heat["rows"]) == (689, 788)
    assert found["navier-stokes-ic-mass-enstrophy"]["non_zeros"] == 25344


def test_problems_prints_whole_names_in_a_narrow_terminal():
    answer = RUN.invoke(app, ["problems"], env={"COLUMNS": "80"})
    assert answer.exit_code == 0
    assert "navier-stokes-ic-mass-enstrophy" in answer.stdout


def test_inspect_prints_the_structure_and_draws_it(tmp_path: Path):
    picture = tmp_path / "deep" / "pattern.png"
    answer = RUN.invoke(app, ["inspect", "burgers-ic-mass-flux", "--out", str(picture)])
    assert answer.exit_code == 0, answer.output
    assert "12 282 non-zeros" in answer.stdout
    table = {line.split()[0]: line.split()[-1] for line in answer.stdout.splitlines() if " = 0 " in line}
    assert table == {"initial": "constant", "mass": "constant", "flux": "compiled"}
    assert "slow path" not in answer.stdout
    assert "Redundant: law 'mass' row 0 repeats 'initial' rows 0..100" in " ".join(answer.stdout.split())
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in picture.parent.iterdir()] == ["pattern.png"]


@pytest.mark.parametrize("name", ["burgers-ic-mass-flux", "heat-ic-mass-pde-energy", "navier-stokes-ic-mass-enstrophy"])
def test_inspect_fits_eighty_columns(name: str):
    answer = RUN.invoke(app, ["inspect", name, "--no-picture"], env={"COLUMNS": "80"}, catch_exceptions=False)
    assert answer.exit_code == 0
    assert max(map(len, answer.stdout.splitlines())) <= 80


def test_a_pattern_is_not_written_under_the_name_of_another_format(tmp_path: Path):
    with pytest.raises(
        DataError, match=r"--out expects a name that ends in \.png; got .*h\.npy, .* Write to .*h\.png\.$"
    ):
        RUN.invoke(app, ["inspect", "heat-ic-mass", "--out", str(tmp_path / "h.npy")], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []


def test_inspect_takes_settings_and_gives_json(tmp_path: Path):
    call = ["inspect", "burgers-ic-mass-flux", "--set", "nx=21", "--set", "nt=11", "--set", "flux_steps=2", "--json"]
    answer = RUN.invoke(app, call, catch_exceptions=False)
    assert answer.exit_code == 0
    found = json.loads(answer.stdout)
    assert (found["shape"], found["rows"]) == ([21, 11], 21 + 11 + 2 * 19)
    assert {law["name"]: law["affine_rows"] for law in found["laws"]} == {"initial": 21, "mass": 11, "flux": 0}
    assert sum(law["non_zeros"] for law in found["laws"]) == found["non_zeros"]
    assert {law["name"]: law["separable_rows"] for law in found["laws"]} == {"initial": 0, "mass": 0, "flux": 2 * 19}
    assert {law["kind"] for law in found["laws"]} == {"equality"}
    picture = tmp_path / "pattern.png"
    answer = RUN.invoke(app, [*call, "--out", str(picture)], catch_exceptions=False)
    assert json.loads(answer.stdout) == found
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_wrong_name_is_one_clear_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.argv", ["snapfm", "inspect", "heet"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert told.startswith("UnknownName: snapfm.problem(name) expects one of")
    assert "Traceback" not in told
