"""Layout: what a data file holds, and Source: where its samples come from. Knows no disk.

The writer asks a source for its identity, its layout and one block of samples after the other. Nothing else differs between
simulated fields, those drawn by a model, and projected ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy.typing as npt
from torch import Tensor

from snapfm.errors import Status
from snapfm.files.engines import Report

Arrays = dict[str, npt.NDArray[Any]]

UNITS = "1"  # dimensionless, as CF conventions write it
KIND = "fields"  # entry of an identity that distinguishes kinds of sources


@dataclass(frozen=True)
class Variable:
    """One variable of a file; shape and dimensions are those of ONE sample."""

    dtype: str
    attributes: Mapping[str, Any]
    shape: tuple[int, ...] = ()
    dimensions: tuple[str, ...] = ()


NEVER, NEVER_COMPUTED = -1, "NEVER_COMPUTED"  # status of samples whose block was given up: the fill value of a file

# Variables of the last projection of each sample, stored with the laws' params; attributes of a Projection, too.
CERTIFICATE = {
    "status": Variable(
        "int8",
        {
            "long_name": "what became of the sample",
            "flag_values": [*(int(status) for status in Status), NEVER],
            "flag_meanings": " ".join([*(status.name.lower() for status in Status), NEVER_COMPUTED.lower()]),
        },
    ),
    "violation": Variable("float64", {"long_name": "largest violation of a law, in its own units, in float64"}),
    "stationarity": Variable("float64", {"long_name": "what is left of u - û + Jᵀλ in the last projection"}),
    "iterations": Variable("int64", {"long_name": "iterations of the last projection"}),
    "distance": Variable("float64", {"long_name": "length of the last projection, ‖u - û‖₂"}),
}
BY_LAW = ("before", "after")  # the violation of each law, in files of projected fields
NOT_PARAMS = ("sample", "seed", *BY_LAW, *CERTIFICATE)  # all else beside `u` with a value for each sample


@dataclass(frozen=True)
class Coordinate:
    """The points of one axis of a field."""

    name: str
    values: npt.NDArray[Any]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """The contents of a file besides its sample numbers: `u`, what belongs to each field, and the axes that have coordinates."""

    attributes: Mapping[str, Any]
    variables: Mapping[str, Variable]
    coordinates: tuple[Coordinate, ...] = ()


@dataclass(frozen=True)
class Drawn:
    """The samples of a block, and figures that are added up over blocks, such as seconds."""

    values: Arrays
    figures: Mapping[str, float] = field(default_factory=dict)


class Source(Protocol):
    """Samples 0 .. count − 1, made in blocks. The bits of a block depend only on the identity and on its position.

    It pickles, so that other processes can make some of them.
    """

    command: str  # the command that a caller knows this source by, for messages
    count: int  # samples of the whole file
    seed: int  # of the run, stored with each sample
    block: int  # samples made, written and recorded at a time: the unit of work, of files and of memory
    shape: tuple[int, ...]  # of a field
    dtype: str  # of a field
    threads: int | None  # of torch, while samples are made; None for as many as the process has

    def asked(self) -> dict[str, Any]:
        """Return what a caller asks for, in plain values: a finished file with the same is left as it is."""

    def identity(self) -> dict[str, Any]:
        """Return everything that decides the bits, in plain values: an unfinished run with the same is resumed."""

    def layout(self) -> Layout:
        """Describe the contents of the file; called once, when it is created."""

    def draw(self, start: int, stop: int, report: Report) -> Drawn:
        """Make the samples start .. stop − 1: a value for every variable of the layout, leading axis stop − start."""


def axes_of(count: int, prefix: str = "") -> tuple[str, ...]:
    """Name axes that nobody has named."""
    return tuple(f"{prefix}axis{place}" for place in range(count))


def param_variable(name: str, value: Tensor, words: str, axes: tuple[str, ...] = ()) -> Variable:
    """Describe a param of laws by an example with a leading axis of samples; `axes` are the names of the others if known."""
    shape = tuple(value.shape[1:])
    kind = str(value.dtype).removeprefix("torch.")
    return Variable(
        kind, {"long_name": words}, shape, axes if len(axes) == len(shape) else axes_of(len(shape), f"{name}_")
    )
