"""What requests for files of fields have in common: numbers that fit, objects named as module:name, versions that decide bits."""

from __future__ import annotations

import hashlib
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TypeAlias

from snapfm.errors import DataError, ShapeError, SnapfmError, UnknownName
from snapfm.laws import Law
from snapfm.project import checks
from snapfm.text import meant

DtypeName: TypeAlias = Literal["float64", "float32"]

_DTYPES = ["float64", "float32"]
_LARGEST_SEED = 2**63 - 1  # stored as int64 with each sample
_WHOLE = "a whole number >= 1"


def _whole(value: Any) -> bool:
    return isinstance(value, int) and value >= 1


# By the name of a field of a recipe: what fits besides its default, in words too, and what to do.
_RULES: dict[str, tuple[Callable[[Any], bool], str, str]] = {
    "count": (_whole, _WHOLE, "Ask for at least one field."),
    "seed": (
        lambda value: isinstance(value, int) and 0 <= value <= _LARGEST_SEED,
        "a whole number from 0 to 2**63 - 1",
        "Try 0.",
    ),
    "dtype": (_DTYPES.__contains__, f"one of {_DTYPES}", "float64 loses nothing, float32 halves the file."),
    "steps": (_whole, _WHOLE, "The default is 20."),
    "batch": (_whole, _WHOLE, "The default is 32."),
    "threads": (_whole, _WHOLE, "The default is None."),
    "tolerance": (
        lambda value: isinstance(value, int | float) and 0 < value < math.inf,
        "a positive number",
        "The default is 1e-8, in the laws' own units.",
    ),
}


def check_recipe(command: str, recipe: Any) -> None:
    """Refuse values of a recipe, a dataclass, that no file can be made with; `command` is what the caller called."""
    for field in fields(recipe):
        value = getattr(recipe, field.name)
        if field.name not in _RULES or value is field.default:
            continue
        fits, expected, cure = _RULES[field.name]
        if not fits(value):
            error = UnknownName if field.name == "dtype" else DataError
            raise error(f"{command}({field.name}) expects {expected}; got {value!r}. {cure}")


def check_dims(dims: tuple[str, ...] | None, shape: tuple[int, ...]) -> None:
    """Refuse names that are not one for each axis of a field."""
    if dims is not None and len(dims) != len(shape):
        raise ShapeError(
            f"--dims expects {len(shape)} names for fields of shape {shape}; got {list(dims)}. Name every axis but that of the "
            "samples."
        )


def versions(*more: str) -> dict[str, str]:
    """Return the versions of the packages that compute the fields."""
    return {name: metadata.version(name) for name in ("snapfm", "torch", "numpy", "scipy", *more)}


@dataclass(frozen=True)
class Named:
    """An object named module:name; `folder` is searched too, so that other processes find what this one finds."""

    option: str  # as the caller wrote it, for messages
    text: str
    folder: str

    def load(self) -> Any:
        """Import the module and return the object."""
        module, colon, name = self.text.partition(":")
        if not (module and colon and name):
            raise UnknownName(
                f"{self.option} expects module:name; got {self.text!r}. Write it as in {self.option} mine:laws."
            )
        if module.endswith(".py"):
            raise UnknownName(
                f"{self.option} expects a module, not a file; got {module!r}. Write {self.option} "
                f"{Path(module).stem}:{name}, in the folder of the file."
            )
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            found = importlib.import_module(module)
        except SnapfmError:
            raise
        except Exception as cause:
            raise UnknownName(
                f"{self.option} expects a module that can be imported; {module!r} raised {type(cause).__name__}: {cause}. "
                "Start in the folder it is in, or set PYTHONPATH."
            ) from cause
        for part in name.split("."):
            if not hasattr(found, part):
                raise UnknownName(
                    f"{self.option} expects '{name}' in module {module}; it has none. {meant(part, dir(found))}Check the name."
                )
            found = getattr(found, part)
        return found

    def laws(self) -> Sequence[Law]:
        """Return the list of laws: the object itself, or what it returns as a function without arguments."""
        found = self.load()
        return checks.check_laws(found() if callable(found) else found)

    def identity(self) -> dict[str, str]:
        """Return the name and the checksum of the module's file; files it imports are not included."""
        self.load()
        file = getattr(sys.modules[self.text.partition(":")[0]], "__file__", None)
        content = Path(file).read_bytes() if file is not None else b""
        return {"name": self.text, "sha256": hashlib.sha256(content).hexdigest()}


def named(option: str, text: str) -> Named:
    """Name an object as module:name; the current folder is searched too, as for `python -m`."""
    return Named(option, text, str(Path.cwd()))
