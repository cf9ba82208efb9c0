"""Write a source into FILE.zarr, block by block, resuming a stopped run.

The store grows in FILE.zarr.part, with a journal of its finished blocks, and is renamed to FILE.zarr when it is complete
and on disk. A process killed at any moment leaves either no FILE.zarr or the complete one, and the next run continues after
the last finished block. The bits of a block depend on its position alone, so those of the file do not depend on where runs
stopped. One block is in memory at a time. Knows no problem and no model; those are up to the source.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from snapfm.data import archive
from snapfm.data.layout import Source
from snapfm.errors import DataError

_STORE, _JOURNAL = "store", "journal.jsonl"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)

KIND = "fields"  # entry of an identity that distinguishes kinds of sources
_OLDEST = {KIND: "simulated"}  # meaning of an identity without such an entry

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Written:
    """A finished file: its samples, how many of them an earlier run had written, and its size on disk."""

    path: Path
    count: int
    found: int
    bytes: int
    shape: tuple[int, ...]


def stream(source: Source, out: str | Path, progress: Progress | None = None) -> Written:
    """Write the samples of a source to `out`; `progress` is called with the number on disk after every block.

    A finished file of the same request is left as it is. One of another is refused, finished or not.
    """
    target = Path(out)
    with _disk_errors(target, source):
        part = target.with_name(f"{target.name}.part")
        found = source.count
        if not _finished(target, source):
            _check_room(target, part, source)
            part.mkdir(parents=True, exist_ok=True)
            with closing(Journal(part / _JOURNAL)) as journal:
                if not _finished(target, source):  # another process may have finished it meanwhile
                    found = _fill(target, part, journal, source, progress)
                shutil.rmtree(part)
        else:
            shutil.rmtree(part, ignore_errors=True)  # left by a process killed right after the rename
        return Written(target, source.count, found, _size(target), source.grid.shape)


def _fill(target: Path, part: Path, journal: Journal, source: Source, progress: Progress | None) -> int:
    """Write the missing blocks and rename the store; return how many samples were there before."""
    store, identity = part / _STORE, source.identity()
    if not store.is_dir():
        journal.clear()  # killed right after the rename, and the file was removed since
    if journal.identity is None:
        shutil.rmtree(store, ignore_errors=True)  # its creation was stopped: nothing in it is known to be complete
        archive.create(store, source)
        _sync_tree(store)
        journal.begin(identity)
    else:
        _refuse_other(source, part, journal.identity, identity, "an unfinished run")
    for leftover in store.rglob("*.partial"):  # zarr's own temporary files, of a process that was killed
        leftover.unlink()
    done = found = sum(_samples(block, source) for block in journal.blocks)
    if progress:
        progress(done)
    for block in range(-(-source.count // source.block)):
        if block in journal.blocks:
            continue
        for file in archive.write_block(store, source, block):
            _sync(file)
            _sync(file.parent)
        journal.finish(block)
        done += _samples(block, source)
        if progress:
            progress(done)
    archive.mark_complete(store)
    _sync_tree(store)
    os.rename(store, target)
    _sync(target.parent)
    return found


def _samples(block: int, source: Source) -> int:
    return min(source.block, source.count - block * source.block)


def _finished(target: Path, source: Source) -> bool:
    """Check whether the finished file exists; refuse anything else in its place."""
    if not target.exists():
        return False
    attributes = archive.read_attributes(target)
    if attributes is None or not attributes["complete"]:
        raise DataError(
            f"{source.command}(out) expects {target} to be absent or a data file of snapfm; got something else. "
            "Remove it, or write to another file."
        )
    _refuse_other(source, target, attributes[archive.KEY], source.asked(), "a run")
    return True


def _refuse_other(source: Source, place: Path, there: Mapping[str, Any], here: Mapping[str, Any], what: str) -> None:
    """Refuse a run that differs, naming the differences; finished files may come from other versions."""
    here, there = (_OLDEST | dict(side) for side in (here, there))
    keys = [key for key in here if here[key] != there.get(key)]
    if KIND in keys:
        keys = [KIND]  # fields of another kind have other keys, which are not comparable
    if keys:
        ours, theirs = (", ".join(f"{key}={side.get(key)!r}" for key in keys) for side in (here, there))
        raise DataError(
            f"{source.command}(out) expects {place} to be absent or to hold {what} with {ours}; got {theirs}. "
            "Ask for what it holds, remove it, or write to another file."
        )


def _check_room(target: Path, part: Path, source: Source) -> None:
    """Refuse a file that cannot fit before hours of work; compression is not counted on."""
    whole = source.count * int(np.prod(source.grid.shape)) * np.dtype(source.dtype).itemsize
    there = target.absolute()
    while not there.exists():
        there = there.parent
    needed, free = whole - _size(part), shutil.disk_usage(there).free
    if needed > free:
        raise DataError(
            f"{source.command}(out) expects {needed / 1e6:,.1f} MB of free space for {target}; got {free / 1e6:,.1f} MB. "
            "Free some, write to another disk, or ask for float32 or fewer fields."
        )


@contextmanager
def _disk_errors(target: Path, source: Source) -> Iterator[None]:
    """Turn errors of the disk into a DataError; finished blocks stay, and the same call continues from there."""
    try:
        yield
    except OSError as trouble:
        reason = trouble.strerror or str(trouble)
        if trouble.errno in _NO_SPACE:
            advice = "Free some space and call again: finished blocks are kept."
        elif trouble.errno in _NO_ACCESS:
            advice = "Choose a folder you may write to."
        else:
            advice = "Choose another place, or call again: finished blocks are kept."
        raise DataError(f"{source.command}(out) expects to write {target}; got '{reason}'. {advice}") from trouble


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _sync_tree(folder: Path) -> None:
    """Sync a folder and its contents to disk, so that no rename is ahead of them."""
    for entry in (folder, *folder.rglob("*")):
        _sync(entry)


def _sync(entry: Path) -> None:
    handle = os.open(entry, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Journal:
    """The open journal of an unfinished file: the run it belongs to, and the blocks that are safely on disk.

    It has one JSON line for the identity, then one per finished block, each synced to disk before the next block starts. A
    half-written line of a killed process is dropped. The open journal is also the lock: one process per file. `identity` is
    None while it is empty; `blocks` are the finished ones.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            os.close(self._handle)
            raise DataError(
                f"{file.parent} is expected to be written by one process at a time; another one is at it. Wait for it, "
                "or write to another file."
            ) from busy
        self.identity, self.blocks = self._read()

    def close(self) -> None:
        """Close the journal, which releases the lock."""
        os.close(self._handle)

    def clear(self) -> None:
        """Drop all entries: the store they describe is gone."""
        os.ftruncate(self._handle, 0)
        self.identity, self.blocks = None, set()

    def begin(self, identity: Mapping[str, Any]) -> None:
        """Write the identity of the run; its store must exist by now."""
        self._append({"identity": dict(identity)})
        self.identity = dict(identity)

    def finish(self, block: int) -> None:
        """Record that a block is on disk."""
        self._append({"block": block})
        self.blocks.add(block)

    def _append(self, entry: Mapping[str, Any]) -> None:
        os.write(self._handle, (json.dumps(entry) + "\n").encode())
        os.fsync(self._handle)

    def _read(self) -> tuple[dict[str, Any] | None, set[int]]:
        content = self._file.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            os.ftruncate(self._handle, len(whole))
        entries = [json.loads(line) for line in whole.splitlines()]
        if not entries:
            return None, set()
        return entries[0]["identity"], {entry["block"] for entry in entries[1:]}
