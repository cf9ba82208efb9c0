"""Where compiled kernels are kept: with the package, for common processors, and in the user's cache folder, for this one.

A file holds one kernel for one list of argument types, in one of two forms: as machine code that Python calls, or as LLVM's code
that the compiler puts into the kernels that call it. Files are valid for one state of all kernel files, one Python, numba and
llvmlite, and one kind of processor: that is the name of their folder, so nothing stale is ever found. Where no folder can be
written, nothing is kept. SNAPFM_CACHE names another folder than the user's own; "off" keeps nothing.

Machine code does what its writer wants. So folders and files are used only if they belong to this user or to root, and no other
user can write them. What is shipped is trusted as far as the package's own code beside it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import numba
from llvmlite import binding
from numba.core import config
from numba.core.registry import cpu_target

from snapfm.errors import CacheWarning
from snapfm.kernels.numba.stored import packed, unpacked
from snapfm.locking import held

_KERNELS = Path(__file__).parents[1]
SHIPPED = _KERNELS / "objects"  # in wheels that were built with machine code
FEATURES = "features.txt"  # of a shipped folder: what a processor needs to run its code
OBJECT, LINKABLE = "object", "linkable"  # the two forms
_PREFIX, _LOCKS = "kernels-", "locks"  # of a folder's name, and the folder inside it that every one has
_PATIENCE = 600.0  # seconds to wait for another process that compiles the same kernel
_UNUSED = 30 * 24 * 3600.0  # seconds after which a folder of another state is removed


def read(kernel: str, signature: Any, form: str) -> tuple[dict[str, Any], list[bytes]] | None:
    """Return what was kept of a kernel: its header and its code. A kernel without a name is not kept."""
    for folder in _folders(form) if kernel else ():
        try:
            with open(folder / _name(kernel, signature, form), "rb") as file:
                if not _trusted(os.fstat(file.fileno()), folder):
                    _refuse(folder)
                    continue
                header, code = unpacked(file.read())
        except (OSError, ValueError, LookupError, TypeError):  # not there, or damaged: the kernel can be compiled
            continue
        if header["signature"] == str(signature):
            return header, code
    return None


def write(kernel: str, signature: Any, form: str, header: dict[str, Any], code: list[bytes]) -> None:
    """Keep a kernel, if there is a folder for it. The file appears whole."""
    folder = own()
    if folder is None or not kernel:
        return
    file = folder / _name(kernel, signature, form)
    part = file.with_name(f"{file.name}.{uuid.uuid4().hex[:8]}")
    with suppress(OSError):  # a full disk is no reason to fail
        try:
            part.touch(0o600, exist_ok=False)
            part.write_bytes(packed({**header, "signature": str(signature)}, code))
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def alone(kernel: str, signature: Any, form: str) -> Iterator[None]:
    """Let one process compile a kernel while others that need it wait for what it keeps."""
    folder = own()
    if folder is None or not kernel:
        yield
        return
    with held(folder / _LOCKS / _name(kernel, signature, form), wait=_PATIENCE):
        yield  # also where another process takes too long: then two compile it


@cache
def own() -> Path | None:
    """Return the folder of this state in the user's cache, which can be written; None if there is none."""
    base = _base()
    if base is None:
        return None
    folder = base / f"{_PREFIX}{_digest(*_state(), cpu_target.target_context.codegen().magic_tuple())}"
    try:
        new = not folder.exists()
        folder.mkdir(0o700, parents=True, exist_ok=True)
        if not _trusted(folder.stat(), folder):
            _refuse(folder)
            return None
        (folder / _LOCKS).mkdir(0o700, exist_ok=True)
        os.utime(folder)  # in use
        trial = folder / f"trial.{uuid.uuid4().hex[:8]}"
        trial.touch()
        trial.unlink()
    except OSError:
        return None
    if new:
        _tidy(base)
    return folder


@cache
def shipped() -> Path | None:
    """Return the folder of the package with code for a processor like this one; None if there is none.

    Who tells numba which processor to compile for gets that.
    """
    if config.CPU_NAME is not None or config.CPU_FEATURES is not None or not config.ENABLE_AVX:
        return None
    has = {name for name, there in binding.get_host_cpu_features().items() if there}
    best: tuple[int, Path | None] = (-1, None)
    for needs in (SHIPPED / stamp()).glob(f"*/{FEATURES}"):
        if not _trusted(needs.parent.stat(), needs.parent):
            _refuse(needs.parent)
            continue
        wanted = set(needs.read_text(encoding="ascii").split())
        if wanted <= has:
            best = max(best, (len(wanted), needs.parent), key=lambda one: one[0])
    return best[1]


def stamp() -> str:
    """Name the state that shipped code is valid for: all but the processor."""
    return _digest(*_state(), binding.get_process_triple())


def _folders(form: str) -> Iterator[Path]:
    """List where to look. What is shipped is complete: the compiler does not put it into other kernels."""
    if form == OBJECT and (folder := shipped()) is not None:
        yield folder
    if (folder := own()) is not None:
        yield folder


def _trusted(found: os.stat_result, folder: Path) -> bool:
    """Whether only users who may decide what runs here could have written a file or folder. True where files have no owners."""
    if not hasattr(os, "geteuid"):
        return True
    owners, writers = {os.geteuid(), 0}, stat.S_IWGRP | stat.S_IWOTH
    if folder.is_relative_to(SHIPPED):  # who can write the package's code needs no kernels
        package = os.stat(__file__)
        owners, writers = owners | {package.st_uid}, writers & ~package.st_mode
    return found.st_uid in owners and not found.st_mode & writers


@cache  # once for each folder
def _refuse(folder: Path) -> None:
    warnings.warn(
        f"kept kernels are expected to belong to this user, in folders and files that no other user can write; {folder} is "
        "not such a folder, or has a file that is not. It is not used, and kernels are compiled again in every process. "
        f"Make it yours (chown -R, chmod -R go-w), remove it, or set SNAPFM_CACHE to a folder of your own.",
        CacheWarning, stacklevel=2,
    )  # fmt: skip


def _base() -> Path | None:
    """Return the cache folder of the user, on any system."""
    asked = os.environ.get("SNAPFM_CACHE")
    if asked:
        return None if asked == "off" else Path(asked)
    with suppress(RuntimeError):  # no home
        if os.name == "nt":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "snapfm" / "Cache"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "snapfm"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "snapfm"
    return None


def _state() -> tuple[Any, ...]:
    python = (sys.implementation.cache_tag, getattr(sys, "abiflags", ""))
    settings = (
        config.OPT,
        config.LOOP_VECTORIZE,
        config.SLP_VECTORIZE,
        config.BOUNDSCHECK,
        getattr(config, "USING_SVML", None),
    )
    return sources(), python, numba.__version__, llvmlite.__version__, [str(one) for one in settings]


@cache
def sources() -> str:
    """Hash the files of all kernels: the code of one contains that of others."""
    digest = hashlib.sha256()
    for file in sorted(_KERNELS.rglob("*.py")):
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _name(kernel: str, signature: Any, form: str) -> str:
    return f"{kernel}-{_digest(str(signature))}.{form}"


def _tidy(base: Path) -> None:
    """Remove folders of kernels that no process has used for a month; the user may keep other things beside them."""
    for folder in base.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if (folder / _LOCKS).is_dir() and time.time() - folder.stat().st_mtime > _UNUSED:
                shutil.rmtree(folder, ignore_errors=True)
