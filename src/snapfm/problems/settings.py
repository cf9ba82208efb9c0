"""The settings of a problem's builder, read from its signature: names, defaults, and a check at the door."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from snapfm.errors import SettingError, UnknownName


def default_settings(builder: Callable[..., Any]) -> dict[str, Any]:
    """List what a builder takes, with the values it uses when a setting is left out."""
    return {name: parameter.default for name, parameter in inspect.signature(builder).parameters.items()}


def check_settings(problem: str, builder: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Refuse settings a builder does not have, and values of a type it cannot use."""
    known, hints = default_settings(builder), get_type_hints(builder)
    for name, value in settings.items():
        if name not in known:
            raise UnknownName(
                f"problem '{problem}' expects settings among {list(known)}; got {name!r}. Use one of these names."
            )
        if not _fits(hints[name], value):
            raise SettingError(
                f"problem '{problem}' expects {name} to be {_words(hints[name])}; got {value!r}. "
                f"Give such a value, or leave it out for {known[name]!r}."
            )


def _fits(hint: Any, value: object) -> bool:
    """Tell whether a value is of a hinted type; names of variants are left to the builder, which lists them."""
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(part, value) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return isinstance(value, str)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and not (hint is int and isinstance(value, bool))


def _words(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(_words, get_args(hint)))
    if get_origin(hint) is Literal:
        return f"one of {list(get_args(hint))}"
    return {int: "a whole number", float: "a number", bool: "true or false", NoneType: "none"}[hint]
