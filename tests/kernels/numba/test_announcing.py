"""Compiling says what it does after two seconds, and nothing before: a line on a terminal, elsewhere one entry in the log."""

from __future__ import annotations

import io
import logging
import sys
import threading
import time

import pytest

from snapfm import progress
from snapfm.kernels.numba import compiling
from snapfm.kernels.numba.compiling import announced


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER", 0.01)
    monkeypatch.setattr(compiling, "_spent", 0.0)
    monkeypatch.setattr(compiling, "_logged", False)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_is_compiled_and_nothing_afterwards(impatient: None, monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    before = threading.active_count()
    with announced("newton.solve_tiles", outermost=True), announced("ldl.factorize", outermost=False):
        while "ldl.factorize" not in terminal.getvalue():
            time.sleep(0.01)
    assert "compiling kernels, once: ldl.factorize" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")
    assert terminal.getvalue().rstrip("\r").split("\r")[-1].strip() == ""
    assert threading.active_count() == before


def test_elsewhere_there_is_one_entry_in_the_log(impatient: None, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, "snapfm"):
        for _ in range(2):
            with announced("newton.solve_tiles", outermost=True):
                time.sleep(0.1)
    assert [entry.message.split(",")[0] for entry in caplog.records] == ["compiling kernels for this machine"]


def test_nothing_is_said_in_time(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(compiling, "_spent", 0.0)
    monkeypatch.setattr(compiling, "_logged", False)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with announced("newton.solve_tiles", outermost=True):
        pass
    assert terminal.getvalue() == ""
    assert not caplog.records


def test_short_compilations_add_up(impatient: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(progress, "AFTER", 0.3)
    for _ in range(100):
        with announced("lanes.gather", outermost=True):
            time.sleep(0.01)
    assert len(caplog.records) == 1
