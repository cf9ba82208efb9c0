"""Planted methods are imported by the runner's processes: their folder is put on everybody's path."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True, scope="module")
def toys_are_found() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", HERE, prepend=os.pathsep)  # the same snapfm as here, wherever that is from
        patch.syspath_prepend(HERE)
        yield
    sys.modules.pop("toys", None)
