"""Place: where the store of a run grows, and how it becomes a file: a folder on a disk, or an address that fsspec knows.

On a disk the store grows in FILE.zarr.part and is renamed when it is complete and synced: FILE.zarr appears whole. At an address
(s3://, gs://, memory://) nothing can be renamed: the store grows in place, and its attribute `complete` is set last. Locks keep
two runs from doing the same work on one disk; nothing depends on them, because a block written twice has the same bits, and
appears at once. Knows neither zarr nor sources.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from snapfm.errors import DataError, require
from snapfm.files.engines import Share
from snapfm.files.engines.share import taken
from snapfm.locking import held, sync

_STORE, _PUBLISHING = "store", ".publishing"
_METADATA, _PARTIAL = "*.json", "*.partial"  # files of a store: what zarr says of it, and what zarr has not finished
_IN_THE_WAY = (errno.EEXIST, errno.ENOTEMPTY)


@dataclass(frozen=True)
class Folder:
    """A file on a disk; `path` is absolute, so that other processes find it."""

    path: Path
    in_place: ClassVar[bool] = False  # an unfinished store has another name

    @property
    def part(self) -> Path:
        """The folder beside it that holds an unfinished run."""
        return self.path.with_name(f"{self.path.name}.part")

    @property
    def growing(self) -> Path:
        """The unfinished store, for zarr."""
        return self.part / _STORE

    @property
    def whole(self) -> Path:
        """The finished file, for zarr."""
        return self.path

    def exists(self) -> bool:
        """Whether anything is in the place of the finished file."""
        return self.path.exists()

    @contextmanager
    def taken(self, share: Share) -> Iterator[None]:
        """Refuse runs of the same work at the same time: one whole run, or any number of different shares."""
        with taken(self.part, share, str(self.part)):
            yield

    def create(self, fill: Any) -> None:
        """Let `fill(where)` create the empty store, unless another process was first; it appears complete or not at all."""
        own = self.part / f"{_STORE}.{socket.gethostname()}.{os.getpid()}"
        shutil.rmtree(own, ignore_errors=True)
        fill(own)
        _sync_tree(own)
        try:
            os.rename(own, self.growing)
        except OSError as trouble:
            if trouble.errno not in _IN_THE_WAY:
                raise
            shutil.rmtree(own, ignore_errors=True)

    def listed(self, folder: str) -> list[str]:
        """Return the names of the files in a folder of the unfinished store; empty ones, left by a power cut, do not count."""
        found = []
        with suppress(FileNotFoundError):  # nothing yet, or another process has just given the store its name
            for entry in os.scandir(self.growing / folder):
                with suppress(FileNotFoundError):  # a temporary file that has got its name meanwhile
                    if entry.is_file() and entry.stat().st_size:
                        found.append(entry.name)
        return found

    def held(self, unfinished: bool = False) -> set[str]:
        """Return the names of all files of the store; empty ones do not count."""
        return {name for name, size in _files(self.growing if unfinished else self.whole) if size}

    def settle(self, files: Sequence[str]) -> None:
        """Push files of the unfinished store to disk, and the folders they are in."""
        folders = set[Path]()
        for name in files:
            file = self.growing / name
            sync(file)
            folders.update(folder for folder in file.parents if self.growing in folder.parents)
        for folder in folders:
            sync(folder)

    @contextmanager
    def publishing(self) -> Iterator[bool]:
        """Do the last work on a complete store, then give it its name; yields whether that is left to this process."""
        self.part.mkdir(exist_ok=True)  # gone if another process was first
        with held(self.part / _PUBLISHING):
            left = self.growing.is_dir() and not self.path.exists()
            if left:
                _remove_partial(self.growing)
            yield left
            if left:
                # Everything else was synced when it was created, or by the block that wrote it.
                for file in self.growing.glob(_METADATA):
                    sync(file)
                sync(self.growing)
                os.rename(self.growing, self.path)
                sync(self.path.parent)
                # A process that computes a block a second time may be killed while the store gets its name.
                _remove_partial(self.path)
            shutil.rmtree(self.part, ignore_errors=True)

    def forget(self) -> None:
        """Remove what a process killed right after the rename left."""
        shutil.rmtree(self.part, ignore_errors=True)

    def room(self, needed: int) -> int:
        """Return the bytes that may be written, with those that the unfinished run has written where that decides."""
        there = self.path
        while not there.exists():
            there = there.parent
        free = shutil.disk_usage(there).free
        return free if free >= needed else free + folder_bytes(self.part)

    def bytes(self) -> int:
        """Return the size of the finished file, or of what there is of it."""
        return folder_bytes(self.path if self.path.exists() else self.part)

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class Address:
    """A file at an address that fsspec knows. Objects there appear complete, and the newest of two writers wins."""

    url: str
    in_place: ClassVar[bool] = True

    @property
    def growing(self) -> Any:
        """The store, for zarr."""
        storage, _ = require("zarr.storage", "data files", "data"), self._opened
        return storage.FsspecStore.from_url(self.url)

    @property
    def whole(self) -> Any:
        """The store, for zarr: the same one."""
        return self.growing

    @property
    def part(self) -> str:
        """The name of an unfinished run in messages."""
        return self.url

    def exists(self) -> bool:
        """Whether anything is at the address: the store of an unfinished run too."""
        return bool(self._files.exists(self._path))

    @contextmanager
    def taken(self, share: Share) -> Iterator[None]:
        """Object stores have no locks."""
        yield

    def create(self, fill: Any) -> None:
        """Let `fill(where)` create the empty store."""
        fill(self.growing)

    def listed(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder of the store."""
        try:
            entries = self._files.ls(f"{self._path}/{folder}", detail=True)
        except FileNotFoundError:
            return []
        return [str(entry["name"]).rpartition("/")[2] for entry in entries if entry["size"]]

    def held(self, unfinished: bool = False) -> set[str]:
        """Return the names of all objects of the store; empty ones do not count."""
        root = f"{self._path}/"
        return {name.removeprefix(root) for name, entry in self._files.find(root, detail=True).items() if entry["size"]}

    def settle(self, files: Sequence[str]) -> None:
        """Nothing to do: an object that was written is stored."""

    @contextmanager
    def publishing(self) -> Iterator[bool]:
        """Do the last work on a complete store; it is the same for all who do it."""
        yield True

    def forget(self) -> None:
        """Nothing is left beside a finished file."""

    def room(self, needed: int) -> None:
        """Nobody knows."""

    def bytes(self) -> int:
        """Return the size of all objects."""
        return int(self._files.du(self._path))

    @property
    def _files(self) -> Any:
        """The file system, without what it remembers: other processes write there too."""
        found = self._opened[0]
        found.invalidate_cache()
        return found

    @property
    def _path(self) -> str:
        return str(self._opened[1]).rstrip("/")

    @property
    def _opened(self) -> tuple[Any, str]:
        core = require("fsspec.core", "addresses such as s3://", "data")
        try:
            found: tuple[Any, str] = core.url_to_fs(self.url)
        except (ImportError, ValueError) as trouble:
            raise DataError(
                f"a path, or an address that fsspec can open, is expected; got {self.url}, of which it says '{trouble}'. Install "
                "the package it names, or use a folder."
            ) from trouble
        return found

    def __str__(self) -> str:
        return self.url


Place: TypeAlias = Folder | Address


def place_of(out: str | Path) -> Place:
    """Tell folders from addresses; file:// is a folder."""
    text = str(out)
    if text.startswith("file://"):
        return Folder(Path(text.removeprefix("file://")).absolute())
    return Address(text.rstrip("/")) if "://" in text else Folder(Path(out).absolute())


def folder_bytes(folder: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(size for _, size in _files(folder))


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the path in a folder and the size of each file; files and folders may vanish meanwhile."""
    above = len(str(folder)) + 1
    for inside, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(inside, name)
            with suppress(FileNotFoundError):
                yield file[above:].replace(os.sep, "/"), os.stat(file).st_size


def _sync_tree(folder: Path) -> None:
    """Sync a folder and its contents to disk, so that no rename is ahead of them."""
    for entry in (folder, *folder.rglob("*")):
        sync(entry)


def _remove_partial(store: Path) -> None:
    """Remove the temporary files of processes that were killed."""
    for leftover in store.rglob(_PARTIAL):
        leftover.unlink(missing_ok=True)
