"""Damage to a Zarr store: chunks that are lost, found by listing, and chunks with other bits, found when they are read.

Zarr reads a chunk that is missing as the fill value, and knows of other bits only through the checksums stored with chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from snapfm.errors import DataError
from snapfm.text import plural

# What zarr raises for bits that were not written: wrong checksums, and in files without them what decompression makes of it.
_UNREADABLE = (ValueError, RuntimeError, SystemError)


class Checked:
    """An array of a Zarr store; samples of a damaged chunk raise DataError with the names of file and chunk."""

    def __init__(self, array: Any, store: Any) -> None:
        self._array, self._store = array, store
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype
        self.attrs: Mapping[str, Any] = array.attrs

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        """Read some samples."""
        try:
            values: npt.NDArray[Any] = self._array[part]
        except _UNREADABLE as trouble:
            raise DataError(
                f"every chunk of {_shown(self._store)} is expected to hold the bits that were written; {self._damaged(part)} "
                f"does not: '{str(trouble).rstrip('.')}'. Restore the file from a copy, or remove it and write it again."
            ) from trouble
        return values

    def _damaged(self, part: slice) -> str:
        """Name the first chunk of these samples that cannot be read."""
        array, sizes = self._array, self._array.chunks
        first, last, _ = part.indices(self.shape[0])
        across = [range(-(-length // size)) for length, size in zip(self.shape[1:], sizes[1:], strict=True)]
        for place in product(range(first // sizes[0], -(-last // sizes[0])), *across):
            region = tuple(slice(one * size, (one + 1) * size) for one, size in zip(place, sizes, strict=True))
            try:
                array[region]
            except _UNREADABLE:
                # Chunks of one shard are in one file.
                file = (one.start // size for one, size in zip(region, array.shards or sizes, strict=True))
                name = f"{array.path}/{array.metadata.encode_chunk_key(tuple(file))}".lstrip("/")
                return f"{name} (samples {region[0].start} to {min(region[0].stop, self.shape[0]) - 1})"
        return str(array.path)


def refuse_lost(promised: Iterable[str], held: set[str], place: Any) -> None:
    """Refuse a finished file of which some files or objects are not there."""
    lost = sorted(set(promised) - held)
    if lost:
        raise DataError(
            f"{place} is expected to hold every chunk of its samples; {plural(len(lost), 'file')} of it "
            f"{'is' if len(lost) == 1 else 'are'} lost, {'' if len(lost) == 1 else 'the first '}{lost[0]}. Copy it again from "
            "where it is complete, or remove it and write it again."
        )


def promised(root: Any) -> Iterable[str]:
    """Return the names of all files that a finished store of snapfm consists of, besides that of its attributes."""
    for name, array in root.arrays():
        yield f"{name}/zarr.json"
        for block in range(-(-array.shape[0] // (array.shards or array.chunks)[0])):
            yield chunk_name(array, block)


def chunk_name(array: Any, block: int) -> str:
    """Return the name of the file that holds a block of an array of snapfm: other axes than the first are not cut."""
    return "/".join([array.basename, "c", str(block), *["0"] * (array.ndim - 1)])


def _shown(store: Any) -> str:
    """Return the path of a store, or its URL."""
    return str(store) if isinstance(store, str | Path) else str(store.fs.unstrip_protocol(store.path))
