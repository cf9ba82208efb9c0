"""Settings of a problem as options of a command: --set NAME=VALUE."""

from __future__ import annotations

import json
from typing import Any


def read_settings(command: str, texts: list[str]) -> dict[str, Any]:
    """Read NAME=VALUE pairs: numbers, true, false and none by what they look like, the rest as words."""
    from snapfm.errors import SettingError

    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise SettingError(f"snapfm {command} --set expects NAME=VALUE; got {text!r}. Write it as in --set nx=128.")
        try:
            found[name] = json.loads({"none": "null"}.get(value.lower(), value))
        except ValueError:
            found[name] = value
    return found
