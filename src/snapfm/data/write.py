"""Write simulated fields to FILE.zarr, resuming a run that was stopped; read fields back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor

from snapfm.data import archive
from snapfm.data.recipe import Recipe
from snapfm.data.simulated import Simulated
from snapfm.data.stream import Progress, Written, stream
from snapfm.errors import DataError


def write(recipe: Recipe, out: str | Path, progress: Progress | None = None) -> Written:
    """Write the fields of a recipe to `out`; `progress` is told the number of samples on disk after every block.

    A finished file of the same recipe is left as it is. One of another recipe is refused, finished or not.
    """
    return stream(Simulated(recipe), out, progress)


def load(file: str | Path) -> tuple[Tensor, dict[str, Tensor]]:
    """Read a finished file: fields (count, *shape) and, by name, all that was drawn for each of them.

    Files that hold samples which did not converge are refused: the fields alone would not tell which they are.
    """
    folder = Path(file)
    attributes = archive.read_attributes(folder)
    if attributes is None or not attributes["complete"]:
        raise DataError(
            f"load(file) expects a finished data file; {file} {'is none' if attributes is None else 'is not whole'}. "
            "Write one with `snapfm data PROBLEM --count N --out FILE.zarr`."
        )
    status = archive.read_variable(folder, "status")
    if status is not None and status.any():
        raise DataError(
            f"load(file) expects fields that obey their laws; {np.count_nonzero(status)} of the {len(status)} samples of "
            f"{file} did not converge. Read them with their status: xarray.open_zarr(file)."
        )
    return archive.read_fields(folder)
