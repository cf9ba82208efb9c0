"""What every request for a file of fields has in common: numbers that fit, and the versions that decide its bits."""

from __future__ import annotations

import math
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TypeAlias

from snapfm.errors import DataError, UnknownName

DtypeName: TypeAlias = Literal["float64", "float32"]

_LARGEST_SEED = 2**63 - 1  # stored as int64 with each sample


def check_request(command: str, count: int, seed: int, dtype: str) -> None:
    """Refuse values that no file can hold; `command` is what the caller called."""
    if not isinstance(count, int) or count < 1:
        raise DataError(f"{command}(count) expects a whole number >= 1; got {count!r}. Ask for at least one field.")
    if not isinstance(seed, int) or not 0 <= seed <= _LARGEST_SEED:
        raise DataError(f"{command}(seed) expects a whole number from 0 to 2**63 - 1; got {seed!r}. Try 0.")
    if dtype not in ("float64", "float32"):
        raise UnknownName(
            f"{command}(dtype) expects one of ['float64', 'float32']; got {dtype!r}. float64 loses nothing, "
            "float32 halves the file."
        )


def versions(*more: str) -> dict[str, str]:
    """Return the versions of the packages that compute the fields."""
    return {name: metadata.version(name) for name in ("snapfm", "torch", "numpy", "scipy", *more)}


def check_drawing(recipe: Any) -> None:
    """Refuse numbers that no samples can be drawn with."""
    check_request("sample", recipe.count, recipe.seed, recipe.dtype)
    check_whole("sample", recipe, steps=20, batch=32, threads=None)
    if not isinstance(recipe.tolerance, int | float) or not 0 < recipe.tolerance < math.inf:
        raise DataError(
            f"sample(tolerance) expects a positive number; got {recipe.tolerance!r}. The default is 1e-8, in the laws' own "
            "units."
        )


def check_whole(command: str, recipe: Any, **defaults: int | None) -> None:
    """Refuse settings of a recipe that are neither whole numbers >= 1 nor their defaults."""
    for name, default in defaults.items():
        value = getattr(recipe, name)
        if value != default and (not isinstance(value, int) or value < 1):
            raise DataError(f"{command}({name}) expects a whole number >= 1; got {value!r}. The default is {default}.")


@cache
def commit() -> str | None:
    """Name the commit; None for an installed package, which its version identifies."""
    file = Path(__file__)
    try:
        # A package inside somebody else's repository is not tracked there.
        tracked = _git("ls-files", "--error-unmatch", file.name)
        return _git("rev-parse", "HEAD") if tracked else None
    except OSError:  # no git
        return None


def _git(*words: str) -> str | None:
    done = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True)
    return done.stdout.strip() or None if done.returncode == 0 else None
