"""Every script of the gallery runs, all its samples are certified, and it draws its picture."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="pictures need snapfm[plot], which is not installed")

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "examples" / "gallery"
SCRIPTS = sorted(path for path in GALLERY.glob("[a-z]*.py") if path.name != "show.py")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_certifies_all_samples_and_draws_them(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path)])
    monkeypatch.syspath_prepend(GALLERY)
    names = runpy.run_path(str(script), run_name="__main__")
    result = names["result"]
    assert bool(result.converged.all())
    assert float(result.violation.max()) <= result.tolerance
    assert (
        float(names["project"].check(names["u_hat"], names.get("params")).violation.min()) > 1e-3
    )  # there was work to do
    assert f"{len(result.u)} of {len(result.u)} samples certified" in capsys.readouterr().out
    picture = tmp_path / f"{script.stem}.png"
    assert picture.read_bytes().startswith(PNG)


def test_the_page_shows_every_script():
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert len(SCRIPTS) >= 8
    for script in SCRIPTS:
        assert f"(gallery/{script.stem}.png)" in page
        assert f'--8<-- "examples/gallery/{script.name}"' in page
