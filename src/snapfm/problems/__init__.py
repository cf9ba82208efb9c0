"""The benchmark problems by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snapfm.errors import UnknownName
from snapfm.problems.base import Problem
from snapfm.problems.heat import heat_ic_mass

_PROBLEMS: dict[str, Callable[..., Problem]] = {
    "heat-ic-mass": heat_ic_mass,
}


def names() -> list[str]:
    """List the names `problem` accepts."""
    return sorted(_PROBLEMS)


def problem(name: str, **settings: Any) -> Problem:
    """Build a benchmark problem by name; settings (grid sizes, variants) are those of its builder."""
    if name not in _PROBLEMS:
        raise UnknownName(
            f"snapfm.problem(name) expects one of {names()}; got {name!r}. `snapfm problems` lists them with sizes."
        )
    return _PROBLEMS[name](**settings)


__all__ = ["Problem", "names", "problem"]
