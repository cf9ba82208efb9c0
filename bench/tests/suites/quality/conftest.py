"""The shipped models of these tests: one, named toy, that leads every state to zero."""

from __future__ import annotations

import pytest
from bench.tests.suites.quality.toys import Still

from snapfm_bench.suites.quality import cell


@pytest.fixture
def toy_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell, "shipped_names", lambda: ["toy"])
    monkeypatch.setattr(cell, "shipped", lambda name: Still())
