"""What a run of blocks shows: JSON lines for scripts, and one line with blocks, rate, failures on terminals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from snapfm.cli import watch as module
from snapfm.cli.app import app
from snapfm.cli.watch import Watch
from snapfm.files.engines import BlockFailed


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_log_has_a_line_at_the_start_every_second_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    watch = Watch(tmp_path / "deep" / "log.jsonl")
    with watch.shown(100, 10, "samples") as tell:
        tell(20)
        for done in (30, 40, 60):
            now[0] += 0.5
            tell(done)
        watch.failed("block 7 failed")
        tell(100)
    start, middle, failure, end = lines(tmp_path / "deep" / "log.jsonl")
    assert (start["done"], start["rate"], start["seconds_left"]) == (20, 0.0, None)
    assert (middle["done"], middle["blocks"], middle["all_blocks"], middle["failures"]) == (40, 4, 10, 0)
    assert (middle["rate"], middle["seconds_left"]) == (20.0, 3.0)  # what was there before does not count as fast
    assert failure["failure"] == "block 7 failed"
    assert (end["done"], end["blocks"], end["failures"], end["total"]) == (100, 10, 1, 100)


def test_the_log_ends_with_why_a_run_was_stopped(tmp_path: Path) -> None:
    def stopped() -> None:
        with Watch(tmp_path / "log.jsonl").shown(100, 10, "samples") as tell:
            tell(20)
            raise BlockFailed("block 2 (samples 20 to 29) failed 3 times")

    with pytest.raises(BlockFailed):
        stopped()
    *_, failure, last = lines(tmp_path / "log.jsonl")
    assert failure["failure"] == "block 2 (samples 20 to 29) failed 3 times"
    assert last["done"] == 20


def test_a_terminal_shows_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Console(force_terminal=True, width=120, record=True, stderr=True)
    monkeypatch.setattr(module, "Console", lambda stderr: shown)
    watch = Watch()
    with watch.shown(40, 10, "samples") as tell:
        tell(0)
        watch.failed("block 1 failed")
        tell(25)
    text = shown.export_text()
    assert "block 1 failed" in text
    assert "2/4 blocks, 25/40 samples" in text
    assert "1 failed" in text


def test_commands_write_the_log(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    command = ["data", "heat-ic-mass", "--count", "40", "--set", "nx=7", "--set", "nt=6", "--log", str(tmp_path / "l")]
    answer = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "a.zarr")], catch_exceptions=False)
    assert answer.exit_code == 0
    found = lines(tmp_path / "l")
    assert (found[0]["done"], found[-1]["done"], found[-1]["blocks"]) == (0, 40, 2)
