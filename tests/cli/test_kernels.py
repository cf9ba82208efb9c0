"""`snapfm kernels` compiles the table in several processes; the tour says what has to be in the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from snapfm.cli.app import app
from snapfm.errors import SnapfmError
from snapfm.kernels.numba import ahead
from snapfm.kernels.numba import cache as kept

ROOT = Path(__file__).parents[2]


def test_it_says_how_many_kernels_are_where():
    answer = CliRunner().invoke(app, ["kernels", "--workers", "1"], catch_exceptions=False)
    assert answer.stdout.startswith(f"{len(ahead.listed())} kernels in {kept.shipped() or kept.own()}")


def test_the_table_is_what_projections_call():
    """Whoever changes what kernels take, or calls a new one, writes the table anew."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.kernels.tour", "--print"], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    called, table = ran.stdout.splitlines(), ahead.TABLE.read_text(encoding="utf-8").splitlines()
    assert called == table, "write the table anew: python -m tests.kernels.tour"


def test_the_table_is_compiled_without_torch_and_the_command_line():
    """A build has numba, numpy and scipy."""
    code = (
        "import sys\n"
        "for name in ('torch', 'typer', 'rich', 'snapfm_bench'): sys.modules[name] = None\n"
        "from snapfm.kernels.numba import ahead\n"
        "for line in ahead.listed(): kernel, arguments = ahead.parsed(line); kernel.compile(arguments)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_a_line_that_cannot_be_compiled_ends_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ahead, "listed", lambda: ["lanes.no_such_kernel(int64)"])
    with pytest.raises(AttributeError, match="no_such_kernel"):
        ahead.compile_all(1)


def test_without_a_folder_there_is_nothing_to_keep(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept, "own", lambda: None)
    monkeypatch.setattr(kept, "shipped", lambda: None)
    with pytest.raises(SnapfmError, match="expects a cache folder that it may write; found none"):
        CliRunner().invoke(app, ["kernels"], catch_exceptions=False)
