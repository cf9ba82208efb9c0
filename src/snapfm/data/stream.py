"""Stream a source into FILE.zarr, block by block, resuming a run that was stopped.

The store grows in FILE.zarr.part, beside a journal of its finished blocks, and is renamed to FILE.zarr when it is whole
and on disk. A process killed at any moment leaves either no FILE.zarr or the whole one, and the next run goes on after
the last finished block. The bits of a block depend on its place alone, so those of the file do not depend on where runs
stopped. One block is in memory at a time. Knows no problem and no model: what it writes is the source's affair.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from snapfm.data import archive
from snapfm.data.journal import Journal
from snapfm.data.source import Source
from snapfm.errors import DataError

_STORE, _JOURNAL = "store", "journal.jsonl"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)

KIND = "fields"  # entry of an identity that tells kinds of sources apart
_OLDEST = {KIND: "simulated"}  # what an identity means that has no such entry

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Written:
    """A finished file: its samples, how many of them were found from an earlier run, and its size on disk."""

    path: Path
    count: int
    found: int
    bytes: int
    shape: tuple[int, ...]


def stream(source: Source, out: str | Path, progress: Progress | None = None) -> Written:
    """Write the samples of a source to `out`; `progress` is told the number of samples on disk after every block.

    A finished file of the same request is left as it is. One of another is refused, finished or not.
    """
    target = Path(out)
    with _told(target, source):
        part = target.with_name(f"{target.name}.part")
        found = source.count
        if not _finished(target, source):
            _check_room(target, part, source)
            part.mkdir(parents=True, exist_ok=True)
            with Journal(part / _JOURNAL) as journal:
                if not _finished(target, source):  # another process may have been quicker
                    found = _fill(target, part, journal, source, progress)
                shutil.rmtree(part)
        else:
            shutil.rmtree(part, ignore_errors=True)  # left by a process killed right after the rename
        return Written(target, source.count, found, _size(target), source.grid.shape)


def _fill(target: Path, part: Path, journal: Journal, source: Source, progress: Progress | None) -> int:
    """Write the missing blocks and give the store its name; say how many samples were there before."""
    store, identity = part / _STORE, source.identity()
    if not store.is_dir():
        journal.clear()  # killed right after the rename, and the file was taken away since
    if journal.identity is None:
        shutil.rmtree(store, ignore_errors=True)  # a creation that was stopped: nothing in it is known to be whole
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
    """Tell whether the file is there already; refuse anything else that is in its place."""
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
    """Refuse a run that differs, naming what does; finished files are not asked for the versions that made them."""
    here, there = (_OLDEST | dict(side) for side in (here, there))
    keys = [key for key in here if here[key] != there.get(key)]
    if KIND in keys:
        keys = [KIND]  # fields of another kind have other keys, of which there is nothing to say
    if keys:
        ours, theirs = (", ".join(f"{key}={side.get(key)!r}" for key in keys) for side in (here, there))
        raise DataError(
            f"{source.command}(out) expects {place} to be absent or to hold {what} with {ours}; got {theirs}. "
            "Ask for what it holds, remove it, or write to another file."
        )


def _check_room(target: Path, part: Path, source: Source) -> None:
    """Refuse before hours of work what cannot fit; compression may save some of it, which is not counted on."""
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
def _told(target: Path, source: Source) -> Iterator[None]:
    """Turn trouble with the disk into words; what was finished stays, and the same call goes on from there."""
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
    """Push a folder with all it holds to disk, so that no rename is ahead of its contents."""
    for entry in (folder, *folder.rglob("*")):
        _sync(entry)


def _sync(entry: Path) -> None:
    handle = os.open(entry, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
