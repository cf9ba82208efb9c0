"""Compile a kernel with numba, and keep the machine code on disk where that is possible.

numba refuses to compile with a cache where no folder can be written, and it considers a cached kernel fresh as long as the
kernel's own file is unchanged, though it contains the code of other kernels. Here a kernel without a folder is compiled in
memory, and the cache is valid for one state of all kernel files. Imports nothing of snapfm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a kernel: numba's njit with these options and, where a folder can be written, a cache."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            kernel = njit(cache=True, **options)(function)
        except RuntimeError as cause:
            if "no locator available" not in str(cause):
                raise
            return njit(**options)(function)
        cache = kernel._cache._cache_file
        cache._source_stamp = (cache._source_stamp, SOURCES)
        return kernel

    return decorate


def _sources() -> str:
    """Hash the files of all kernels."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


SOURCES = _sources()  # hash of the files of all kernels
