"""One command for everything that is timed: what it continues, what it replaces, and what it says of failures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from benchmarks import published
from benchmarks.published import Step, finished, keep, run, steps
from benchmarks.tables_page import SUITES


def source(commit: str) -> dict[str, object]:
    return {"commit": commit, "dirty": False, "changes": ""}


def writing(folder: Path, code: int = 0, lines: int = 2) -> tuple[str, ...]:
    """A command that appends to a file of its folder, as a suite would, and ends with a code."""
    body = f"import pathlib, sys; f = pathlib.Path({str(folder)!r}); f.mkdir(parents=True, exist_ok=True); "
    body += f"(f / 'records.jsonl').open('a').write('x\\n' * {lines}); sys.exit({code})"
    return ("-c", body)


def test_finished_steps_are_left_out_and_failed_ones_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(published, "source", lambda: source("aaaa"))
    good, ours, bad = (
        Step(f"bench {name}", writing(tmp_path / name, code), tmp_path / name)
        for name, code in (("good", 0), ("ours", 1), ("bad", 2))
    )
    # Code 1 says that ours failed on a case: the records hold it, and what comes after it runs.
    assert run(tmp_path, [bad, good, ours]) == ["bench bad"]
    assert finished(tmp_path) == {"bench good", "bench ours"}
    assert run(tmp_path, [bad, good, ours]) == ["bench bad"]
    held = {name: len((tmp_path / name / "records.jsonl").read_text().splitlines()) for name in ("good", "ours", "bad")}
    assert held == {"good": 2, "ours": 2, "bad": 4}
    monkeypatch.setattr(published, "source", lambda: source("bbbb"))
    assert finished(tmp_path) == set()  # other sources begin anew


def test_records_replace_all_committed_ones_so_that_no_commits_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kept, made = tmp_path / "runs", tmp_path / "made"
    monkeypatch.setattr(published, "RUNS", kept)
    for suite in ("one", "two"):
        (kept / suite / "fields").mkdir(parents=True)
        (kept / suite / "records.jsonl").write_text("old")
        (made / suite).mkdir(parents=True)
        (made / suite / "records.jsonl").write_text(json.dumps({"source": source(suite)}) + "\n")
    planned = [Step(name, (), made / name, kept / name) for name in ("one", "two")]
    with pytest.raises(SystemExit, match=r"all suites to be of one commit; got .*one.*two.* Nothing was replaced"):
        keep(planned)
    assert (kept / "one" / "records.jsonl").read_text() == "old"
    (made / "two" / "records.jsonl").unlink()
    keep(planned)
    assert "one" in (kept / "one" / "records.jsonl").read_text()
    assert not (kept / "one" / "fields").exists()
    assert not (kept / "two").exists()  # failed before its first cell: missing, not that of another commit


def test_a_trial_is_short_and_stays_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    planned = steps(tmp_path, trial=True)
    assert [step.name for step in planned] == [f"bench {suite}" for suite in SUITES]
    assert all("--only" in step.words and "repeats=1" in step.words for step in planned)
    monkeypatch.setattr(published, "steps", lambda out, trial: [Step("bench none", ("-c", ""), out / "none", tmp_path)])
    monkeypatch.setattr(published, "keep", lambda done: pytest.fail("a trial replaces no record"))
    monkeypatch.setattr(published, "write_pages", lambda: pytest.fail("a trial replaces no page"))
    monkeypatch.setattr(sys, "argv", ["published", "--trial", "--out", str(tmp_path / "out")])
    published.main()
    assert {file.name for file in (tmp_path / "out" / "pages").iterdir()} == {"tables.md", "README.md"}
    (line,) = (tmp_path / "out" / "steps.jsonl").read_text().splitlines()
    assert json.loads(line)["step"] == "bench none"


def test_changed_sources_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(published, "source", lambda: {**source("aaaa"), "dirty": True, "changes": "12ab"})
    monkeypatch.setattr(sys, "argv", ["published", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"expects sources as they are committed.*got changes in src/snapfm"):
        published.main()
