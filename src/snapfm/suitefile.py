"""Suites as small TOML files: found by name or path, read into dataclasses, refused in full sentences.

Imports errors only: what a suite is about, problems, samplers or methods, is the caller's.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from snapfm.errors import ParamsError, UnknownName

_ENDING = ".toml"

T = TypeVar("T")


class Shelf:
    """The suites shipped with a part of the package, and those in files beside them."""

    def __init__(self, package: str, command: str) -> None:
        self._folder, self._command = resources.files(package) / "suites", command
        self._place = f"{package.replace('.', '/')}/suites"

    def names(self) -> list[str]:
        """List the shipped suites."""
        return sorted(
            entry.name.removesuffix(_ENDING) for entry in self._folder.iterdir() if entry.name.endswith(_ENDING)
        )

    def find(self, name: str) -> tuple[str, dict[str, Any]]:
        """Give the name and the tables of a shipped suite, or of any other by the path of its file."""
        if name in self.names():
            return name, self.shipped(name)
        file = Path(name)
        if not file.is_file():
            raise UnknownName(
                f"{self._command} SUITE expects one of {self.names()} or the path of a TOML file; got {name!r}, which is "
                f"neither. Write a file like those in {self._place}."
            )
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as cause:
            raise ParamsError(
                f"suite '{file.stem}' is expected to be TOML; got a file that is no text. Name another."
            ) from cause
        return file.stem, _parsed(file.stem, text)

    def shipped(self, name: str) -> dict[str, Any]:
        """Give the tables of a shipped suite."""
        return _parsed(name, (self._folder / f"{name}{_ENDING}").read_text(encoding="utf-8"))


def tables(what: str, raw: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Give the named tables under a key; at least one."""
    found = raw.get(key)
    if not isinstance(found, dict) or not found:
        raise ParamsError(f"{what} expects a table [{key}.NAME] for each of its {key}; got none. Add one.")
    return found


def named(kind: type[T], what: str, key: str, name: str, raw: Any) -> T:
    """Build the entry `[key.name]`; its title is its name unless given."""
    if not isinstance(raw, dict):
        raise ParamsError(f"{what} expects a table of settings; got {raw!r}. Write it as [{key}.{name}].")
    return built(kind, what, {"name": name, "title": name, **raw})


def built(kind: type[T], what: str, raw: Mapping[str, Any]) -> T:
    """Build a dataclass of the keys of a table, neither too many nor too few."""
    known = inspect.signature(kind).parameters
    unknown = sorted(set(raw) - set(known))
    if unknown:
        raise ParamsError(f"{what} expects keys among {sorted(known)}; got {unknown[0]!r}. Use one of these names.")
    missing = [
        key for key, parameter in known.items() if parameter.default is inspect.Parameter.empty and key not in raw
    ]
    if missing:
        raise ParamsError(f"{what} expects a value for {missing[0]!r}; got none. Add a line `{missing[0]} = …`.")
    return kind(**raw)


def check_whole(what: str, key: str, value: Any, least: int) -> None:
    """Refuse what is no whole number, or too small a one."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ParamsError(
            f"{what} expects {key} to be a whole number >= {least}; got {value!r}. Ask for at least {least}."
        )


def check_positive(what: str, key: str, value: Any) -> None:
    """Refuse what is no positive number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ParamsError(f"{what} expects {key} to be a positive number; got {value!r}. Give one.")


def _parsed(name: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as cause:
        raise ParamsError(f"suite '{name}' is expected to be TOML; got a file with {cause}. Mend that line.") from cause
