"""The Zarr store of a data file: created empty, filled block by block, marked complete, read back.

A block of samples is one shard of `u` and one chunk of every other variable. The store is written without xarray, with the
names, dimensions and attributes that xarray.open_zarr reads.
"""

from __future__ import annotations

import subprocess
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.errors import DataError, require
from snapfm.files.damage import Checked, chunk_name, promised, refuse_lost
from snapfm.files.layout import NOT_PARAMS, UNITS, Arrays, Source, Variable
from snapfm.files.place import Place, place_of
from snapfm.text import plural

CHUNK = 4  # samples read at a time: some 300 kB of the benchmark's fields
FORMAT = 1  # version of this layout
CONVENTIONS = "CF-1.11"  # names, units, flags and the dimension of realizations
KEY = "recipe"  # attribute that identifies the run a store belongs to
MARK = "sample"  # the variable that is written last of each block: a block is finished if its chunk of this exists
MARKS = f"{MARK}/c"  # the folder of its chunks
_NUMBERS = {
    "seed": Variable("int64", {"long_name": "seed of the run the sample belongs to"}),
    MARK: Variable(
        "int64",
        {
            "long_name": "index of the sample; with its seed it decides all that was drawn",
            "standard_name": "realization",
            "units": UNITS,
        },
    ),
}
# Values never written must not look like numbers; unsigned ones and booleans have none to spare. By kinds of numpy's dtypes.
_NEVER = {"i": -1, "f": float("nan"), "c": float("nan")}


def create(store: Any, source: Source) -> None:
    """Create the variables of a store, all empty, and mark it as not complete.

    What exists is left as it is: at an address, another process may have been first, or a first one killed halfway.
    """
    layout, count = source.layout(), source.count
    attributes = {
        **layout.attributes, "Conventions": CONVENTIONS, "commit": _commit(), "format": FORMAT, KEY: source.identity(),
        "complete": False,
    }  # fmt: skip
    zarr = _zarr()
    with suppress(zarr.errors.ContainsGroupError):
        zarr.create_group(store, zarr_format=3, attributes=attributes)
    root = _root(store, "r+")
    chunk, shard = _pieces(count, source.block)
    single = min(source.block, count)
    for name, variable in {**layout.variables, **_NUMBERS}.items():
        sharded = name == "u"
        chunks = (chunk if sharded else single, *variable.shape)
        shards = (shard, *variable.shape) if sharded else None
        _array(root, name, variable, ("sample", count), chunks, shards)
    for axis in layout.coordinates:
        size = len(axis.values)
        made = _array(root, axis.name, Variable("float64", axis.attributes), (axis.name, size), (size,))
        _complete(made)[:] = axis.values


def write_block(store: Any, source: Source, block: int, values: Arrays) -> list[str]:
    """Write one block of samples, but for the mark that it is there; return the names of the files written."""
    root = _root(store, "r+")
    start, stop = bounds(source, block)
    files = []
    for name, value in {**values, "seed": np.full(stop - start, source.seed)}.items():
        array = _complete(root[name])
        array[start:stop] = value.astype(array.dtype)
        files.append(chunk_name(array, block))
    return files


def mark_block(store: Any, source: Source, block: int) -> list[str]:
    """Write the numbers of a block's samples, by which it counts as finished; return the names of the files written."""
    start, stop = bounds(source, block)
    _root(store, "r+")[MARK][start:stop] = np.arange(start, stop)
    return [f"{MARKS}/{block}"]


def unharmed(place: Place) -> set[int]:
    """Return the blocks of an unfinished store whose mark is there, and all that was written before it."""
    marked = {int(name) for name in place.listed(MARKS) if name.isdecimal()}
    if not marked:
        return marked
    held = place.held(unfinished=True)  # after the marks: other processes write meanwhile
    refuse_lost((f"{name.partition('/')[0]}/zarr.json" for name in held if "/c/" in name), held, place.part)
    try:
        arrays = _of_samples(_root(place.growing)).values()
    except (OSError, _zarr().errors.BaseZarrError):  # another process has just given the store its name
        return set()
    return {block for block in marked if all(chunk_name(array, block) in held for array in arrays)}


def check_complete(place: Place) -> None:
    """Refuse a finished file that has lost chunks, which zarr would read as numbers that were never written."""
    # Consolidated metadata names variables whose own description is lost.
    refuse_lost(promised(_zarr().open_group(place.whole, mode="r")), place.held(), place)


def never_computed(store: Any, source: Source, block: int) -> Arrays:
    """Return what stands for the values of a block that were never computed, for all variables that are filled by blocks."""
    start, stop = bounds(source, block)
    return {
        name: np.full((stop - start, *array.shape[1:]), array.fill_value, array.dtype)
        for name, array in _of_samples(_root(store)).items()
        if name not in ("seed", MARK)
    }


def bounds(source: Source, block: int) -> tuple[int, int]:
    """Return the first sample of a block and the one after its last."""
    start = block * source.block
    return start, min(start + source.block, source.count)


