"""Write a finished file in the HDF5 layout of The Well (its docs/data_format.md), some samples at a time.

Fields become (samples, time, space…) in float32, as there; what was drawn per sample and the certificate become scalars, states
over space become fields that do not vary in time. Axes carry their names as HDF5 labels.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from snapfm.errors import DataError, require
from snapfm.files import archive
from snapfm.files.opened import Opened, opened
from snapfm.locking import sync

_TIME = ("t", "time")  # names of the axis that The Well puts after the samples
_SLICE = 32  # samples read and written at a time
_KEPT_IN_FULL = ("seed",)  # whole numbers that float32 would round


@dataclass(frozen=True)
class Exported:
    """What was written, and which variables have no place there: those over axes that fields do not have."""

    path: Path
    count: int
    fields: tuple[str, ...]
    scalars: tuple[str, ...]
    left_out: tuple[str, ...]
    bytes: int


def export_well(file: str | Path, out: str | Path) -> Exported:
    """Write a finished file of snapfm to `out`, which appears when it is whole."""
    h5py = require("h5py", "files of The Well", "data")
    _, attributes = archive.finished(
        file, "snapfm export expects a finished file of snapfm", "snapfm data, sample or project"
    )
    target = Path(out)
    if target.exists():
        raise DataError(
            f"snapfm export --out expects a file that does not exist; got {target}. Remove it, or choose another."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    try:
        with h5py.File(partial, "w") as written:
            writer = _Writer(written, opened(file), attributes)
            writer.write()
        sync(partial)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    fields, scalars, left_out = tuple(writer.fields), tuple(writer.scalars), tuple(writer.left_out)
    return Exported(target, writer.count, fields, scalars, left_out, target.stat().st_size)


class _Writer:
    """One file of The Well in the making."""

    def __init__(self, written: Any, source: Opened, attributes: Mapping[str, Any]) -> None:
        self.written, self.source, self.attributes = written, source, attributes
        self.count = int(source.arrays["u"].shape[0])
        self.dims = source.dimensions["u"][1:]
        self.time = next((name for name in self.dims if name in _TIME), None)
        self.space = tuple(name for name in self.dims if name != self.time)
        self.sizes: dict[str, int] = {}
        self.fields, self.scalars, self.left_out = list[str](), list[str](), list[str]()

    def write(self) -> None:
        """Write everything, and note the names of fields and scalars, and of what is left out."""
        self._dimensions()
        self._boundaries()
        groups = {f"t{order}_fields": self.written.create_group(f"t{order}_fields") for order in (0, 1, 2)}
        scalars = self.written.create_group("scalars")
        for name, dims in self.source.dimensions.items():
            if dims[:1] != ("sample",) or name == "sample":
                continue
            if len(dims) == 1:
                kind = np.int64 if name in _KEPT_IN_FULL else np.float32
                self._copy(scalars, name, dims, kind)
                self.scalars.append(name)
            elif set(dims[1:]) <= {*self.dims}:
                self._copy(groups["t0_fields"], name, dims, np.float32)
                self.fields.append(name)
            else:
                self.left_out.append(name)
        for group in groups.values():
            group.attrs["field_names"] = _texts(self.fields if group == groups["t0_fields"] else [])
        scalars.attrs["field_names"] = _texts(self.scalars)
        root = self.written.attrs
        root["simulation_parameters"] = _texts([])
        root["dataset_name"] = str(self.attributes.get("problem", self.attributes.get("title", "snapfm")))
        root["grid_type"], root["n_spatial_dims"], root["n_trajectories"] = "cartesian", len(self.space), self.count
        root["snapfm"] = str(self.attributes["snapfm"])

    def _dimensions(self) -> None:
        group = self.written.create_group("dimensions")
        group.attrs["spatial_dims"] = _texts(self.space)
        for name in ("time", *self.space):
            axis = self.time if name == "time" else name
            points = np.zeros(1) if axis is None else self._points(axis)
            self.sizes[name] = len(points)
            made = group.create_dataset(name, data=points.astype(np.float32))
            made.attrs["sample_varying"] = False
            if name != "time":
                made.attrs["time_varying"] = False

    def _points(self, name: str) -> npt.NDArray[Any]:
        size = int(self.source.arrays["u"].shape[1 + self.dims.index(name)])
        held = name in self.source.arrays and tuple(self.source.arrays[name].shape) == (size,)
        return self.source.read(name, 0, size) if held else np.arange(size)

    def _boundaries(self) -> None:
        """Say which axes are periodic; of the others nothing is known, which The Well calls open."""
        group = self.written.create_group("boundary_conditions")
        for name in self.space:
            words = dict(getattr(self.source.arrays.get(name), "attrs", {}))
            kind = "periodic" if words.get("periodic") else "open"
            made = group.create_group(f"{name}_{kind}")
            made.attrs["associated_dims"], made.attrs["associated_fields"] = _texts([name]), _texts([])
            made.attrs["bc_type"], made.attrs["sample_varying"], made.attrs["time_varying"] = kind, False, False
            mask = np.zeros(self.sizes[name], bool)
            mask[[0, -1]] = True
            made["mask"], made["values"] = mask, np.zeros(2, np.float32)

    def _copy(self, group: Any, name: str, dims: tuple[str, ...], kind: Any) -> None:
        """Copy a variable, time after samples; a field without a time axis of its own has one step, a state has none."""
        array = self.source.arrays[name]
        inner, moving = dims[1:], self.time in dims
        single = name == "u" and not moving
        kept = [one for one in (self.time, *self.space) if one in inner]
        order = [0, *(1 + inner.index(str(one)) for one in kept)]
        names = ["sample", *["time"] * (moving or single), *(one for one in self.space if one in inner)]
        shape = [int(array.shape[place]) for place in order]
        if single:
            shape.insert(1, 1)
        chunk = (min(_SLICE, self.count), *shape[1:])
        made = group.create_dataset(name, tuple(shape), kind, chunks=chunk if len(shape) > 1 else None)
        for start in range(0, self.count, _SLICE):
            stop = min(start + _SLICE, self.count)
            some = self.source.read(name, start, stop).transpose(order)
            made[start:stop] = some.reshape(stop - start, *shape[1:])
        for place, one in enumerate(names):
            made.dims[place].label = one  # not a scale: netCDF finds none in a group beside
        made.attrs["sample_varying"], made.attrs["time_varying"] = True, moving or single
        if len(dims) > 1:
            made.attrs["dim_varying"] = np.array([one in inner for one in self.space])


def _texts(words: Any) -> npt.NDArray[Any]:
    """Return names as HDF5 stores lists of them."""
    return np.array(list(words), dtype=require("h5py", "files of The Well", "data").string_dtype())
