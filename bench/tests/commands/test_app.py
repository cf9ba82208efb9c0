"""The end of commands that cannot read or write, or are stopped: one sentence on stderr and an exit code, no traceback."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.figure  # noqa: F401  # now: it looks for a folder of its own when it is loaded, which anyone may lack
import pytest

from snapfm.cli.app import _RESUMES, app, main

ANYONE = 65534  # a user who owns nothing
HANGS = 600.0  # seconds after which a command counts as hanging; a busy machine may need most of them

# The arguments of every command but --out, and what it does its work with.
COMMANDS: dict[str, tuple[list[str], str]] = {
    "problems": ([], "snapfm_bench.problems.names"),
    "inspect": (["heat-ic-mass"], "snapfm_bench.problems.problem"),
    "data": (["heat-ic-mass", "--count", "2", "--out", "OUT"], "snapfm_bench.files.write"),
    "audit": (["heat-ic-mass"], "snapfm_bench.audit.audit"),
    "demo": (["--out", "OUT"], "snapfm_bench.demo.run.run"),
    "train": (["heat-ic-mass", "--out", "OUT"], "snapfm_bench.problems.training.table"),
    "sample": (["heat-ic-mass", "--count", "2", "--out", "OUT"], "snapfm.files.generate"),
    "project": (["in.npy", "--laws", "mine:laws", "--out", "OUT"], "snapfm.files.projected.ProjectedFields"),
    "export": (["in.zarr", "--out", "OUT"], "snapfm.files.well.export_well"),
    "quality": (["smoke", "--out", "OUT"], "snapfm_bench.suites.quality.run"),
    "bench": (["smoke", "--out", "OUT"], "snapfm_bench.suites.projection.run"),
    "report": (["RUN", "--out", "OUT"], "snapfm_bench.suites.projection.report.pages.write"),
    "doctor": ([], "snapfm.cli.doctor._tested"),
    "kernels": ([], "snapfm.kernels.numba.ahead.compile_all"),
}
FOLDERS = ("demo", "train", "quality", "bench", "report")  # these write a folder
FILES = ("data", "sample")  # these a file


def run(
    command: str, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str]:
    """Give the exit code of a command and what it says on stderr."""
    arguments = [{"OUT": str(out), "RUN": str(out.parent)}.get(word, word) for word in COMMANDS[command][0]]
    monkeypatch.setattr("sys.argv", ["snapfm", command, *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    told = capsys.readouterr().err
    assert "Traceback" not in told
    return stop.value.code, " ".join(told.split())


def test_all_commands_are_in_the_table():
    assert set(COMMANDS) == {command.callback.__name__ for command in app.registered_commands if command.callback}


# Places that cannot be written to.


@pytest.mark.parametrize("command", FOLDERS)
def test_a_path_through_a_file_is_told(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "file"
    file.write_text("mine")
    code, told = run(command, file / "deep" / "out", monkeypatch, capsys)
    assert code == 2
    assert told == (
        f"DataError: snapfm {command} --out expects a folder to write to; got {file}/deep/out, where {file} is a file. Choose "
        "another folder."
    )
    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_in_the_place_of_a_folder_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "file"
    file.write_text("mine")
    code, told = run("demo", file, monkeypatch, capsys)
    assert code == 2
    assert told == (
        f"DataError: snapfm demo --out expects a folder to write to; got {file}, which is a file. Choose another folder."
    )
    assert file.read_text() == "mine"


@pytest.mark.parametrize("command", FILES)
def test_a_file_that_cannot_be_made_is_told(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("zarr")
    file = tmp_path / "file"
    file.write_text("mine")
    code, told = run(command, file / "out.zarr", monkeypatch, capsys)
    assert code == 2
    assert told.startswith(f"DataError: {command}(out) expects to write {file}/out.zarr; got 'Not a directory'. Choose")
    code, told = run(command, file, monkeypatch, capsys)
    assert code == 2
    assert told.startswith(
        f"DataError: {command}(out) expects {file} to be absent or a data file of snapfm; got something"
    )
    assert file.read_text() == "mine"


@pytest.fixture
def locked() -> Iterator[Path]:
    """A folder that may be read and not written to, for a user who is not root: root may write everywhere."""
    folder = Path(tempfile.mkdtemp())
    (folder / "inside").mkdir()
    for place in (folder, folder / "inside"):
        place.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(ANYONE)
    try:
        yield folder / "inside"
    finally:
        os.seteuid(user)
        for place in (folder, folder / "inside"):
            place.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.parametrize("new", [True, False])
def test_a_folder_that_is_read_only_is_told(
    new: bool, locked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    out = locked / "out" if new else locked
    code, told = run("demo", out, monkeypatch, capsys)
    assert code == 2
    assert told == (
        f"DataError: snapfm demo --out expects a folder to write to; got {out}, of which the system says 'Permission "
        "denied'. Choose a place you may write to."
    )


@pytest.mark.parametrize("command", FILES)
def test_a_file_in_a_read_only_folder_is_told(
    command: str, locked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("zarr")
    code, told = run(command, locked / "out.zarr", monkeypatch, capsys)
    assert code == 2
    assert told == (
        f"DataError: {command}(out) expects to write {locked}/out.zarr; got 'Permission denied'. Choose a folder you may write "
        "to."
    )


def test_a_picture_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "taken.png").mkdir()
    monkeypatch.setattr("sys.argv", ["snapfm", "inspect", "heat-ic-mass", "--out", str(tmp_path / "taken.png")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert told.startswith(
        "DataError: snapfm inspect expects files it can read and folders it can write to; got 'Is a directory'"
    )
    assert told.endswith("Something else is in its place: remove it, or choose another place.")
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken.png"]  # no half-written file beside it


# Trouble that comes up during the work.


def fail(trouble: BaseException) -> Any:
    def work(*arguments: object, **settings: object) -> None:
        raise trouble

    return work


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_told_in_one_sentence(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/disk/file")
    monkeypatch.setattr(COMMANDS[command][1], fail(full))
    code, told = run(command, tmp_path / "out", monkeypatch, capsys)
    assert code == 2
    kept = " Finished work is kept: the same command resumes from there." if command in _RESUMES else ""
    assert told == (
        f"DataError: snapfm {command} expects files it can read and folders it can write to; got 'No space left on device' for "
        f"/disk/file. Free some space, or choose another disk.{kept}"
    )


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (
            OSError(errno.EROFS, "Read-only file system", "x"),
            "got 'Read-only file system' for x. Choose a place you may write",
        ),
        (OSError(errno.EIO, "Input/output error"), "got 'Input/output error'. Choose another place."),
        (OSError("odd"), "got 'odd'. Choose another place."),
        (OSError(), "got 'OSError'. Choose another place."),
    ],
)
def test_trouble_of_any_kind_has_its_words(
    trouble: OSError, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(COMMANDS["audit"][1], fail(trouble))
    code, told = run("audit", tmp_path, monkeypatch, capsys)
    assert code == 2
    assert words in told


def test_a_closed_pipe_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.stdout", sys.stdout)  # which is replaced to be silent, and put back after the test
    monkeypatch.setattr("sys.stderr", sys.stderr)
    monkeypatch.setattr(COMMANDS["audit"][1], fail(BrokenPipeError(errno.EPIPE, "Broken pipe")))
    assert run("audit", tmp_path, monkeypatch, capsys) == (1, "")


# Ctrl-C.


@pytest.mark.parametrize("command", COMMANDS)
def test_a_stopped_command_says_how_to_go_on(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(logging.getLogger("asyncio"), "disabled", False)  # stopping disables it
    monkeypatch.setattr(COMMANDS[command][1], fail(KeyboardInterrupt()))
    code, told = run(command, tmp_path / "out", monkeypatch, capsys)
    assert code == 130
    how = "resumes where it stopped" if command in _RESUMES else "starts over"
    assert told == f"snapfm {command} was stopped by Ctrl-C before it was done. The same command {how}."


def test_the_commands_that_resume_are_those_that_say_so():
    said = {
        command.callback.__name__
        for command in app.registered_commands
        if command.callback and "resumes" in _words(command.callback)
    }
    assert said == set(_RESUMES)


def _words(function: Any) -> str:
    return " ".join(function.__doc__.split())


STOPPED_WHILE_WRITING = """
import asyncio, os, signal
from zarr.storage import LocalStore
from snapfm.cli import main

