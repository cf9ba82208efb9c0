"""Write a source into FILE.zarr, block by block, resuming a stopped run: the plan of all files of fields.

A block counts as finished when its chunk of the variable `sample` is there, which is written after all others are safely
stored. So any number of processes may write into one store, be killed at any moment, and none has to know of another; the
next run continues with the blocks that are missing. The bits of a block depend on its position alone, so those of the file
do not depend on who wrote it or where runs stopped. One block is in memory at a time. Knows no problem and no model; those are
up to the source.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from snapfm.errors import DataError, require
from snapfm.files import archive
from snapfm.files.engines import BlockFailed, Engine, Here, Progress, Report
from snapfm.files.engines.plan import Figures
from snapfm.files.layout import KIND, Arrays, Source
from snapfm.files.place import Address, Place, place_of
from snapfm.solve.single_thread import exactly

_ADVICE: dict[int | None, str] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Free some space and call again: finished blocks are kept."),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "Choose a folder you may write to."),
}

# Names that promise another format than the one written.
_OTHER_FORMATS = {
    ".npy", ".npz", ".h5", ".hdf5", ".nc", ".pt", ".pth", ".safetensors", ".mat", ".csv", ".txt", ".json", ".png",
}  # fmt: skip

_OLDEST = {KIND: "simulated"}  # meaning of an identity without such an entry
HERE = Here()


@dataclass(frozen=True)
class Written:
    """A file of samples: how many an earlier run had written, how many are still missing, and its size in bytes.

    `spans` are the samples that the caller may describe, as ranges: all of a finished file, or those of the caller's share.
    """

    path: str | Path
    count: int
    found: int
    shape: tuple[int, ...]
    missing: int = 0  # 0: the file is finished
    figures: Figures = field(default_factory=dict)  # of the blocks that this call computed
    spans: tuple[tuple[int, int], ...] = ()

    def read(self, names: Sequence[str], some: slice) -> list[npt.NDArray[Any] | None]:
        """Read variables of some samples; None for those that the file does not have.

        Another process may complete the file meanwhile: what is read while the store gets its name may look never written, so it
        is read again.
        """
        place = place_of(self.path)
        named = not self.missing or place.exists()
        try:
            values = [archive.read_variable(place.whole if named else place.growing, name, some) for name in names]
        except OSError:
            if named or not place.exists():
                raise
            return self.read(names, some)
        return values if named or not place.exists() else self.read(names, some)

    @property
    def bytes(self) -> int:
        """The size of the file, or of what there is of it."""
        return place_of(self.path).bytes()


class Fields:
    """The plan of a file: each block makes some samples and writes its own shards."""

    def __init__(self, source: Source, place: Place, keep_failed: bool = False) -> None:
        self.source, self.place, self.keep_failed = source, place, keep_failed
        self.blocks = -(-source.count // source.block)

    def units(self, block: int) -> int:
        """Return the samples of a block."""
        start, stop = archive.bounds(self.source, block)
        return stop - start

    def named(self, block: int) -> str:
        """Name a block by its samples."""
        start, stop = archive.bounds(self.source, block)
        return f"block {block} (samples {start} to {stop - 1})"

    def finished(self) -> set[int]:
        """Return the blocks whose mark is there; those of which files were lost are computed again."""
        return archive.unharmed(self.place)

    def fill(self, engine: Engine, progress: Progress | None) -> tuple[int, int, Figures]:
        """Let an engine compute what is missing of its share; complete the file if nothing is missing then.

        Return the samples that were there, those that are missing, and the figures of the blocks.
        """
        self.begin()
        found = sum(map(self.units, self.finished()))
        figures = engine.run(self, progress)
        missing = self.source.count - sum(map(self.units, self.finished()))
        if missing and _finished(self.place, self.source):  # a process that ended later was faster to complete it
            missing = 0
        elif not missing:
            with self.place.publishing() as left:
                if left:
                    archive.mark_complete(self.place.growing)
        return found, missing, figures

    def begin(self) -> None:
        """Create the store if it is not there; refuse one of another run."""
        with self._threads():
            there = archive.read_attributes(self.place.growing) is not None
            if there:
                self.join()
            if not there or self.place.in_place:  # where nothing can be renamed, creation may have been stopped halfway
                self.place.create(lambda where: archive.create(where, self.source))
            if not there:
                self.join()

    def join(self) -> None:
        """Check that the store is here, and that this process computes the same bits as the one that began it."""
        with self._threads():
            attributes = archive.read_attributes(self.place.growing)
            if attributes is None:
                raise DataError(
                    f"{self.source.command}(out) expects {self.place.part} to be seen by every process of the run; got nothing "
                    "there. Write to a folder that all machines share, or to an address such as s3://."
                )
            refuse_other(
                self.source, self.place.part, attributes[archive.KEY], self.source.identity(), "an unfinished run"
            )

    def compute(self, block: int, report: Report) -> Figures:
        """Make the samples of a block and write them, then its mark."""
        with self._threads():
            drawn = self.source.draw(*archive.bounds(self.source, block), report)
        self._store(block, drawn.values)
        return drawn.figures

    def _threads(self) -> AbstractContextManager[None]:
        """Compute with the threads of the run: another number may round differently."""
        return nullcontext() if self.source.threads is None else exactly(self.source.threads)

    def give_up(self, block: int) -> None:
        """Mark the samples of a block as never computed, if the caller wants to keep such."""
        if not self.keep_failed or archive.read_variable(self.place.growing, "status", slice(0)) is None:
            raise BlockFailed(f"{self.named(block)} is missing")
        self._store(block, archive.never_computed(self.place.growing, self.source, block))

    def _store(self, block: int, values: Arrays) -> None:
        """Write the values of a block, and when they are safe its mark."""
        store = self.place.growing
        self.place.settle(archive.write_block(store, self.source, block, values))
        self.place.settle(archive.mark_block(store, self.source, block))


def stream(
    source: Source, out: str | Path, progress: Progress | None = None, *, engine: Engine = HERE,
    keep_failed: bool = False,
) -> Written:  # fmt: skip
    """Write the samples of a source to `out`, a path or a URL; `progress` is called with the number on disk.

    A finished file of the same request is left as it is. A file of another request is refused, finished or not. An engine with a
    share leaves the other blocks to other processes: the one that finishes last completes the file. With `keep_failed`, samples
    of blocks that an engine gave up are marked as never computed.
    """
    _check_name(str(out), source.command)
    require("zarr", "data files", "data")  # before any folder is made
    place = place_of(out)
    shown = place.url if isinstance(place, Address) else Path(out) if place.path == Path(out).absolute() else place.path
    plan = Fields(source, place, keep_failed)
    found, missing = source.count, 0
    figures: Figures = {}
    with _write_errors(place, source):
        if not _finished(place, source):
            _check_room(place, source)
            with place.taken(engine.share):
                if not _finished(place, source):  # another process may have finished it meanwhile
                    found, missing, figures = plan.fill(engine, progress)
        if not missing:
            place.forget()
    mine = tuple(archive.bounds(source, block) for block in engine.share.blocks(plan.blocks))
    spans = mine if missing else ((0, source.count),)
    return Written(shown, source.count, found, source.shape, missing, figures, spans)


def _check_name(out: str, command: str) -> None:
    """Refuse the name of a file of another format, which a Zarr store would only pretend to be."""
    suffix = PurePath(out).suffix.lower()
    if suffix in _OTHER_FORMATS:
        better = out[: -len(suffix)] + ".zarr"
        array = " Its fields become an array with numpy.save(…, xarray.open_zarr(…).u)." if suffix == ".npy" else ""
        raise DataError(
            f"{command}(out) expects the name of a Zarr file; got {out}, the name of another format. Write to {better}.{array}"
        )


def _finished(place: Place, source: Source) -> bool:
    """Check whether the finished file exists; refuse anything else in its place."""
    if not place.exists():
        return False
    attributes = archive.read_attributes(place.whole)
    if attributes is not None and not attributes["complete"] and place.in_place:
        return False  # at an address, unfinished stores have the name of finished ones
    if attributes is None or not attributes["complete"]:
        raise DataError(
            f"{source.command}(out) expects {place} to be absent or a data file of snapfm; got something else. "
            "Remove it, or write to another file."
        )
    refuse_other(source, place, attributes[archive.KEY], source.asked(), "a run")
    archive.check_complete(place)
    return True


def refuse_other(source: Source, place: Any, there: Mapping[str, Any], here: Mapping[str, Any], what: str) -> None:
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


def _check_room(place: Place, source: Source) -> None:
    """Refuse a file that cannot fit before hours of work; compression is not counted on."""
    needed = source.count * int(np.prod(source.shape)) * np.dtype(source.dtype).itemsize
    room = place.room(needed)
    if room is not None and needed > room:
        raise DataError(
            f"{source.command}(out) expects {needed / 1e6:,.1f} MB of free space for {place}; got {room / 1e6:,.1f} MB. "
            "Free some, write to another disk, or ask for float32 or fewer fields."
        )


@contextmanager
def _write_errors(place: Place, source: Source) -> Iterator[None]:
    """Turn errors of the disk into a DataError; finished blocks stay, and the same call continues from there."""
    try:
        yield
    except OSError as trouble:
        advice = _ADVICE.get(trouble.errno, "Choose another place, or call again: finished blocks are kept.")
        reason = trouble.strerror or str(trouble)
        raise DataError(f"{source.command}(out) expects to write {place}; got '{reason}'. {advice}") from trouble
