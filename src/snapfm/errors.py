"""Exceptions, the status of a projected sample with its advice, and the import of optional packages.

The lowest layer: everything may import it, it imports nothing of snapfm. A caller's mistake is an exception in
three parts (what was expected, what came, what to do); a numerical failure is a Status, one per sample.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from enum import IntEnum
from importlib.util import find_spec
from types import ModuleType


class SnapfmError(Exception):
    """Root of all exceptions of snapfm."""


class ShapeError(SnapfmError, ValueError):
    """A tensor has the wrong shape."""


class DtypeError(SnapfmError, TypeError):
    """A tensor has a dtype that cannot be used here."""


class ParamsError(SnapfmError, ValueError):
    """The params do not match the example given at construction."""


class LawError(SnapfmError, ValueError):
    """A law cannot be used as written."""


class UnsupportedLaw(SnapfmError, NotImplementedError):
    """A law is well formed, but no projector handles it yet."""


class UnknownName(SnapfmError, KeyError):
    """A problem, model or preset of that name does not exist."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument, which hides line breaks and adds quotes.
        return str(self.args[0]) if self.args else ""


class SettingError(SnapfmError, TypeError):
    """A setting has a value of a type that cannot be used here."""


class CheckpointError(SnapfmError, ValueError):
    """A checkpoint is missing, damaged, or belongs to something else."""


class DataError(SnapfmError, ValueError):
    """A data file cannot be written or read: unfinished, of another run, or not accessible."""


class MissingDependency(SnapfmError, ImportError):
    """An optional package is needed and not installed."""


class ProjectionFailed(SnapfmError, RuntimeError):
    """Some samples of a batch could not be projected; the message says which, by which law, and what to try."""


class StructureWarning(UserWarning):
    """Something costs speed, never correctness: for example an operator without a sparsity rule."""


class MemoryWarning(UserWarning):
    """A call is about to take more memory than a stated multiple of its batch."""


class DeviceWarning(UserWarning):
    """Fields on a device are copied to the CPU, which projects them, and back."""


class CacheWarning(UserWarning):
    """Kernels that were kept are not used, as another user could have written them."""


class Status(IntEnum):
    """The outcome of one sample; every value but CONVERGED is a failure. `Status(value).advice` says what to try."""

    CONVERGED = 0
    INFEASIBLE = 1
    STALLED = 2
    ITERATION_LIMIT = 3
    NONFINITE = 4

    @property
    def advice(self) -> str:
        """Meaning of the status and what to try, most likely cause first."""
        return _ADVICE[self]


_ADVICE = {
    Status.CONVERGED: (
        "the field obeys its laws to the tolerance asked for, and to first order no lawful direction leads nearer to the input"
    ),
    Status.INFEASIBLE: (
        "no nearby field obeys all laws; look for laws that contradict each other (two different totals, an initial "
        "condition that breaks a balance), then for params that belong to another sample"
    ),
    Status.STALLED: (
        "iterations ended where no step helps; if the law is off by little more than the tolerance, try a larger tolerance=, "
        "otherwise look for kinks (abs, max, where) or vanishing slopes in that law, or begin nearer with warm="
    ),
    Status.ITERATION_LIMIT: (
        "the budget was used up; try a larger limit= (iterations a sample) or seconds= (wall time of the batch), which "
        "Projector and its calls take, then smaller batches, or begin nearer with warm="
    ),
    Status.NONFINITE: (
        "the input field, its params or a law's residual holds NaN or infinity; check the network's output and the "
        "law's domain (square roots, logarithms, divisions)"
    ),
}


def require(package: str, purpose: str, extra: str, of: str = "snapfm") -> ModuleType:
    """Import an optional package, or name what installs it: an extra of the distribution `of`, or that itself if "" is given."""
    try:
        return importlib.import_module(package)
    except ImportError as cause:
        raise _missing(purpose, {package.partition(".")[0]: extra}, of) from cause


def bench(purpose: str) -> ModuleType:
    """Import snapfm_bench, the package with the benchmark problems and their models, or say how to install it."""
    require_all(purpose, {"snapfm_bench": ""}, of="snapfm-bench")
    return importlib.import_module("snapfm_bench")


def require_all(purpose: str, packages: Mapping[str, str], of: str = "snapfm") -> None:
    """Refuse to start without packages, each named with its extra: all that are missing, in one message."""
    missing = {package: extra for package, extra in packages.items() if find_spec(package) is None}
    if missing:
        raise _missing(purpose, missing, of)


def _missing(purpose: str, packages: Mapping[str, str], of: str) -> MissingDependency:
    *others, last = packages
    names, extras = f"{', '.join(others)} and {last}" if others else last, ",".join(dict.fromkeys(packages.values()))
    be, they, them = ("are", "they are", "them") if others else ("is", "it is", "it")
    install = f"'{of}[{extras}]'" if extras else of
    return MissingDependency(
        f"{names} {be} needed for {purpose}; {they} not installed. Install {them} with: pip install {install}"
    )
