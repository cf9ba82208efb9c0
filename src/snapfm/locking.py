"""Hold the lock of a file or folder, on any system. Locks end with their process. Imports nothing of snapfm.

What a system offers is imported when a lock is taken: POSIX has flock, Windows locks bytes of files, and some file systems of
clusters have no locks, where every lock is granted.
"""

from __future__ import annotations

import errno
import importlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_WINDOWS = os.name == "nt"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_INTERVAL = 0.05  # seconds between two attempts
_INSIDE = ".lock"  # stands for a folder where folders cannot be opened


@contextmanager
def held(place: Path, *, shared: bool = False, wait: float = float("inf")) -> Iterator[bool]:
    """Hold a lock while the block runs; yield False if another process still has it after `wait` seconds. A file is created.

    Any number of processes may hold a shared lock together. Windows knows none: it is not taken there.
    """
    if _WINDOWS and shared:
        yield True
        return
    folder, until = place.is_dir(), time.monotonic() + wait
    file = place / _INSIDE if _WINDOWS and folder else place
    handle = os.open(file, os.O_RDONLY if folder and not _WINDOWS else os.O_RDWR | os.O_CREAT, 0o644)
    try:
        lock, unlock = _windows(handle) if _WINDOWS else _posix(handle, shared)
        taken = _attempt(lock, until)
        try:
            yield taken
        finally:
            if taken:  # closing is not enough where a forked child has the same handle
                unlock()
    finally:
        os.close(handle)


def _posix(handle: int, shared: bool) -> tuple[Callable[[], Any], Callable[[], Any]]:
    system: Any = importlib.import_module("fcntl")
    kind = (system.LOCK_SH if shared else system.LOCK_EX) | system.LOCK_NB
    return lambda: system.flock(handle, kind), lambda: _attempt(lambda: system.flock(handle, system.LOCK_UN), 0.0)


def _windows(handle: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Lock the first byte, which stands for all."""
    system: Any = importlib.import_module("msvcrt")

    def unlock() -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        system.locking(handle, system.LK_UNLCK, 1)

    return lambda: system.locking(handle, system.LK_NBLCK, 1), unlock


def _attempt(take: Any, until: float) -> bool:
    """Call until it succeeds or time is over. A system without locks grants them."""
    while True:
        try:
            take()
        except OSError as trouble:
            if trouble.errno in _NO_LOCKS:
                return True
            if trouble.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                raise
            if time.monotonic() >= until:
                return False
            time.sleep(_INTERVAL)
        else:
            return True


def sync(entry: Path) -> None:
    """Flush a file, or the entries of a folder, past the system's buffers: it, and a rename in it, survives a power cut."""
    handle = os.open(entry, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
