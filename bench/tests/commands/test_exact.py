"""`snapfm quality exact`: one case from end to end, resumed and rewritten from its records, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from snapfm.cli.app import app, main

RUN = CliRunner()
SETTINGS = ["--count", "16", "--steps", "2,3"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("exact") / "deep"
    answer = RUN.invoke(
        app, ["quality", "exact", "--out", str(out), "--only", "mixture", *SETTINGS], env={"COLUMNS": "120"},
        catch_exceptions=False,
    )  # fmt: skip
    assert answer.exit_code == 0, answer.output
    return out, answer.output


def test_a_case_from_end_to_end(finished: tuple[Path, str]):
    out, told = finished
    assert "Largest error in units of chance, affine laws" in told
    assert "nonlinear" not in told
    assert "Conditional, kept noise, 3" in told
    records = [json.loads(line) for line in (out / "records.jsonl").read_text(encoding="utf-8").splitlines()]
    assert records[0]["suite"]["steps"] == [2, 3]
    assert len(records) == 1 + 2 * 7  # seven samplers where the laws are affine
    for record in records[1:]:
        assert record["certified"] == record["count"] == 16
        assert set(record["scores"]) == set(record["chance"]) == {"mean", "spread", "ratio", "modes"}
        assert record["calls"] == record["steps"] * (5 if record["sampler"] == "ECI" else 1)
    page = (out / "exact.md").read_text(encoding="utf-8")
    assert "### Mixture, weights stay" in page
    assert page.count("\n| Conditional") == 2 * (2 + 2 + 2)  # in the summary and in the case's table


def test_a_second_run_samples_nothing_and_writes_the_same_page(finished: tuple[Path, str]):
    out, _ = finished
    before, page = (out / "records.jsonl").read_bytes(), (out / "exact.md").read_bytes()
    (out / "exact.md").unlink()
    for extra in (["--only", "mixture"], ["--page-only", "--json"]):
        answer = RUN.invoke(app, ["quality", "exact", "--out", str(out), *SETTINGS, *extra], catch_exceptions=False)
        assert answer.exit_code == 0
        assert (out / "records.jsonl").read_bytes() == before
        assert (out / "exact.md").read_bytes() == page
    assert len(json.loads(answer.stdout)) == 14


def test_a_stopped_run_goes_on_after_its_last_cell(finished: tuple[Path, str], tmp_path: Path):
    lines = (finished[0] / "records.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_bytes(b"".join(lines[:-1]) + lines[-1][:40])
    RUN.invoke(
        app, ["quality", "exact", "--out", str(tmp_path), "--only", "mixture", *SETTINGS], catch_exceptions=False
    )
    again = (tmp_path / "records.jsonl").read_bytes().splitlines(keepends=True)
    assert again[:-1] == lines[:-1]
    assert json.loads(again[-1])["scores"] == json.loads(lines[-1])["scores"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["exact", "--steps", "20,x"], "--steps expects different whole numbers >= 1; got '20,x'. Write it as in"),
        (["exact", "--steps", "20,20"], "--steps expects different whole numbers >= 1; got '20,20'."),
        (["exact", "--count", "1"], "--count expects at least 2 samples; got 1."),
        (["exact", "--only", "moon"], "--only expects a case of suite 'exact', one of ['gaussian', 'heat', 'mixture'"),
        (["exact", "--page-only"], "--page-only expects records.jsonl in --out"),
        (["smoke", "--count", "8"], "--count and --steps expect the suite 'exact'; got 'smoke', which has its own."),
    ],
)  # fmt: skip
def test_mistakes_are_one_clear_line_and_exit_code_2(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):  # fmt: skip
    monkeypatch.setattr("sys.argv", ["snapfm", "quality", *arguments, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_records_of_other_settings_are_refused(
    finished: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.argv", ["snapfm", "quality", "exact", "--count", "17", "--out", str(finished[0])])
    with pytest.raises(SystemExit):
        main()
    assert "with another count, steps" in " ".join(capsys.readouterr().err.split())
