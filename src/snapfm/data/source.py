"""Source: where the fields of a file come from, as the writer sees it. Knows no disk.

The writer asks a source for its identity, its layout and one block of samples after the other; nothing else differs between
simulated fields and those drawn by a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from snapfm.grid import Grid

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Variable:
    """One variable of a file; shape and dimensions are those of ONE sample."""

    dtype: str
    attributes: Mapping[str, Any]
    shape: tuple[int, ...] = ()
    dimensions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """What a file holds beside the axes of its grid and the numbers of its samples: `u`, and what belongs to each field."""

    attributes: Mapping[str, Any]
    variables: Mapping[str, Variable]


class Source(Protocol):
    """Samples 0 .. count − 1, made in blocks. The bits of a block depend on the identity and on its place alone."""

    command: str  # that a caller knows this source by; messages name it
    count: int  # samples of the whole file
    seed: int  # of the run, stored beside each sample
    block: int  # samples made, written and noted at a time: the unit of work, of files and of memory
    grid: Grid  # of a field
    dtype: str  # of a field

    def asked(self) -> dict[str, Any]:
        """Give what a caller asks for, in plain values: a finished file with the same is left as it is."""
        ...

    def identity(self) -> dict[str, Any]:
        """Give all that decides the bits, in plain values: an unfinished run with the same is resumed."""
        ...

    def layout(self) -> Layout:
        """Say what the file holds; asked for once, when it is created."""
        ...

    def draw(self, start: int, stop: int) -> Arrays:
        """Make the samples start .. stop − 1: a value for every variable of the layout, leading axis stop − start."""
        ...
