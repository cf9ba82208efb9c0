"""Arrays of a file that exists already, read some samples at a time: NPY, NPZ, Zarr, HDF5 and safetensors.

The first axis of an array counts samples. Nothing is read before it is asked for, and nothing is kept.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from weakref import finalize

import numpy as np
import numpy.typing as npt

from snapfm.errors import DataError, UnknownName, require
from snapfm.files import archive
from snapfm.files.damage import Checked
from snapfm.files.place import Address, Place, place_of

_KINDS = "NPY, NPZ, Zarr, HDF5 or safetensors"
_NUMBERS = "biufc"  # kinds of numpy's dtypes


class Array(Protocol):
    """An array on disk: slices along its first axis are read when they are asked for."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, part: slice) -> Any:
        """Read some samples."""


@dataclass(frozen=True)
class Opened:
    """The arrays of a file by name, and the names of their axes where the file has any."""

    name: str
    arrays: Mapping[str, Array]
    dimensions: Mapping[str, tuple[str, ...]]

    def read(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Read the samples start .. stop − 1 of an array, in the byte order of this machine."""
        found = np.asarray(self.arrays[name][start:stop])
        return found.astype(found.dtype.newbyteorder("="), copy=False)

    def axes(self, name: str) -> tuple[str, ...]:
        """Return the names of an array's axes besides that of the samples, as far as the file has them."""
        return self.dimensions.get(name, ())[1:]

    def fingerprint(self, name: str) -> str:
        """Identify an array by its shape, its dtype, and the bits of its first and last sample."""
        array = self.arrays[name]
        found = hashlib.sha256(f"{tuple(array.shape)} {array.dtype}".encode())
        for start in (0, array.shape[0] - 1):
            found.update(np.ascontiguousarray(self.read(name, start, start + 1)).tobytes())
        return found.hexdigest()

    def field(self, chosen: str | None) -> str:
        """Return the name of the array of fields: the chosen one, `u`, or the only one that can be."""
        if chosen is not None:
            if chosen not in self.arrays:
                raise UnknownName(
                    f"--var expects one of {sorted(self.arrays)}, the arrays of {self.name}; got {chosen!r}. Use one of these."
                )
            return chosen
        if "u" in self.arrays:
            return "u"
        able = [name for name, array in self.arrays.items() if len(array.shape) >= 2 and array.dtype.kind in _NUMBERS]
        if len(able) != 1:
            raise UnknownName(
                f"--var expects the name of the array of fields in {self.name}; got none, and there are {sorted(self.arrays)}. "
                "Name one of these."
            )
        return able[0]

    def beside(self, field: str, count: int) -> list[str]:
        """Return the arrays of numbers that hold one value for every field, or one for all."""
        return [
            name
            for name, array in self.arrays.items()
            if name != field
            and array.dtype.kind in _NUMBERS
            and array.shape
            and array.shape[0] in (1, count)
            and name not in self.dimensions.get(field, ())
        ]


def opened(file: str | Path) -> Opened:
    """Open a file of arrays; its ending says of which kind it is."""
    place = place_of(file)
    suffix = Path(str(file)).suffix.lower()
    if isinstance(place, Address) or suffix == ".zarr":
        return _zarr(str(file), place)
    path = place.path
    if not path.exists():
        raise DataError(f"snapfm project expects a file of fields; {file} does not exist. Check the path.")
    if suffix not in _READERS:
        raise DataError(f"snapfm project expects {_KINDS}; got {file}. Save the fields as one of these.")
    return _READERS[suffix](path)


@contextmanager
def _expected(what: str, *errors: type[Exception], cure: str = "Save it again.") -> Iterator[None]:
    """Turn what a reader raises into a DataError."""
    try:
        yield
    except errors as trouble:
        raise DataError(f"snapfm project expects {what}; got '{trouble}'. {cure}") from trouble


def _npy(path: Path) -> Opened:
    with _expected(f"an array of numbers in {path}", ValueError, EOFError):
        return Opened(path.name, {"u": np.load(path, mmap_mode="r", allow_pickle=False)}, {})


def _npz(path: Path) -> Opened:
    with _expected(f"an NPZ file in {path}", zipfile.BadZipFile):
        packed = zipfile.ZipFile(path)
    arrays: dict[str, Array] = {}
    found = Opened(path.name, arrays, {})
    finalize(found, packed.close)  # arrays that outlive `found` keep the file open
    names = [one.removesuffix(".npy") for one in packed.namelist() if one.endswith(".npy")]
    arrays.update({name: Member(packed, name) for name in names})
    return found


class Member:
    """An array of an NPZ file, read without loading the rest of it.

    It stays open, so that samples read in their order are unpacked once; those that are left out are skipped over.
    """

    def __init__(self, packed: zipfile.ZipFile, name: str) -> None:
        self._opened = packed.open(f"{name}.npy")
        finalize(self, self._opened.close)
        version = np.lib.format.read_magic(self._opened)
        head = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        self.shape, fortran, self.dtype = head(self._opened)
        self._begin = self._opened.tell()
        if fortran and len(self.shape) > 1:
            raise DataError(
                f"snapfm project expects arrays in C order; '{name}' of {packed.filename} is not. Save a copy in that order."
            )

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        """Read some samples."""
        start, stop, _ = part.indices(self.shape[0])
        size = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        self._opened.seek(self._begin + start * size)
        return np.frombuffer(self._opened.read((stop - start) * size), self.dtype).reshape(
            stop - start, *self.shape[1:]
        )


def _zarr(name: str, place: Place) -> Opened:
    zarr, store = require("zarr", "Zarr files", "data"), place.whole
    errors = OSError, ValueError, KeyError, zarr.errors.BaseZarrError
    with _expected(f"a Zarr store at {name}", *errors, cure="Check the path."):
        root = zarr.open(store, mode="r")
    if root.attrs.get("complete") is False:
        raise DataError(f"snapfm project expects a finished file; {name} is not whole. Finish the run that writes it.")
    if archive.KEY in root.attrs:  # in files of others, chunks may be left out
        archive.check_complete(place)
    arrays = {"u": root} if isinstance(root, zarr.Array) else dict(root.arrays())
    dimensions = {key: _axes(array) for key, array in arrays.items()}
    checked = {key: Checked(array, store) for key, array in arrays.items()}
    return Opened(Path(name).name, checked, {key: axes for key, axes in dimensions.items() if axes})


def _axes(array: Any) -> tuple[str, ...]:
    """Return the names of an array's axes, as Zarr 3 and xarray's attribute in Zarr 2 have them."""
    named = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS") or ()
    return tuple(str(one) for one in named) if all(named) else ()


def _hdf5(path: Path) -> Opened:
    file = require("h5py", "HDF5 files", "data").File(path, "r")
    arrays: dict[str, Any] = {}
    file.visititems(lambda name, entry: arrays.update({name: entry} if hasattr(entry, "shape") and entry.shape else {}))
    axes = {
        name: tuple(axis.label or (Path(axis[0].name).name if len(axis) else "") for axis in array.dims)
        for name, array in arrays.items()
    }
    return Opened(path.name, arrays, {name: words for name, words in axes.items() if all(words)})


class Slices:
    """An array of a safetensors file."""

    def __init__(self, opened: Any, name: str) -> None:
        self._slices = opened.get_slice(name)
        self.shape = tuple(self._slices.get_shape())
        self.dtype = self[:0].dtype  # of what is read: numpy has no bfloat16

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        """Read some samples."""
        found = self._slices[part]
        half = found.dtype.is_floating_point and found.dtype.itemsize < 4
        values: npt.NDArray[Any] = (found.double() if half else found).numpy()
        return values


def _safetensors(path: Path) -> Opened:
    opened = require("safetensors", "safetensors files", "data").safe_open(path, framework="pt")
    names = [name for name in opened.keys() if len(opened.get_slice(name).get_shape())]  # noqa: SIM118  not a dict
    return Opened(path.name, {name: Slices(opened, name) for name in names}, {})


_READERS: dict[str, Callable[[Path], Opened]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".safetensors": _safetensors,
    **dict.fromkeys((".h5", ".hdf5", ".he5", ".nc"), _hdf5),
}
