"""The ten lines of README.md run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_ten_lines_give_certified_fields(capsys: pytest.CaptureFixture[str]):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert "100×100 field: 10 000 unknowns" in capsys.readouterr().out
    assert bool(names["result"].converged.all())
    assert bool(names["out"].projection.converged.all())
    assert names["out"].u.shape == (32, 100, 100)
