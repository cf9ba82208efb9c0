"""`snapfm kernels`: compiles in several processes, and writes what a wheel ships."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from snapfm.cli import kernels as module
from snapfm.cli import tour
from snapfm.cli.app import app
from snapfm.errors import SnapfmError
from snapfm.kernels.numba import cache as kept


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a tour of one stop, which iterates nothing."""
    monkeypatch.setattr(tour, "STOPS", {"heat": tour.STOPS["heat"]})


def test_it_says_how_many_kernels_are_where(short: None):
    answer = CliRunner().invoke(app, ["kernels"], catch_exceptions=False)
    assert answer.exit_code == 0
    count, words = answer.stdout.split(" ", 1)
    assert int(count) > 5
    assert words.startswith(f"kernels in {kept.own()}")


def test_what_is_shipped_is_machine_code_for_a_level(short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    level, features = next(iter(module._runnable().items()))
    monkeypatch.setattr(module, "_runnable", lambda: {level: features})
    answer = CliRunner().invoke(app, ["kernels", "--ship", str(tmp_path)], catch_exceptions=False)
    assert f"kernels for {level}" in answer.stdout
    folder = tmp_path / kept.stamp() / level
    forms = {file.suffix for file in folder.iterdir()}
    assert forms == {f".{kept.OBJECT}", ".txt"}
    assert (folder / kept.FEATURES).read_text() == features


def test_levels_that_this_machine_cannot_run_are_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("platform.machine", lambda: "AMD64")
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: dict.fromkeys(module._V3.split(), True))
    assert list(module._runnable()) == ["x86-64-v3"]
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert module._runnable() == {}


def test_a_tour_that_fails_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tour, "STOPS", {"no such stop": None})
    with pytest.raises(SnapfmError, match="expects its tour to end; it failed at"):
        CliRunner().invoke(app, ["kernels"], catch_exceptions=False)


def test_without_a_folder_there_is_nothing_to_keep(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept, "own", lambda: None)
    with pytest.raises(SnapfmError, match="expects a cache folder that it may write; found none"):
        CliRunner().invoke(app, ["kernels"], catch_exceptions=False)
