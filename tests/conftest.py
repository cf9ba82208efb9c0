"""The order of the tests, for two workers of pytest-xdist that get one half each (`--dist worksteal`).

Compiling the loops of Newton's method takes the longest of all kernels, and one worker would wait for the other (`make test`
compiles them ahead). So the second half begins with packages that do not iterate: when it comes to those that do, the first
worker has left the machine code in the cache. Tests of one file stay together, and share what they prepare.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent
WITHOUT_LOOPS = ("flow", "data", "metrics", "structure")  # they lie around the middle
LAST = ("project",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    package = item.path.relative_to(ROOT).parts[0]
    if package in WITHOUT_LOOPS:
        return 1 + WITHOUT_LOOPS.index(package)
    return 1 + len(WITHOUT_LOOPS) if package in LAST or package.endswith(".py") else 0
