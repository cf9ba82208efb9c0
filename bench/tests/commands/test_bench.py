"""`snapfm bench`: the smoke suite from end to end with the real methods, options, exit codes, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from bench.tests.suites.projection.toys import suite_file
from typer.testing import CliRunner

from snapfm.cli.app import app, main

RUN = CliRunner()
TOYS = str(Path(__file__).parents[1] / "suites" / "projection")


@pytest.fixture
def toys_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", TOYS, prepend=os.pathsep)
    monkeypatch.syspath_prepend(TOYS)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("bench") / "deep"
    answer = RUN.invoke(app, ["bench", "smoke", "--out", str(out)], env={"COLUMNS": "160"}, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return out, answer.output


@pytest.mark.slow
def test_the_smoke_suite_from_end_to_end(smoke: tuple[Path, str]):
    out, told = smoke
    assert "burgers-ic-flux × ours, projection: DONE" in told
    assert "; 0 cells left" in told
    assert "Projection: ms per sample" in told
    assert "Walks: seconds of network + projection" in told
    assert f"snapfm report {out} --out FOLDER" in told.replace("\n", "")
    records = [json.loads(line) for line in (out / "records.jsonl").read_text(encoding="utf-8").splitlines()[1:]]
    ours = [record for record in records if record["method"] == "ours"]
    assert {record["kind"] for record in ours} == {"projection", "walk", "curve"}
    assert {record["state"] for record in ours} == {"DONE"}
    for record in ours:
        for verdict in [turn["verdict"] for turn in record["turns"]] + (
            [record["verdict"]] if record["verdict"] else []
        ):
            assert verdict["converged"] == verdict["samples"]
            assert verdict["violation"] <= 1e-5  # the suite's tolerance
    # The peers find the same nearest fields: distances differ by what the tolerance leaves open.
    for record in records:
        if record["state"] != "DONE":
            continue
        own = next(one for one in ours if (one["case"], one["kind"]) == (record["case"], record["kind"]))
        for turn, other in zip(record["turns"], own["turns"]):
            assert turn["verdict"]["distances"] == pytest.approx(other["verdict"]["distances"], abs=1e-4)


@pytest.mark.slow
def test_json_comes_from_records_without_running(smoke: tuple[Path, str]):
    out, _ = smoke
    before = (out / "records.jsonl").read_bytes()
    answer = RUN.invoke(app, ["bench", "smoke", "--out", str(out), "--json"], catch_exceptions=False)
    assert answer.exit_code == 0
    assert len(json.loads(answer.stdout)) == len(before.splitlines()) - 1
    assert (out / "records.jsonl").read_bytes() == before


@pytest.mark.slow
@pytest.mark.usefixtures("toys_are_found")
def test_one_case_and_some_methods_and_the_exit_code(tmp_path: Path):
    more = '\n[cases.other]\nproblem = "heat-ic-mass"\nnoisy = 0.1\n'
    file = suite_file(tmp_path, ["ours", "good", "raising", "missing"], more=more)
    call = ["bench", str(file), "--out", str(tmp_path / "out"), "--only", "burgers"]
    answer = RUN.invoke(app, [*call, "--method", "raising", "--method", "missing"], catch_exceptions=False)
    assert answer.exit_code == 0  # rivals may fail
    assert "burgers × raising, projection: FAILED (RuntimeError: the pivot is zero)" in answer.output
    assert "ABSENT" in answer.output
    records = (tmp_path / "out" / "records.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    assert [json.loads(line)["method"] for line in records] == ["raising", "missing"]
    # The same record under our own name.
    with (tmp_path / "out" / "records.jsonl").open("a", encoding="utf-8") as file_of_records:
        file_of_records.write(json.dumps({**json.loads(records[0]), "method": "ours"}, ensure_ascii=False) + "\n")
    answer = RUN.invoke(app, [*call, "--method", "ours"], catch_exceptions=False)
    assert answer.exit_code == 1
    answer = RUN.invoke(app, [*call, "--method", "ours", "--again"], catch_exceptions=False)
    assert answer.exit_code == 0
    assert "burgers × ours, projection: DONE" in answer.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["moon"], "UnknownName: snapfm bench SUITE expects one of ['paper', 'scaling-constraints',"),
        (
            ["smoke", "--only", "moon"],
            "UnknownName: --only expects a case of suite 'smoke', one of ['burgers-ic-flux',",
        ),
        (["smoke", "--method", "moon"], "UnknownName: --method expects a method of suite 'smoke', one of ['ours',"),
    ],
)
def test_mistakes_are_one_clear_line_and_exit_code_2(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr("sys.argv", ["snapfm", "bench", *arguments, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert words in told
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()
