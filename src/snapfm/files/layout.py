"""Layout: what a data file holds, and Source: where its samples come from. Knows no disk.

The writer asks a source for its identity, its layout and one block of samples after the other. Nothing else differs between
simulated fields and those drawn by a model. All quantities are dimensionless, as the equations are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy.typing as npt

from snapfm.files.engines import Report

Arrays = dict[str, npt.NDArray[Any]]

UNITS = "1"  # dimensionless, as CF conventions write it

# Descriptions of the variables of a file, by name.
FIELDS = {
    "heat": "temperature",
    "burgers": "velocity",
    "reaction-diffusion": "concentration",
    "navier-stokes": "vorticity",
}
AXES = {"x": "position along x", "y": "position along y", "t": "physical time"}
PARAMS = {
    "u0": "initial state",
    "alpha": "diffusivity",
    "phase": "phase of the initial sine",
    "position": "position of the initial step",
    "left": "value at the left end",
    "flux_left": "diffusive flux at the left end, along x",
    "flux_right": "diffusive flux at the right end, along x",
    "force_phase": "phase of the forcing",
}


@dataclass(frozen=True)
class Variable:
    """One variable of a file; shape and dimensions are those of ONE sample."""

    dtype: str
    attributes: Mapping[str, Any]
    shape: tuple[int, ...] = ()
    dimensions: tuple[str, ...] = ()


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
        ...

    def identity(self) -> dict[str, Any]:
        """Return everything that decides the bits, in plain values: an unfinished run with the same is resumed."""
        ...

    def layout(self) -> Layout:
        """Describe the contents of the file; called once, when it is created."""
        ...

    def draw(self, start: int, stop: int, report: Report) -> Drawn:
        """Make the samples start .. stop − 1: a value for every variable of the layout, leading axis stop − start."""
        ...
