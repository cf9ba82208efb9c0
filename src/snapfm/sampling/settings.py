"""What the settings of a sampler may be: the same words for all samplers."""

from __future__ import annotations

import math

from snapfm.errors import ParamsError
from snapfm.project.door import is_real, is_whole


def is_positive(value: object) -> bool:
    """Tell whether a setting is a positive, finite number."""
    return is_real(value) and 0.0 < value < math.inf


def is_count(value: object) -> bool:
    """Tell whether a setting is a whole number, at least one."""
    return is_whole(value) and value >= 1


def check_flag(argument: str, value: object) -> None:
    """Refuse what is neither True nor False; `argument` is how the caller wrote it."""
    if not isinstance(value, bool):
        raise ParamsError(f"{argument} expects True or False; got {value!r}. Leave it out for the default.")
