"""The Zarr store of a data file: created empty, filled block by block, marked whole. The only file that knows zarr.

Blocks of samples are the unit of work and of files: one shard of `u`, one chunk of every other variable. The store is
written directly, without xarray; its names, dimensions and attributes are those that xarray.open_zarr reads.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.data.words import AXES, FIELDS, PARAMS, UNITS
from snapfm.errors import DataError, require
from snapfm.grid import Grid
from snapfm.problems import Problem

CHUNK = 4  # samples read at a time: some 300 kB of the benchmark's fields
BLOCK = 32  # samples per shard: a few MB, and at most half a minute of simulation lost by a stop
FORMAT = 1  # version of this layout
KEY = "recipe"  # attribute that tells which run a store belongs to


def create(folder: Path, problem: Problem, identity: Mapping[str, Any]) -> None:
    """Create a store whose variables are empty, marked as not complete."""
    zarr = _zarr()
    count, dtype, grid = identity["count"], identity["dtype"], problem.grid
    _, example = problem.draw_training(identity["seed"], 0, 1)
    attributes = {
        "title": f"{count} simulated fields: {problem.equation}",
        "problem": problem.name,
        "equation": problem.equation,
        "summary": problem.summary,
        "laws": [law.name for law in problem.laws],
        "seed": identity["seed"],
        "count": count,
        "snapfm": identity["versions"]["snapfm"],
        "format": FORMAT,
        KEY: dict(identity),
        "complete": False,
    }
    root = zarr.create_group(folder, zarr_format=3, attributes=attributes)
    names = [axis.name for axis in grid.axes]
    field = {"long_name": FIELDS[problem.equation], "units": UNITS}
    chunk = (min(CHUNK, count), *grid.shape)
    # A file of fewer samples than a block is one shard; shards are made of whole chunks.
    shard = (min(BLOCK, -(-count // chunk[0]) * chunk[0]), *grid.shape)
    _array(root, "u", (count, *grid.shape), dtype, ["sample", *names], field, chunk, shard)
    for name, value in example.items():
        space = _space(grid, tuple(value.shape[1:]), name)
        words = {"long_name": PARAMS[name], "units": UNITS}
        shape = (count, *value.shape[1:])
        _array(root, name, shape, dtype, ["sample", *space], words, (min(BLOCK, count), *value.shape[1:]))
    numbers = {
        "sample": "index of the sample; with its seed it decides all that was drawn",
        "seed": "seed of the run the sample belongs to",
    }
    for name, long_name in numbers.items():
        _array(root, name, (count,), "int64", ["sample"], {"long_name": long_name}, (min(BLOCK, count),))
    for axis in grid.axes:
        about = {"long_name": AXES[axis.name], "units": UNITS, "spacing": axis.spacing, "periodic": axis.periodic}
        made = _array(root, axis.name, (axis.size,), "float64", [axis.name], about, (axis.size,))
        made[:] = axis.points().numpy()


def write_block(folder: Path, problem: Problem, identity: Mapping[str, Any], block: int) -> list[Path]:
    """Simulate one block of samples and write it; give the files it went to."""
    root = _zarr().open_group(folder, mode="r+")
    start = block * BLOCK
    stop = min(start + BLOCK, identity["count"])
    fields, drawn = problem.draw_training(identity["seed"], start, stop - start)
    values: dict[str, Any] = {name: value.numpy() for name, value in {"u": fields, **drawn}.items()}
    values["sample"] = np.arange(start, stop)
    values["seed"] = np.full(stop - start, identity["seed"])
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


def _zarr() -> Any:
    return require("zarr", "data files", "data")


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
        fill_value=-1 if dtype == "int64" else float("nan"),
        attributes=attributes,
        dimension_names=dimensions,
        # Sorting bytes by their place in the number saves a quarter of smooth fields.
        compressors=_zarr().codecs.BloscCodec(cname="zstd", shuffle="shuffle"),
        config={"write_empty_chunks": True},
    )


def _space(grid: Grid, shape: tuple[int, ...], name: str) -> list[str]:
    """Name the axes of a drawn value: none for a number, those of space for a state."""
    space = grid.axes[:-1]
    if shape == ():
        return []
    if shape == tuple(axis.size for axis in space):
        return [axis.name for axis in space]
    raise DataError(
        f"problem.draw_training expects '{name}' to be a number or a state {[axis.size for axis in space]} per sample; "
        f"got shape {list(shape)}. Draw it in one of these shapes."
    )
