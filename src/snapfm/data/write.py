"""Write simulated fields to FILE.zarr, resuming a run that was stopped; read them back.

The store grows in FILE.zarr.part, beside a journal of its finished blocks, and is renamed to FILE.zarr when it is whole
and on disk. A process killed at any moment leaves either no FILE.zarr or the whole one, and the next run goes on after
the last finished block. Sample i depends on (seed, i) alone, so the bits do not depend on where runs stopped.
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
from torch import Tensor

from snapfm.data import archive
from snapfm.data.journal import Journal
from snapfm.data.recipe import Recipe
from snapfm.errors import DataError
from snapfm.problems import Problem

_STORE, _JOURNAL = "store", "journal.jsonl"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Written:
    """A finished file: its samples, how many of them were found from an earlier run, and its size on disk."""

    path: Path
    count: int
    found: int
    bytes: int
    shape: tuple[int, ...]


def write(recipe: Recipe, out: str | Path, progress: Progress | None = None) -> Written:
    """Write the fields of a recipe to `out`; `progress` is told the number of samples on disk after every block.

    A finished file of the same recipe is left as it is. One of another recipe is refused, finished or not.
    """
    target = Path(out)
    problem = recipe.build()
    with _told(target):
        part = target.with_name(f"{target.name}.part")
        found = recipe.count
        if not _finished(target, recipe):
            _check_room(target, part, recipe, problem)
            part.mkdir(parents=True, exist_ok=True)
            with Journal(part / _JOURNAL) as journal:
                if not _finished(target, recipe):  # another process may have been quicker
                    found = _fill(target, part, journal, recipe, problem, progress)
                shutil.rmtree(part)
        else:
            shutil.rmtree(part, ignore_errors=True)  # left by a process killed right after the rename
        return Written(target, recipe.count, found, _size(target), problem.grid.shape)


def load(file: str | Path) -> tuple[Tensor, dict[str, Tensor]]:
    """Read a finished data file: fields (count, *shape) and, by name, all that was drawn for each of them."""
    attributes = archive.read_attributes(Path(file))
    if attributes is None or not attributes["complete"]:
        raise DataError(
            f"load(file) expects a finished data file; {file} {'is none' if attributes is None else 'is not whole'}. "
            "Write one with `snapfm data PROBLEM --count N --out FILE.zarr`."
        )
    return archive.read_fields(Path(file))


def _fill(
    target: Path, part: Path, journal: Journal, recipe: Recipe, problem: Problem, progress: Progress | None
) -> int:
    """Write the missing blocks and give the store its name; say how many samples were there before."""
    store, identity = part / _STORE, recipe.identity()
    if not store.is_dir():
        journal.clear()  # killed right after the rename, and the file was taken away since
    if journal.identity is None:
        shutil.rmtree(store, ignore_errors=True)  # a creation that was stopped: nothing in it is known to be whole
        archive.create(store, problem, identity)
        _sync_tree(store)
        journal.begin(identity)
    else:
        _refuse_other(part, journal.identity, identity, "an unfinished run")
    for leftover in store.rglob("*.partial"):  # zarr's own temporary files, of a process that was killed
        leftover.unlink()
    done = found = sum(_samples(block, recipe.count) for block in journal.blocks)
    if progress:
        progress(done)
    for block in range(-(-recipe.count // archive.BLOCK)):
        if block in journal.blocks:
            continue
        for file in archive.write_block(store, problem, identity, block):
            _sync(file)
            _sync(file.parent)
        journal.finish(block)
        done += _samples(block, recipe.count)
        if progress:
            progress(done)
    archive.mark_complete(store)
    _sync_tree(store)
    os.rename(store, target)
    _sync(target.parent)
    return found


def _samples(block: int, count: int) -> int:
    return min(archive.BLOCK, count - block * archive.BLOCK)


def _finished(target: Path, recipe: Recipe) -> bool:
    """Tell whether the file is there already; refuse anything else that is in its place."""
    if not target.exists():
        return False
    attributes = archive.read_attributes(target)
    if attributes is None or not attributes["complete"]:
        raise DataError(
            f"data(out) expects {target} to be absent or a data file of snapfm; got something else. "
            "Remove it, or write to another file."
        )
    _refuse_other(target, attributes[archive.KEY], recipe.asked(), "a run")
    return True


def _refuse_other(place: Path, there: Mapping[str, Any], here: Mapping[str, Any], what: str) -> None:
    """Refuse a run that differs, naming what does; finished files are not asked for the versions that made them."""
    keys = [key for key in here if here[key] != there.get(key)]
    if keys:
        ours, theirs = (", ".join(f"{key}={side.get(key)!r}" for key in keys) for side in (here, there))
        raise DataError(
            f"data(out) expects {place} to be absent or to hold {what} with {ours}; got {theirs}. "
            "Ask for what it holds, remove it, or write to another file."
        )


def _check_room(target: Path, part: Path, recipe: Recipe, problem: Problem) -> None:
    """Refuse before hours of work what cannot fit; compression may save some of it, which is not counted on."""
    whole = recipe.count * int(np.prod(problem.grid.shape)) * np.dtype(recipe.dtype).itemsize
    there = target.absolute()
    while not there.exists():
        there = there.parent
    needed, free = whole - _size(part), shutil.disk_usage(there).free
    if needed > free:
        raise DataError(
            f"data(out) expects {needed / 1e6:,.1f} MB of free space for {target}; got {free / 1e6:,.1f} MB. "
            "Free some, write to another disk, or ask for float32 or fewer fields."
        )


@contextmanager
def _told(target: Path) -> Iterator[None]:
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
        raise DataError(f"data(out) expects to write {target}; got '{reason}'. {advice}") from trouble


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
