"""Lists that mix kinds of law pass a strict type checker, as users write them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import snapfm
from snapfm import Bounds, Equality, Inequality, Law, Oracle

PROGRAM = """
import torch

import snapfm
from snapfm import Bounds, Equality, Inequality, Law, Projector

mixed = [Equality("mass", lambda u, p: u.sum() - 1.0), Bounds(lower=0.0)]
Projector(mixed, (4, 5))
Projector([Inequality("decay", lambda u, p: u[1:] - u[:-1]), Bounds(lower=0.0)], (4,))


def more(laws: list[Law]) -> list[Law]:
    return [*laws, Bounds(upper=1.0)]


named: list[snapfm.Law] = [*mixed]
out = snapfm.sample(lambda u, tau: -u, Projector(more(named), (4, 5)), count=2, batch=1, seed=3)
total: torch.Tensor = out.u.sum()
"""


@pytest.mark.parametrize("kind", [Bounds, Equality, Inequality, Oracle])
def test_every_kind_is_a_law(kind: type):
    assert issubclass(kind, Law)


@pytest.mark.slow
def test_a_program_with_mixed_laws_passes_mypy_strict(tmp_path: Path):
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    call = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache")]
    place = {"MYPYPATH": str(Path(snapfm.__file__).parents[1])}
    found = subprocess.run([*call, "program.py"], capture_output=True, text=True, cwd=tmp_path, env=place, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