def mark_complete(store: Any) -> None:
    """Consolidate the metadata of a store for xarray, then mark in it that every block is there."""
    with warnings.catch_warnings():
        # Consolidated metadata is not part of Zarr 3 yet; readers that do not know it skip it.
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        _zarr().consolidate_metadata(store).attrs["complete"] = True


def read_attributes(store: Any) -> dict[str, Any] | None:
    """Read the attributes of a store written by snapfm; None for anything else."""
    try:
        attributes: dict[str, Any] = _root(store).attrs.asdict()
    except (OSError, ValueError, KeyError, _zarr().errors.BaseZarrError):  # not a folder, no store, or a damaged one
        return None
    return attributes if KEY in attributes else None


def read_variable(store: Any, name: str, some: slice = slice(None)) -> npt.NDArray[Any] | None:
    """Read one variable of some samples; None if the store has none of that name."""
    root = _root(store)
    return Checked(root[name], store)[some] if name in root else None


def load(file: str | Path) -> tuple[Tensor, dict[str, Tensor]]:
    """Read a finished file: fields (count, *shape) and, by name, the values drawn for each of them.

    Files that hold unconverged samples are refused: the fields alone would not show which these are.
    """
    place, _ = finished(
        file, "load(file) expects a finished data file", "`snapfm data PROBLEM --count N --out FILE.zarr`"
    )
    store = place.whole
    check_complete(place)
    status = read_variable(store, "status")
    if status is not None and status.any():
        raise DataError(
            f"load(file) expects fields that obey their laws; {np.count_nonzero(status)} of {plural(len(status), 'sample')} of "
            f"{file} did not converge. Read them with their status: xarray.open_zarr(file)."
        )
    read = {
        name: torch.from_numpy(Checked(array, store)[:])
        for name, array in _of_samples(_zarr().open_group(store, mode="r")).items()
        if name not in NOT_PARAMS
    }
    return read.pop("u"), read


def finished(file: str | Path, expected: str, cure: str) -> tuple[Place, dict[str, Any]]:
    """Return the place and the attributes of a finished file; refuse anything else, saying what writes one."""
    place = place_of(file)
    attributes = read_attributes(place.whole)
    if attributes is None or not attributes["complete"]:
        raise DataError(
            f"{expected}; {file} {'is none' if attributes is None else 'is not whole'}. Write one with {cure}."
        )
    return place, attributes


@cache
def _commit() -> str | None:
    """Name the commit; None for an installed package, which its version identifies."""
    file = Path(__file__)
    # A package inside somebody else's repository is not tracked there.
    calls = ("ls-files", "--error-unmatch", file.name), ("rev-parse", "HEAD")
    try:
        done = [subprocess.run(["git", *call], cwd=file.parent, capture_output=True, text=True) for call in calls]
    except OSError:  # no git
        return None
    return None if any(one.returncode for one in done) else done[-1].stdout.strip()


def _zarr() -> Any:
    return require("zarr", "data files", "data")


def _root(store: Any, mode: str = "r") -> Any:
    """Open a store as it is: what consolidated metadata say may be older."""
    return _zarr().open_group(store, mode=mode, use_consolidated=False)


def _of_samples(root: Any) -> dict[str, Any]:
    """Return the arrays with a value for each sample, by name."""
    return {name: array for name, array in root.arrays() if array.metadata.dimension_names[0] == "sample"}


def _complete(array: Any) -> Any:
    """Return an array whose chunks are written even if they hold nothing but the fill value: a missing one was not written."""
    return array.with_config({"write_empty_chunks": True})


def _pieces(count: int, block: int) -> tuple[int, int]:
    """Return the samples per chunk and per shard of `u`; shards consist of whole chunks."""
    if count <= block:  # a file of fewer samples than a block is one shard
        chunk = min(CHUNK, count)
        return chunk, -(-count // chunk) * chunk
    return next(size for size in range(CHUNK, 0, -1) if block % size == 0), block


def _array(
    root: Any, name: str, variable: Variable, leading: tuple[str, int], chunks: tuple[int, ...],
    shards: tuple[int, ...] | None = None,
) -> Any:  # fmt: skip
    """Create the array of a variable, with a leading axis of this name and size; return it, new or old."""
    dimension, size = leading
    zarr = _zarr()
    with suppress(zarr.errors.ContainsArrayError):
        root.create_array(
            name,
            shape=(size, *variable.shape),
            dtype=variable.dtype,
            chunks=chunks,
            shards=shards,
            fill_value=_NEVER.get(np.dtype(variable.dtype).kind, 0),
            attributes=dict(variable.attributes),
            dimension_names=[dimension, *variable.dimensions],
            # Shuffling bytes by their position saves a quarter of smooth fields. Without a checksum, decompression gives numbers
            # for most flipped bits; the index of a shard has one anyway.
            compressors=[zarr.codecs.BloscCodec(cname="zstd", shuffle="shuffle"), zarr.codecs.Crc32cCodec()],
        )
    return root[name]
