"""Two workers of pytest-xdist: a core for each, and the order of the tests, of which each gets one half (`--dist worksteal`).

Threads of torch and of numpy's BLAS spin while they wait for each other. Where workers share the cores, some tests took many
times as long; so a worker has one of each. What threads change, tests ask for by number. Threads of the kernels are as for users.

Compiling the loops of Newton's method takes the longest of all kernels, and one worker would wait for the other (`make test`
compiles them ahead). So the second half begins with packages that do not iterate: when it comes to those that do, the first
worker has left the machine code in the cache. Tests of one file stay together, and share what they prepare.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy reads it when it is imported
import torch

torch.set_num_threads(1)  # not in a fixture: modules of tests prepare, too

ROOT = Path(__file__).parent
WITHOUT_LOOPS = ("flow", "files", "metrics", "compile", "reduce")  # they lie around the middle
LAST = ("solve", "project")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    parts = item.path.relative_to(ROOT).parts
    package = parts[parts.index("tests") + 1]
    if package in WITHOUT_LOOPS:
        return 1 + WITHOUT_LOOPS.index(package)
    return 1 + len(WITHOUT_LOOPS) if package in LAST or package.endswith(".py") else 0
