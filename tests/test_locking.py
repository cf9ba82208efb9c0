"""Locks of files and folders: held by one process, shared by many, released at the end, and granted where there are none."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from snapfm import locking
from snapfm.locking import held

HOLD = """
import runpy, sys
from pathlib import Path
held = runpy.run_path(sys.argv[3])["held"]  # the file alone: to import the package takes seconds
with held(Path(sys.argv[1]), shared=sys.argv[2] == "shared") as taken:
    print(taken, flush=True)
    sys.stdin.read()
"""


@contextmanager
def another(place: Path, kind: str) -> Iterator[None]:
    """Let another process hold a lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place), kind, locking.__file__],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    try:
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_a_lock_belongs_to_one_process_and_ends_with_it(tmp_path: Path, folder: bool):
    place = tmp_path if folder else tmp_path / "file"
    with another(place, "alone"):
        with held(place, wait=0.0) as taken:
            assert not taken
        began = time.monotonic()
        with held(place, wait=0.2) as taken:
            assert not taken
        assert time.monotonic() - began >= 0.2
    with held(place) as taken:  # it was killed
        assert taken


def test_shared_locks_exclude_only_those_that_are_not(tmp_path: Path):
    with another(tmp_path, "shared"):
        with held(tmp_path, shared=True, wait=0.0) as taken:
            assert taken
        with held(tmp_path, wait=0.0) as taken:
            assert not taken


def test_a_lock_is_released_after_an_error(tmp_path: Path):
    with pytest.raises(KeyError), held(tmp_path / "file"):
        raise KeyError
    with another(tmp_path / "file", "alone"):
        pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_grants_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int):
    def refuse(handle: int, kind: int) -> None:
        raise OSError(code, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with held(tmp_path / "file", wait=0.0) as taken:
        assert taken


def test_other_trouble_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(handle: int, kind: int) -> None:
        raise OSError(errno.EIO, "a broken disk")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="a broken disk"), held(tmp_path / "file"):
        pass


def test_windows_locks_a_byte_and_releases_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With a stand-in for Windows' module: one byte of a file, also for a folder; busy is EACCES there."""
    calls: list[str] = []
    busy = [True, True, False]

    def locking_of_windows(handle: int, kind: int, count: int) -> None:
        assert count == 1
        if kind == 2 and busy.pop(0):
            raise PermissionError(errno.EACCES, "busy")
        calls.append({2: "locked", 0: "unlocked"}[kind])

    stand_in = types.SimpleNamespace(locking=locking_of_windows, LK_NBLCK=2, LK_UNLCK=0)
    monkeypatch.setitem(sys.modules, "msvcrt", stand_in)
    monkeypatch.setattr(locking, "_WINDOWS", True)
    with held(tmp_path, wait=10.0) as taken:
        assert taken
        assert calls == ["locked"]
    assert calls == ["locked", "unlocked"]
    assert (tmp_path / ".lock").exists()
    with held(tmp_path, shared=True, wait=0.0) as taken:
        assert taken
    assert len(calls) == 2
