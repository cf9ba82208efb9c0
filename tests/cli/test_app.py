"""The command line of the library, and packages that join it."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from snapfm.cli import app as module


def test_a_package_that_cannot_be_imported_is_told_and_takes_no_command_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    broken = EntryPoint("broken", "snapfm_no_such.commands:register", "snapfm.commands")
    joined: list[object] = []
    sound = SimpleNamespace(load=lambda: joined.append)
    monkeypatch.setattr(module, "entry_points", lambda group: [broken, sound])
    module._join_packages()
    assert joined == [module.app]
    assert " ".join(capsys.readouterr().err.split()) == (
        "snapfm expects the package snapfm_no_such, whose commands join it, to be importable; got: No module named "
        "'snapfm_no_such'. Install it again or remove it; all other commands work."
    )