async def stopped(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(60)

LocalStore.set = stopped
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


def test_ctrl_c_in_the_middle_of_a_write_is_told_in_one_line(tmp_path: Path):
    pytest.importorskip("zarr")
    command = [sys.executable, "-c", STOPPED_WHILE_WRITING, "data", "heat-ic-mass", "--count", "4"]
    stopped = subprocess.run(
        [*command, "--out", str(tmp_path / "a.zarr")], capture_output=True, text=True, timeout=HANGS
    )
    assert stopped.returncode == 130, stopped.stderr
    assert " ".join(stopped.stderr.split()) == (
        "snapfm data was stopped by Ctrl-C before it was done. The same command resumes where it stopped."
    )


@pytest.mark.slow
def test_a_run_stopped_by_ctrl_c_goes_on(tmp_path: Path):
    pytest.importorskip("zarr")
    out = tmp_path / "a.zarr"
    # A shell in the background hands down that SIGINT is ignored.
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{heeds}; from snapfm.cli import main; main()", "data", "burgers-ic"]
    command += ["--count", "160", "--out", str(out)]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    marks = tmp_path / "a.zarr.part" / "store" / "sample" / "c"
    deadline = time.monotonic() + HANGS
    while not (marks / "0").exists():  # until something is finished
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    first.send_signal(signal.SIGINT)
    _, told = first.communicate(timeout=HANGS)
    assert first.returncode == 130, told
    assert " ".join(told.split()) == (
        "snapfm data was stopped by Ctrl-C before it was done. The same command resumes where it stopped."
    )
    assert not out.exists()
    again = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
    assert again.returncode == 0, again.stderr
    assert " of them from an earlier run" in again.stdout
