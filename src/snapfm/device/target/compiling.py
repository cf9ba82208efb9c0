"""Compile a kernel for CUDA, as a function that others call: in place of kernels.numba.compiling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a kernel; of the options for the CPU, CUDA knows `forceinline` only."""

    def decorate(function: Callable[..., Any]) -> Any:
        return cuda.jit(device=True, forceinline=options.get("forceinline", False))(function)

    return decorate
