"""`snapfm report`: pages from folders of records, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.tests.suites.projection.report.planted import folder, paper_cells, paper_suite, scaling_cells, scaling_suite
from typer.testing import CliRunner

from snapfm.cli.app import app, main

RUN = CliRunner()


def test_two_runs_make_one_page(tmp_path: Path):
    first = folder(tmp_path / "first", paper_suite(), paper_cells())
    second = folder(tmp_path / "second", scaling_suite(), scaling_cells())
    out = tmp_path / "page"
    answer = RUN.invoke(app, ["report", str(first), str(second), "--out", str(out)], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    assert "24 of 31 cells have a figure; 2 DNF, 2 FAILED, 2 ABSENT, 1 REFUSED." in answer.output
    assert f"The page: {out / 'index.html'}" in answer.output
    assert sorted(file.name for file in out.iterdir()) == ["index.html", "report.md"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "DataError: snapfm report expects records.jsonl in"),
        ("not json\n", "records.jsonl is expected to hold a suite and one record per line; got something else"),
        ('{"suite": {"name": "x"}}\n{"task": "of quality"}\n', "records.jsonl is expected to hold a suite"),
        ("", "DataError: snapfm report expects records of a benchmark in"),
        ('{"suite": {"name": "x"}}\n', "DataError: snapfm report expects records of a benchmark in"),
    ],
)
def test_folders_without_records_are_refused(
    content: str | None,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    if content is not None:
        (tmp_path / "records.jsonl").write_text(content, encoding="utf-8")
    refuse(["report", str(tmp_path), "--out", str(tmp_path / "out")], message, monkeypatch, capsys)
    assert not (tmp_path / "out").exists()


def test_records_that_are_no_text_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "records.jsonl").write_bytes(b"\xff\xfe\n")
    message = "records.jsonl is expected to hold a suite and one record per line; got something else"
    refuse(["report", str(tmp_path), "--out", str(tmp_path / "out")], message, monkeypatch, capsys)


def test_a_folder_named_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    run = str(folder(tmp_path / "run", paper_suite(), paper_cells()))
    message = "DataError: snapfm report expects each folder once; got"
    refuse(["report", run, f"{run}/", "--out", str(tmp_path / "out")], message, monkeypatch, capsys)


def refuse(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["snapfm", *arguments])
    with pytest.raises(SystemExit) as exit_code:
        main()
    assert exit_code.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
