"""Project fields that exist already: stream them through a projector into a file with their certificates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.errors import DataError, DtypeError, ShapeError
from snapfm.files.certified import Certified
from snapfm.files.engines import Report
from snapfm.files.layout import (
    BY_LAW,
    CERTIFICATE,
    KIND,
    NOT_PARAMS,
    Coordinate,
    Drawn,
    Layout,
    Variable,
    axes_of,
    param_variable,
)
from snapfm.files.opened import opened
from snapfm.files.place import place_of
from snapfm.files.requests import DtypeName, Named, check_dims, check_recipe
from snapfm.solve.base import OnFailure

_REAL = "biuf"  # kinds of numpy's dtypes that fields may have


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
        check_recipe("project", self)

    def source(self, on_failure: OnFailure) -> ProjectedFields:
        """Return what projects the fields."""
        return ProjectedFields(self, on_failure)


class ProjectedFields(Certified):
    """The source of a file of projected fields: the input is read block by block."""

    command = "project"

    def __init__(self, recipe: Projecting, on_failure: OnFailure = "raise") -> None:
        self.input = opened(recipe.file)
        self.var = self.input.field(recipe.var)
        array = self.input.arrays[self.var]
        count, *shape = (int(size) for size in array.shape) if array.shape else (0,)
        if not shape or not count:
            raise ShapeError(
                f"project expects an array (samples, …) of fields; '{self.var}' of {self.input.name} has shape "
                f"{tuple(array.shape)}. Choose another with --var."
            )
        if array.dtype.kind not in _REAL:
            raise DtypeError(
                f"project expects fields of real numbers; '{self.var}' of {self.input.name} holds {array.dtype}. Choose "
                "another with --var, or store real and imaginary part along an axis."
            )
        dtype = recipe.dtype or ("float32" if array.dtype == np.float32 else "float64")
        super().__init__(recipe, on_failure, count, 0, tuple(shape), dtype)
        check_dims(recipe.dims, self.shape)
        there = self.input.axes(self.var)
        self.dims = recipe.dims or (there if len(there) == len(shape) else axes_of(len(shape)))
        self.arrays = self._arrays()  # from names that laws read to arrays of the input

    def __reduce__(self) -> tuple[type[ProjectedFields], tuple[Projecting, OnFailure]]:
        # Another process may be in another folder.
        return ProjectedFields, (replace(self.recipe, file=str(place_of(self.recipe.file))), self.on_failure)

    def asked(self) -> dict[str, Any]:
        """Return what decides the fields, in plain values."""
        return {
            KIND: "projected", "input": self.input.name, "var": self.var, "laws": self.recipe.laws.identity(),
            "params": self.arrays, **super().asked(),
            "bits": {name: self.input.fingerprint(name) for name in (self.var, *self.arrays.values())},
        }  # fmt: skip

    def layout(self) -> Layout:
        """Describe fields, params, violations before and after, and certificates."""
        params = self.params(0, 1)
        laws = list(self.projector.check(self._fields(0, 1), params).by_law)
        by_law = {
            when: Variable("float64", {"long_name": f"violation of each law {when} projection"}, (len(laws),), ("law",))
            for when in BY_LAW
        }
        attributes = self.described(f"{self.count} projected fields of {self.input.name}", "input", "var", laws=laws)
        variables = {
            "u": Variable(self.dtype, {"long_name": "projected field"}, self.shape, self.dims),
            **{
                name: param_variable(
                    name, value, f"{self.arrays[name]} of the input", self.input.axes(self.arrays[name])
                )
                for name, value in params.items()
            },
            **by_law,
            **CERTIFICATE,
        }
        return Layout(attributes, variables, self._coordinates())

    def draw(self, start: int, stop: int, report: Report) -> Drawn:
        """Read, judge, project and judge again the fields start .. stop − 1."""
        began = perf_counter()
        u_hat, params = self._fields(start, stop), self.params(start, stop - start)
        read = perf_counter()
        before = self.projector.check(u_hat, params).by_law
        found = self.projector(u_hat, params)
        values: dict[str, Any] = {
            "u": found.u,
            **{name: value.expand(stop - start, *value.shape[1:]) for name, value in params.items()},
            "before": torch.stack(list(before.values()), dim=1),
            "after": torch.stack(list(found.by_law.values()), dim=1),
            **self.certificate(found, start),
        }
        ended = perf_counter()
        return Drawn(
            {name: value.numpy() for name, value in values.items()},
            {"reading": read - began, "projection": ended - read},
        )

    def params(self, start: int, count: int) -> dict[str, Tensor]:
        """Read what the laws read beside the fields."""
        found = {}
        for name, array in self.arrays.items():
            one = self.input.arrays[array].shape[0] == 1 and self.count > 1
            read = self._read(array, *((0, 1) if one else (start, start + count)))
            found[name] = read.double() if read.is_floating_point() else read
        return found

    def _fields(self, start: int, stop: int) -> Tensor:
        return self._read(self.var, start, stop).to(getattr(torch, self.dtype))

    def _read(self, array: str, start: int, stop: int) -> Tensor:
        return torch.from_numpy(np.array(self.input.read(array, start, stop)))

    def _arrays(self) -> dict[str, str]:
        beside = [array for array in self.input.beside(self.var, self.count) if array not in NOT_PARAMS]
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

    def _coordinates(self) -> tuple[Coordinate, ...]:
        """Copy the coordinates that the input has of its axes, with what it says of them."""
        found = []
        for name, size in zip(self.dims, self.shape):
            array = self.input.arrays.get(name)
            if array is not None and tuple(array.shape) == (size,):
                words = dict(getattr(array, "attrs", {})).items()
                plain = {key: value for key, value in words if isinstance(value, str | int | float | bool)}
                found.append(Coordinate(name, self.input.read(name, 0, size).astype(np.float64), plain))
        return tuple(found)


def _last(array: str) -> str:
    """Return the name of an array without its groups."""
    return array.rpartition("/")[2]
