from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from snapfm_bench.demo import run
from snapfm_bench.demo.record import Evidence, Record
from snapfm_bench.record import load

NAMES = ("fields", "initial", "mass", "drift", "shocks", "violations")


@pytest.fixture(autouse=True)
def _quick_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "hero", lambda evidence: b"hero")
    monkeypatch.setattr(run, "pictures", lambda evidence: dict.fromkeys(NAMES, b"png"))


def test_write_leaves_three_files_and_no_scraps(evidence: Evidence, tmp_path: Path):
    out = tmp_path / "deep" / "demo"
    page = run.write(out, evidence)
    assert page == out / "index.html"
    assert sorted(path.name for path in out.iterdir()) == ["evidence.json", "hero.png", "index.html"]
    assert load(Record, json.loads((out / "evidence.json").read_text())) == evidence.record
    assert str(tmp_path) not in page.read_text(encoding="utf-8")


def test_a_page_is_replaced_whole_or_not_at_all(evidence: Evidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = run.write(tmp_path, evidence)
    page.write_text("the page before")

    def refuse(source: Path, target: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        run.write(tmp_path, evidence)
    assert page.read_text() == "the page before"
    assert not list(tmp_path.glob(".*"))
