"""The shipped models of these tests: one, named toy, that leads every state to zero."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.evidence.quality.toys import Still

from snapfm.evidence.quality import cell


@pytest.fixture
def toy_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell, "shipped_names", lambda: ["toy"])
    monkeypatch.setattr(cell, "shipped", lambda name: Still())


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """torch's threads spin, which crawls where others work too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
