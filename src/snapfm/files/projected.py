"""Project fields that exist already: stream them through a projector into a file with their certificates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.errors import DataError, DtypeError, ShapeError
from snapfm.files.block import CERTIFICATE, certificate_of, refuse_failed
from snapfm.files.engines import Engine, Progress, Report
from snapfm.files.layout import Coordinate, Drawn, Layout, Variable
from snapfm.files.named import Named
from snapfm.files.opened import Opened, opened
from snapfm.files.place import place_of
from snapfm.files.requests import DtypeName, check_request, check_whole, versions
from snapfm.files.stream import HERE, KIND, Written, stream
from snapfm.files.summary import FileTotals, totals
from snapfm.project import Projector
from snapfm.solve.base import OnFailure

_REAL = "biuf"  # kinds of numpy's dtypes that fields may have
_OWN = ("sample", "seed", "before", "after", *CERTIFICATE)  # variables of a file that are no params of its laws


@dataclass(frozen=True)
class Projecting:
    """Which fields are projected onto which laws.

    `var` is the array of fields, `params` the arrays beside it that laws read: by default all with one value for every field,
    or one for all. A param has the last part of its array's name (`e` for `group/e`); "e=array" gives it another. `dims` names
    the axes of a field.
    """

    file: str | Path
    laws: Named
    var: str | None = None
    params: tuple[str, ...] | None = None
    dims: tuple[str, ...] | None = None
    tolerance: float = 1e-8
    batch: int = 32
    dtype: DtypeName | None = None  # None: that of the fields, float64 unless they are float32
    threads: int | None = None  # of torch, which measures violations; None uses its current number

    def __post_init__(self) -> None:
        check_whole("project", self, batch=32, threads=None)


class ProjectedFields:
    """The source of a file of projected fields: the input is read block by block."""

    command, seed = "project", 0

    def __init__(self, recipe: Projecting, on_failure: OnFailure = "raise") -> None:
        self.recipe, self.on_failure, self.threads = recipe, on_failure, recipe.threads
        self.input: Opened = opened(recipe.file)
        self.var = self.input.field(recipe.var)
        array = self.input.arrays[self.var]
        self.count, self.shape = int(array.shape[0]) if array.shape else 0, tuple(int(size) for size in array.shape[1:])
        if not self.shape or not self.count:
            raise ShapeError(
                f"project expects an array (samples, …) of fields; '{self.var}' of {self.input.name} has shape "
                f"{tuple(array.shape)}. Choose another with --var."
            )
        if array.dtype.kind not in _REAL:
            raise DtypeError(
                f"project expects fields of real numbers; '{self.var}' of {self.input.name} holds {array.dtype}. Choose "
                "another with --var, or store real and imaginary part along an axis."
            )
        self.dims = self._dims()
        self.params = self._params()  # from names that laws read to arrays of the input
        self.block = min(recipe.batch, self.count)
        self.dtype = str(recipe.dtype or ("float32" if array.dtype == np.float32 else "float64"))
        check_request("project", self.count, self.seed, self.dtype)

    def __reduce__(self) -> tuple[type[ProjectedFields], tuple[Projecting, OnFailure]]:
        anywhere = replace(
            self.recipe, file=str(place_of(self.recipe.file))
        )  # another process may be in another folder
        return ProjectedFields, (anywhere, self.on_failure)

    def asked(self) -> dict[str, Any]:
        """Return what decides the fields, in plain values."""
        return {
            KIND: "projected", "input": self.input.name, "var": self.var, "count": self.count, "dtype": self.dtype,
            "batch": self.block, "laws": self.recipe.laws.identity(), "params": self.params,
            "tolerance": self.recipe.tolerance,
            "bits": {name: self.input.fingerprint(name) for name in (self.var, *self.params.values())},
        }  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """Add what may change the last bits."""
        return {
            **self.asked(),
            "versions": versions("numba"),
            "threads": self.threads or torch.get_num_threads(),
            "processor": torch.backends.cpu.get_cpu_capability(),
        }

    def layout(self) -> Layout:
        """Describe fields, params, violations before and after, and certificates."""
        identity = self.identity()
        laws = list(self.projector.check(*self._read(0, 1)).by_law)
        attributes = {
            "title": f"{self.count} projected fields of {self.input.name}",
            "laws": laws,
            **{name: identity[name] for name in ("input", "var", "tolerance", "batch", "count", "versions")},
            "snapfm": identity["versions"]["snapfm"],
        }
        by_law = {
            when: Variable("float64", {"long_name": f"violation of each law {when} projection"}, (len(laws),), ("law",))
            for when in ("before", "after")
        }
        field = Variable(self.dtype, {"long_name": "projected field"}, self.shape, self.dims)
        variables = {"u": field, **self._param_variables(), **by_law, **CERTIFICATE}
        return Layout(attributes, variables, self._coordinates())

    def draw(self, start: int, stop: int, report: Report) -> Drawn:
        """Read, judge, project and judge again the fields start .. stop − 1."""
        began = perf_counter()
        u_hat, params = self._read(start, stop)
        read = perf_counter()
        before = self.projector.check(u_hat, params).by_law
        found = self.projector(u_hat, params)
        if self.on_failure == "raise":
            refuse_failed(found, start)
        values: dict[str, Any] = {
            "u": found.u,
            **{name: params[name].expand(stop - start, *params[name].shape[1:]) for name in self.params},
            "before": torch.stack(list(before.values()), dim=1),
            "after": torch.stack(list(found.by_law.values()), dim=1),
            **certificate_of(found),
        }
        ended = perf_counter()
        return Drawn(
            {name: value.numpy() for name, value in values.items()},
            {"reading": read - began, "projection": ended - read},
        )

    @cached_property
    def projector(self) -> Projector:
        """The projector of the laws, built from the first sample's params."""
        return Projector(
            self.recipe.laws.laws(), self.shape, self._read(0, 1)[1], self.recipe.tolerance, progress=False
        )

    def _read(self, start: int, stop: int) -> tuple[Tensor, dict[str, Tensor]]:
        kind = getattr(torch, self.dtype)
        u_hat = torch.from_numpy(np.array(self.input.read(self.var, start, stop))).to(kind)
        params = {}
        for name, array in self.params.items():
            one = self.input.arrays[array].shape[0] == 1 and self.count > 1
            read = torch.from_numpy(np.array(self.input.read(array, *((0, 1) if one else (start, stop)))))
            params[name] = read.double() if read.is_floating_point() else read
        return u_hat, params

    def _dims(self) -> tuple[str, ...]:
        """Return the names of a field's axes: those asked for, those of the file, or made-up ones."""
        asked = self.recipe.dims
        if asked is not None and len(asked) != len(self.shape):
            raise ShapeError(
                f"--dims expects {len(self.shape)} names for fields of shape {self.shape}; got {list(asked)}. Name every "
                "axis but that of the samples."
            )
        there = self.input.dimensions.get(self.var, ())[1:]
        made_up = tuple(f"axis{place}" for place in range(len(self.shape)))
        return asked or (there if len(there) == len(self.shape) else made_up)

    def _params(self) -> dict[str, str]:
        beside = [array for array in self.input.beside(self.var, self.count) if array not in _OWN]
        if self.recipe.params is None:
            found = {_last(array): array for array in beside}
            return found if len(found) == len(beside) else {array: array for array in beside}
        found = {}
        for asked in self.recipe.params:
            name, _, array = asked.rpartition("=")
            if array not in beside:
                cure = "Use some of these; NAME=ARRAY gives one the name that your laws read."
                if not beside:
                    cure = f"Put both into one file: numpy.savez('both.npz', u=fields, {array}=values)."
                raise DataError(
                    f"--params expects arrays of {self.input.name} with {self.count} values, or one for all fields: {beside}; "
                    f"got {array!r}. {cure}"
                )
            found[name or _last(array)] = array
        return found

    def _param_variables(self) -> dict[str, Variable]:
        found = {}
        for name, array in self.params.items():
            shape = tuple(int(extent) for extent in self.input.arrays[array].shape[1:])
            read = self._read(0, 1)[1][name]
            there = self.input.dimensions.get(array, ())[1:]
            dims = there if len(there) == len(shape) else tuple(f"{name}_axis{place}" for place in range(len(shape)))
            found[name] = Variable(
                str(read.dtype).removeprefix("torch."), {"long_name": f"{array} of the input"}, shape, dims
            )
        return found

    def _coordinates(self) -> tuple[Coordinate, ...]:
        """Copy the coordinates that the input has of its axes, with what it says of them."""
        found = []
        for name, size in zip(self.dims, self.shape):
            array = self.input.arrays.get(name)
            if array is not None and tuple(array.shape) == (size,):
                words: Mapping[str, Any] = dict(getattr(array, "attrs", {}))
                plain = {key: value for key, value in words.items() if isinstance(value, str | int | float | bool)}
                found.append(Coordinate(name, self.input.read(name, 0, size).astype(np.float64), plain))
        return tuple(found)


def _last(array: str) -> str:
    """Return the name of an array without its groups."""
    return array.rpartition("/")[2]


@dataclass(frozen=True)
class ProjectedFile:
    """A file of projected fields, and the outcome of all of them."""

    asked: dict[str, Any]
    written: Written
    totals: FileTotals
    laws: tuple[str, ...]


def project_file(
    recipe: Projecting, out: str | Path, progress: Progress | None = None, *, on_failure: OnFailure = "raise",
    engine: Engine = HERE,
) -> ProjectedFile:  # fmt: skip
    """Project the fields of a file into `out`, resuming a stopped run; see `generate` for the rest."""
    if recipe.threads is None:
        recipe = replace(recipe, threads=engine.threads or torch.get_num_threads())
    source = ProjectedFields(recipe, on_failure)
    written = stream(source, out, progress, engine=engine, keep_failed=on_failure == "keep")
    return ProjectedFile(
        source.asked(), written, totals(written, on_failure), tuple(source.layout().attributes["laws"])
    )
