"""Locks of a folder that a run writes to: one whole run at a time, or any number of different shares.

They keep two processes from doing the same work; results never depend on them, since file systems of clusters may have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from snapfm.errors import DataError
from snapfm.files.engines.share import Share
from snapfm.locking import held


@contextmanager
def taken(folder: Path, share: Share, shown: str) -> Iterator[None]:
    """Hold a folder for a share of a run; refuse the same share twice, and the whole run beside shares of it."""

    def refuse() -> DataError:
        return DataError(
            f"{shown} is expected to be written by one process at a time, or by one for each --part K/N; another one is at it. "
            "Wait for it, or choose another place."
        )

    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, refuse, shared=not share.whole):
        if share.whole:
            yield
            return
        own = folder / f".part-{share.part}-of-{share.parts}"
        with locked(own, refuse):
            yield
            with suppress(PermissionError):  # Windows does not remove what is open
                own.unlink(missing_ok=True)


@contextmanager
def locked(place: Path, refuse: Callable[[], DataError] | None = None, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of a file or folder while the block runs; it ends with the process too. A file is created.

    Waits for it unless there is an error to raise.
    """
    with held(place, shared=shared, wait=float("inf") if refuse is None else 0.0) as granted:
        if not granted and refuse is not None:
            raise refuse()
        yield
