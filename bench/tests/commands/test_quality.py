"""`snapfm quality`: the smoke suite from end to end on the shipped models, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from snapfm.cli.app import app, main

RUN = CliRunner()


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("quality") / "deep"
    answer = RUN.invoke(app, ["quality", "smoke", "--out", str(out)], env={"COLUMNS": "120"}, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return out, answer.output


def test_the_smoke_suite_from_end_to_end(smoke: tuple[Path, str]):
    out, told = smoke
    assert "heat × pcfm: DONE" in told
    assert "0 cells left" in told
    assert f"The page: {out / 'index.html'}" in told.replace("\n", "")
    assert sorted(entry.name for entry in out.iterdir()) == ["index.html", "moments", "quality.md", "records.jsonl"]
    records = [json.loads(line) for line in (out / "records.jsonl").read_text(encoding="utf-8").splitlines()[1:]]
    assert {record["status"] for record in records} == {"DONE"}
    pcfm = [record for record in records if record["sampler"] == "pcfm"]
    assert len(pcfm) == 2
    for record in pcfm:
        assert record["converged"] == record["samples"]
        assert max(law["worst_row"] for law in record["laws"]) <= 1e-10  # the suite's tolerance


def test_json_and_pages_come_from_records_without_running(smoke: tuple[Path, str]):
    out, _ = smoke
    before = (out / "records.jsonl").read_bytes()
    (out / "index.html").unlink()
    answer = RUN.invoke(app, ["quality", "smoke", "--out", str(out), "--page-only", "--json"], catch_exceptions=False)
    assert answer.exit_code == 0
    assert len(json.loads(answer.stdout)) == len(before.splitlines()) - 1
    assert (out / "records.jsonl").read_bytes() == before
    assert (out / "index.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["moon"],
            "UnknownName: snapfm quality SUITE expects one of ['best', 'paper', 'plain', 'plain-steps', 'smoke', 'steps'] or",
        ),
        (
            ["smoke", "--only", "moon"],
            "UnknownName: --only expects a task of suite 'smoke', one of ['heat', 'burgers-bc']",
        ),
        (["smoke", "--page-only"], "DataError: --page-only expects records.jsonl in --out"),
    ],
)
def test_mistakes_are_one_clear_line_and_exit_code_2(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr("sys.argv", ["snapfm", "quality", *arguments, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert words in told
    assert "Traceback" not in told


def test_another_suite_in_the_folder_is_refused(
    smoke: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.argv", ["snapfm", "quality", "steps", "--out", str(smoke[0])])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "expected to hold records of suite 'steps' as it is now; got those of suite 'smoke'" in told
    assert "Choose another folder, or remove that one." in told
