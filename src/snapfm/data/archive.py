"""The Zarr store of a data file: created empty, filled block by block, marked whole. The only file that knows zarr.

Blocks of samples are the unit of work and of files: one shard of `u`, one chunk of every other variable. The store is
written directly, without xarray; its names, dimensions and attributes are those that xarray.open_zarr reads.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.data.source import Source
from snapfm.data.words import AXES, PARAMS, UNITS
from snapfm.errors import require

CHUNK = 4  # samples read at a time: some 300 kB of the benchmark's fields
FORMAT = 1  # version of this layout
KEY = "recipe"  # attribute that tells which run a store belongs to


def create(folder: Path, source: Source) -> None:
    """Create a store whose variables are empty, marked as not complete."""
    layout, count = source.layout(), source.count
    attributes = {**layout.attributes, "format": FORMAT, KEY: source.identity(), "complete": False}
    root = _zarr().create_group(folder, zarr_format=3, attributes=attributes)
    chunk, shard = _pieces(count, source.block)
    single = min(source.block, count)
    for name, variable in layout.variables.items():
        shape, dimensions = (count, *variable.shape), ["sample", *variable.dimensions]
        sharded = name == "u"
        chunks = (chunk if sharded else single, *variable.shape)
        shards = (shard, *variable.shape) if sharded else None
        _array(root, name, shape, variable.dtype, dimensions, dict(variable.attributes), chunks, shards)
    numbers = {
        "sample": "index of the sample; with its seed it decides all that was drawn",
        "seed": "seed of the run the sample belongs to",
    }
    for name, long_name in numbers.items():
        _array(root, name, (count,), "int64", ["sample"], {"long_name": long_name}, (single,))
    for axis in source.grid.axes:
        about = {"long_name": AXES[axis.name], "units": UNITS, "spacing": axis.spacing, "periodic": axis.periodic}
        made = _array(root, axis.name, (axis.size,), "float64", [axis.name], about, (axis.size,))
        made[:] = axis.points().numpy()


def write_block(folder: Path, source: Source, block: int) -> list[Path]:
    """Make one block of samples and write it; give the files it went to."""
    root = _zarr().open_group(folder, mode="r+")
    start = block * source.block
    stop = min(start + source.block, source.count)
    values = source.draw(start, stop)
    values["sample"] = np.arange(start, stop)
    values["seed"] = np.full(stop - start, source.seed)
    files = []
    for name, value in values.items():
        array = root[name]
        array[start:stop] = value.astype(array.dtype)
        files.append(folder.joinpath(name, "c", str(block), *["0"] * (array.ndim - 1)))
    return files


def mark_complete(folder: Path) -> None:
    """Say in the store itself that every block is there, and gather its metadata where xarray looks for it first."""
    zarr = _zarr()
    zarr.open_group(folder, mode="r+", use_consolidated=False).attrs["complete"] = True
    with warnings.catch_warnings():
        # Version 3 of the format does not name gathered metadata yet; readers that do not know it skip it.
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        zarr.consolidate_metadata(folder)


def read_attributes(folder: Path) -> dict[str, Any] | None:
    """Read the attributes of a store of ours, or None where there is none."""
    zarr = _zarr()
    try:
        attributes: dict[str, Any] = zarr.open_group(folder, mode="r").attrs.asdict()
    except (OSError, ValueError, KeyError, zarr.errors.BaseZarrError):  # not a folder, no store, or a damaged one
        return None
    return attributes if KEY in attributes else None


def read_fields(folder: Path) -> tuple[Tensor, dict[str, Tensor]]:
    """Read all fields and what was drawn for them."""
    root = _zarr().open_group(folder, mode="r")
    names = [name for name in root.array_keys() if name in PARAMS]
    return torch.from_numpy(root["u"][:]), {name: torch.from_numpy(root[name][:]) for name in names}


def read_variable(folder: Path, name: str) -> npt.NDArray[Any] | None:
    """Read one variable of all samples, or None if the store has none of that name."""
    root = _zarr().open_group(folder, mode="r")
    values: npt.NDArray[Any] | None = root[name][:] if name in root else None
    return values


def _zarr() -> Any:
    return require("zarr", "data files", "data")


def _pieces(count: int, block: int) -> tuple[int, int]:
    """Samples per chunk and per shard of `u`; shards are made of whole chunks."""
    if count <= block:  # a file of fewer samples than a block is one shard
        chunk = min(CHUNK, count)
        return chunk, -(-count // chunk) * chunk
    return next(size for size in range(CHUNK, 0, -1) if block % size == 0), block


def _array(
    root: Any,
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    dimensions: list[str],
    attributes: dict[str, Any],
    chunk: tuple[int, ...],
    shard: tuple[int, ...] | None = None,
) -> Any:
    return root.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=chunk,
        shards=shard,
        # What was never written must not pass for a number.
        fill_value=-1 if dtype.startswith("int") else float("nan"),
        attributes=attributes,
        dimension_names=dimensions,
        # Sorting bytes by their place in the number saves a quarter of smooth fields.
        compressors=_zarr().codecs.BloscCodec(cname="zstd", shuffle="shuffle"),
        config={"write_empty_chunks": True},
    )
