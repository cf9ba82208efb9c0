"""The progress line of preparing: one line on stderr after a while, nothing before, nothing for those who want none."""

from __future__ import annotations

import threading
import time

import pytest

from snapfm import Equality, Projector, progress
from snapfm.errors import SettingError
from snapfm.progress import preparing


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER", 0.01)
    monkeypatch.setattr(progress, "_AGAIN", 0.01)


def wait_for_line(capsys: pytest.CaptureFixture[str]) -> str:
    shown = ""
    for _ in range(500):
        shown += capsys.readouterr().err
        if shown:
            break
        time.sleep(0.01)
    return shown


def test_the_line_says_what_is_being_done(impatient: None, capsys: pytest.CaptureFixture[str]):
    with preparing(True) as report:
        report("ordering")
        assert "preparing: ordering, 0 s" in wait_for_line(capsys)
        report("presolve")
        while "presolve" not in wait_for_line(capsys):
            pass
    last = capsys.readouterr().err
    assert "prepared in " in last
    assert last.count("\n") == 1
    assert last.endswith("\n")


def test_nothing_is_shown_in_time_or_unasked(capsys: pytest.CaptureFixture[str]):
    for asked in (True, False, None):  # pytest's stderr is no terminal
        with preparing(asked) as report:
            report("ordering")
    assert capsys.readouterr().err == ""


def test_no_thread_stays_even_after_an_error(impatient: None):
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt), preparing(True):
        raise KeyboardInterrupt
    assert threading.active_count() == before


def test_a_projector_reports_its_stages(monkeypatch: pytest.MonkeyPatch):
    stages: list[str] = []
    monkeypatch.setattr(progress.Line, "report", lambda self, doing: stages.append(doing))
    Projector([Equality("mass", lambda u, p: u.sum())], (4,), progress=True)
    assert [stage.split()[0] for stage in stages] == [
        "tracing", "lowering", "finding", "comparing", "presolve", "reducing,",
    ]  # fmt: skip
    with pytest.raises(SettingError, match="progress=… expects True or False"):
        Projector([Equality("mass", lambda u, p: u.sum())], (4,), progress=1)  # type: ignore[arg-type]
