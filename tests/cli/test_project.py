"""`snapfm project`: what it writes, prints and refuses, its exit codes, and that kills change no bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from snapfm.cli.app import app

pytest.importorskip("zarr")

LAWS = """
from snapfm import Equality

laws = [Equality("mean", lambda u, p: u.mean() - p["m"]), Equality("energy", lambda u, p: (u ** 2).sum(0) - 1.0)]
"""
KILLER = Path(__file__).parents[1] / "files" / "killer.py"
MODULES = "snapfm.files,torch._dynamo,zarr,zarr.storage,zarr.codecs,rich.progress"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "laws_at_hand.py").write_text(LAWS)
    dice = np.random.default_rng(0)
    np.savez(tmp_path / "fields.npz", u=dice.normal(size=(23, 5, 4)), m=dice.normal(size=23) / 10)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def run(*more: str) -> Result:
    command = ["project", "fields.npz", "--laws", "laws_at_hand:laws", "--out", "out.zarr", "--batch", "5", *more]
    return CliRunner().invoke(app, command, catch_exceptions=False)


def test_it_writes_and_reports_violations_before_and_after() -> None:
    answer = run()
    assert answer.exit_code == 0, answer.output
    assert "out.zarr: 23 fields of 5×4; 23 of 23 converged" in answer.output
    lines = answer.output.splitlines()
    assert lines[1].split() == ["largest", "violation", "of", "before", "after"]
    law, before, after = lines[3].split()
    assert law == "energy"
    assert float(before) > 1.0 > 1e-8 >= float(after)
    told = json.loads(run("--json").output)
    assert (told["found"], told["missing"], told["statuses"]) == (23, 0, {"CONVERGED": 23})
    assert told["violations"]["mean"]["before"] > 0.1


def test_a_part_says_that_others_are_missing() -> None:
    answer = run("--part", "1/2")
    assert answer.exit_code == 0
    assert "out.zarr: part 1/2 is done" in answer.output
    assert "13 of 23 are written. The process that finishes last completes the file." in answer.output
    assert "23 of 23 converged" in run("--part", "2/2").output


def test_fields_that_fail_end_with_exit_code_1() -> None:
    with np.load("fields.npz") as packed:
        spoiled = dict(packed)
    spoiled["u"][12, 0, 0] = np.nan
    np.savez("fields.npz", **spoiled)
    answer = run()
    assert answer.exit_code == 1
    assert "sample 12: NONFINITE" in answer.output
    kept = run("--keep-failed")
    assert kept.exit_code == 1
    assert "22 of 23 converged (1 NONFINITE)" in kept.output


def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    command = ["project", str(tmp_path / "fields.npz"), "--laws", "laws_at_hand:laws", "--batch", "3"]
    line = [sys.executable, str(KILLER), str(files), MODULES, *command]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3


def test_a_file_in_place_of_a_module_is_told_the_module() -> None:
    answer = CliRunner().invoke(app, ["project", "fields.npz", "--laws", "laws_at_hand.py:laws", "--out", "out.zarr"])
    assert "Write --laws laws_at_hand:laws" in " ".join(str(answer.exception).split())


def test_a_misspelt_list_of_laws_is_asked_for() -> None:
    answer = CliRunner().invoke(app, ["project", "fields.npz", "--laws", "laws_at_hand:lawz", "--out", "out.zarr"])
    assert "Did you mean 'laws'?" in str(answer.exception)


def test_params_beside_a_single_array_are_told_a_file_for_both() -> None:
    np.save("alone.npy", np.zeros((4, 5, 4)))
    command = ["project", "alone.npy", "--laws", "laws_at_hand:laws", "--params", "m", "--out", "out.zarr"]
    answer = CliRunner().invoke(app, command)
    assert "numpy.savez('both.npz', u=fields, m=values)" in str(answer.exception)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_violations_left_by_rounding_are_explained(dtype: str) -> None:
    answer = run("--dtype", dtype)
    assert answer.exit_code == 0, answer.output
    assert ("come from rounding to float32; --dtype float64 avoids it" in answer.output) == (dtype == "float32")


def test_nothing_is_left_behind_where_zarr_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zarr", None)
    answer = CliRunner().invoke(app, ["project", "fields.npz", "--laws", "laws_at_hand:laws", "--out", "out.zarr"])
    assert "pip install 'snapfm[data]'" in str(answer.exception)
    assert not list(Path().glob("out.zarr*"))


def test_help_shows_what_a_law_looks_like() -> None:
    answer = CliRunner().invoke(app, ["project", "--help"], catch_exceptions=False)
    assert 'Equality("mean", lambda u, p: u.mean())' in " ".join(answer.output.split())
