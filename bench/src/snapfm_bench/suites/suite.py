"""Suites as small TOML files: found by name or path, read into dataclasses by their type hints, checked before anything is run.

A field `tuple[Entry, ...]` of a dataclass is read from tables [field.NAME], one entry each, whose title is its name unless given.
`at_least(…)` and `positive` in an annotation are checked wherever a value is given. Imports errors only.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from snapfm.errors import ParamsError, UnknownName
from snapfm.text import meant

_ENDING = ".toml"

T = TypeVar("T")


def at_least(least: int) -> Callable[[str, str, Any], None]:
    """Make a check for a whole number that is not smaller."""

    def check(what: str, key: str, value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ParamsError(
                f"{what} expects {key} to be a whole number >= {least}; got {value!r}. Ask for at least {least}."
            )

    return check


def positive(what: str, key: str, value: Any) -> None:
    """Check for a positive number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ParamsError(f"{what} expects {key} to be a positive number; got {value!r}. Give one.")


Seconds = Annotated[float, positive]


class SuiteRegistry(Generic[T]):
    """The suites shipped with a package, and those in files elsewhere; `check` refuses what cannot run."""

    def __init__(self, package: str, command: str, kind: type[T], check: Callable[[str, T], None]) -> None:
        self._kind, self._check, self._command = kind, check, command
        self._folder = resources.files(package) / "suites"
        self._place = f"{package.replace('.', '/')}/suites"

    def names(self) -> list[str]:
        """List the shipped suites."""
        return sorted(
            entry.name.removesuffix(_ENDING) for entry in self._folder.iterdir() if entry.name.endswith(_ENDING)
        )

    def load(self, name: str, changes: Mapping[str, Any] | None = None) -> T:
        """Read a shipped suite, or one by the path of its file, which may extend a shipped one; `changes` replace keys."""
        name, raw = self._find(name)
        what = f"suite '{name}'"
        suite = built(self._kind, what, {"name": name, "title": name, **raw, **(changes or {})})
        self._check(what, suite)
        return suite

    def _find(self, name: str) -> tuple[str, dict[str, Any]]:
        if name in self.names():
            return name, self._shipped(name)
        file = Path(name)
        if not file.is_file():
            raise UnknownName(
                f"{self._command} SUITE expects one of {self.names()} or the path of a TOML file; got {name!r}, which is "
                f"neither. {meant(name, self.names())}Write a file like those in {self._place}."
            )
        try:
            raw = _parsed(file.stem, file.read_text(encoding="utf-8"))
        except UnicodeDecodeError as cause:
            raise ParamsError(
                f"suite '{file.stem}' is expected to be TOML; got a file that is no text. Name another."
            ) from cause
        base = raw.pop("extends", None)
        if base is None:
            return file.stem, raw
        if base not in self.names():
            raise UnknownName(
                f"suite '{file.stem}' expects extends to be one of {self.names()}; got {base!r}. Name a shipped suite."
            )
        return base, {**self._shipped(base), **raw}

    def _shipped(self, name: str) -> dict[str, Any]:
        return _parsed(name, (self._folder / f"{name}{_ENDING}").read_text(encoding="utf-8"))


def built(kind: type[T], what: str, raw: Mapping[str, Any]) -> T:
    """Build a dataclass from the keys of a table, neither too many nor too few, each of its kind."""
    known, hints = inspect.signature(kind).parameters, get_type_hints(kind, include_extras=True)
    given = {key: _given(what, key, hints[key], value) if key in hints else value for key, value in raw.items()}
    for key, hint in hints.items():
        if key not in given and _entry(hint) is not None:
            given[key] = _given(what, key, hint, None)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ParamsError(f"{what} expects keys among {sorted(known)}; got {unknown[0]!r}. Use one of these names.")
    missing = [key for key, one in known.items() if one.default is inspect.Parameter.empty and key not in given]
    if missing:
        raise ParamsError(f"{what} expects a value for {missing[0]!r}; got none. Add a line `{missing[0]} = …`.")
    return kind(**given)


def settings(option: str, given: Sequence[str]) -> dict[str, Any]:
    """Read settings KEY=VALUE of a command line; a value that is no TOML is a string."""
    found: dict[str, Any] = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not key or not equals:
            raise ParamsError(f"{option} expects KEY=VALUE; got {one!r}. Write {option} tolerance=1e-6.")
        try:
            found[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[key] = value
    return found


def check_one_of(what: str, key: str, known: Sequence[str], value: Any) -> None:
    """Refuse a name that is not known."""
    if value not in known:
        raise UnknownName(f"{what} expects {key} to be one of {list(known)}; got {value!r}. Choose one of these.")


def _given(what: str, key: str, hint: Any, value: Any) -> Any:
    """Check and convert one value of a table."""
    entry = _entry(hint)
    if entry is not None:
        if not isinstance(value, dict) or not value:
            raise ParamsError(f"{what} expects a table [{key}.NAME] for each of its {key}; got none. Add one.")
        return tuple(_named(entry, f"{what} {key[:-1]} '{name}'", key, name, one) for name, one in value.items())
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise ParamsError(f"{what} expects {key} to be a list; got {value!r}. Write {key} = [{value!r}].")
        return tuple(value)
    for choice in (hint, *get_args(hint)):
        for check in getattr(choice, "__metadata__", ()):
            check(what, key, value)
    return value


def _named(kind: type[T], what: str, key: str, name: str, raw: Any) -> T:
    if not isinstance(raw, dict):
        raise ParamsError(f"{what} expects a table of settings; got {raw!r}. Write it as [{key}.{name}].")
    return built(kind, what, {"name": name, "title": name, **raw})


def _entry(hint: Any) -> type[Any] | None:
    """Return the dataclass of a field that is a tuple of them."""
    inner = get_args(hint)
    return inner[0] if get_origin(hint) is tuple and is_dataclass(inner[0]) and isinstance(inner[0], type) else None


def _parsed(name: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as cause:
        raise ParamsError(f"suite '{name}' is expected to be TOML; got a file with {cause}. Mend that line.") from cause
