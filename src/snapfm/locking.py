"""Hold the lock of a file or folder, on any system. Locks end with their process. Imports nothing of snapfm.

What a system offers is imported when a lock is taken: POSIX has flock, Windows locks bytes of files, and some file systems of
clusters have no locks, where every lock is granted.
"""

from __future__ import annotations

import errno
import importlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_INTERVAL = 0.05  # seconds between two attempts
_INSIDE = ".lock"  # stands for a folder where folders cannot be opened


@contextmanager
def held(place: Path, *, shared: bool = False, wait: float = float("inf")) -> Iterator[bool]:
    """Hold a lock while the block runs; yield False if another process still has it after `wait` seconds. A file is created.

    Any number of processes may hold a shared lock together. Windows knows none: it is not taken there.
    """
    lock = _windows if os.name == "nt" else _posix
    with lock(place, shared, time.monotonic() + wait) as taken:
        yield taken


@contextmanager
def _posix(place: Path, shared: bool, until: float) -> Iterator[bool]:
    system: Any = importlib.import_module("fcntl")
    handle = os.open(place, os.O_RDONLY if place.is_dir() else os.O_RDWR | os.O_CREAT, 0o644)
    try:
        kind = (system.LOCK_SH if shared else system.LOCK_EX) | system.LOCK_NB
        taken = _attempt(lambda: system.flock(handle, kind), until)
        try:
            yield taken
        finally:
            if taken:  # closing is not enough where a forked child has the same handle
                _attempt(lambda: system.flock(handle, system.LOCK_UN), 0.0)
    finally:
        os.close(handle)


@contextmanager
def _windows(place: Path, shared: bool, until: float) -> Iterator[bool]:
    if shared:
        yield True
        return
    system: Any = importlib.import_module("msvcrt")
    handle = os.open(place / _INSIDE if place.is_dir() else place, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        taken = _attempt(lambda: system.locking(handle, system.LK_NBLCK, 1), until)  # the first byte stands for all
        try:
            yield taken
        finally:
            if taken:
                os.lseek(handle, 0, os.SEEK_SET)
                system.locking(handle, system.LK_UNLCK, 1)
    finally:
        os.close(handle)


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
