"""`snapfm kernels`: compile the kernels now, side by side, rather than one by one at their first use."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated

import typer

from snapfm.errors import SnapfmError


def kernels(
    workers: Annotated[int | None, typer.Option(min=1, help="Processes at once; by default one a core.")] = None,
) -> None:
    """Compile the kernels now and keep them, so that no later call has to wait for it."""
    from snapfm.kernels.numba.ahead import compile_all
    from snapfm.kernels.numba.cache import own, shipped

    if (folder := shipped() or own()) is None:
        raise SnapfmError(
            "snapfm kernels expects a cache folder that it may write; found none. Set SNAPFM_CACHE to a folder."
        )
    began = perf_counter()
    count = compile_all(workers)
    typer.echo(f"{count} kernels in {folder}, {perf_counter() - began:.0f} s")
