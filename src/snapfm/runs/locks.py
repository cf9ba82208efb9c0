"""Locks of a folder that a run writes to: one whole run at a time, or any number of different shares.

They keep two processes from doing the same work; results never depend on them, since file systems of clusters may have none.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from snapfm.errors import DataError
from snapfm.runs.share import Share

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def taken(folder: Path, share: Share, shown: str) -> Iterator[None]:
    """Hold a folder for a share of a run; refuse the same share twice, and the whole run beside shares of it."""

    def refuse() -> DataError:
        return DataError(
            f"{shown} is expected to be written by one process at a time, or by one for each --part K/N; another one is at it. "
            "Wait for it, or choose another place."
        )

    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, fcntl.LOCK_EX if share.whole else fcntl.LOCK_SH, refuse):
        if share.whole:
            yield
            return
        own = folder / f".part-{share.part}-of-{share.parts}"
        with locked(own, fcntl.LOCK_EX, refuse):
            yield
            own.unlink(missing_ok=True)


@contextmanager
def locked(place: Path, kind: int = fcntl.LOCK_EX, refuse: Callable[[], DataError] | None = None) -> Iterator[None]:
    """Hold the lock of a file or folder while the block runs; it ends with the process too. A file is created.

    Waits for it unless there is an error to raise.
    """
    handle = os.open(place, os.O_RDONLY if place.is_dir() else os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, kind if refuse is None else kind | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            if refuse is None:
                raise
            raise refuse() from busy
        except OSError as trouble:
            if trouble.errno not in _NO_LOCKS:
                raise
        yield
    finally:
        os.close(handle)
