"""Records say what they were made with, and those of other sources or of another suite are refused, not renewed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from snapfm.errors import DataError
from snapfm_bench import machine, record
from snapfm_bench.record import RECORDS, Records, suite_digest


@dataclass(frozen=True)
class Suite:
    name: str = "tiny"
    budget: float = 60.0


@dataclass(frozen=True)
class Cell:
    case: str
    suite: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        return (self.case,)


def source(commit: str, changes: str = "") -> dict[str, object]:
    return {"commit": commit, "dirty": bool(changes), "changes": changes}


def test_a_run_goes_on_with_the_sources_it_was_begun_with_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(record, "source", lambda: source("aaaa"))
    with Records(tmp_path, Suite(), Cell) as records:
        records.append(Cell("one", suite_digest(Suite())))
    with Records(tmp_path, Suite(), Cell) as records:
        assert list(records.cells) == [("one",)]
    before = (tmp_path / RECORDS).read_bytes()
    monkeypatch.setattr(record, "source", lambda: source("bbbb"))
    with pytest.raises(
        DataError,
        match=r"records of the present sources, commit bbbb; got those of commit aaaa. Choose another folder, or check",
    ):
        Records(tmp_path, Suite(), Cell)
    monkeypatch.setattr(record, "source", lambda: source("aaaa", "12ab"))
    with pytest.raises(DataError, match=r"commit aaaa with changes \(12ab\); got those of commit aaaa\. "):
        Records(tmp_path, Suite(), Cell)
    assert (tmp_path / RECORDS).read_bytes() == before


def test_a_header_renewed_by_hand_is_refused(tmp_path: Path):
    with Records(tmp_path, Suite(), Cell) as records:
        records.append(Cell("one", suite_digest(Suite())))
    head, *cells = (tmp_path / RECORDS).read_text(encoding="utf-8").splitlines()
    renewed = {**json.loads(head), "suite": asdict(Suite(budget=90.0))}
    (tmp_path / RECORDS).write_text("\n".join([json.dumps(renewed), *cells]) + "\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"cells of suite 'tiny' as its header has it; got a cell \('one',\) of another one"
    ):
        Records(tmp_path, Suite(budget=90.0), Cell)


def test_records_without_sources_are_read_but_not_continued(tmp_path: Path):
    (tmp_path / RECORDS).write_text(json.dumps({"suite": asdict(Suite())}) + "\n", encoding="utf-8")
    assert record.read(tmp_path / RECORDS, Suite, Cell) == (Suite(), {})
    with pytest.raises(DataError, match=r"got those of an unknown commit\. "):
        Records(tmp_path, Suite(), Cell)


def test_a_machine_names_commit_day_and_what_was_imported():
    found = machine.machine()
    assert {"commit", "dirty", "date", "versions", "cores"} <= set(found)
    assert found["versions"]["torch"]
    assert "juliacall" not in found["versions"]  # known, and not imported


def test_a_distribution_is_found_by_the_module_it_brings():
    pytest.importorskip("pounce")
    assert machine.imported()["pounce-solver"]
