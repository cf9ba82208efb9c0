"""The Python of the tutorial and of the guides runs as it is printed, page by page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from snapfm import Status

DOCS = Path(__file__).parents[2] / "docs"


def run(page: str) -> dict[str, Any]:
    """Run all blocks of a page, one after the other, and return the names they leave."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    names: dict[str, Any] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for number, code in enumerate(blocks, start=1):
            exec(compile(code, f"{page}, block {number}", "exec"), names)
    return names


def test_the_tutorial(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("safetensors")
    names = run("tutorial.md")
    assert "initial: off by" in capsys.readouterr().out
    for law in ("initial", "mass"):
        assert float(names["before"].by_law[law].max()) > 1e-3
        assert float(names["after"].by_law[law].max()) < 1e-5
    assert names["result"].u.shape == (8, 100, 100)
    assert bool(names["result"].converged.all())
    assert float(names["loss"].detach()) < 0.5  # the network has learned: a velocity of zero has a loss near 1.5
    for drawn in (names["out"], names["waves"], names["better"]):
        assert bool(drawn.projection.converged.all())


def test_why_certificates():
    names = run("certificates.md")
    assert bool(names["result"].converged.all())
    assert bool((names["result"].second_order == 1).all())
    assert float(names["project"].check(names["lazy"], names["params"]).violation.max()) < 1e-12
    assert bool((names["away"] > names["result"].distance).all())


def test_choosing_a_sampler(capsys: pytest.CaptureFixture[str]):
    names = run("choosing-a-sampler.md")
    said = capsys.readouterr().out
    for line in ("Conditional 8 certified, 10 calls", "PCFM 8 certified, 10 calls", "ECI 8 certified, 50 calls",
                 "EndProjection 8 certified, 10 calls"):  # fmt: skip
        assert line in said
    for drawn in (names["few"], names["own"], names["late"]):
        assert bool(drawn.projection.converged.all())


def test_when_it_fails(capsys: pytest.CaptureFixture[str]):
    run("when-it-fails.md")
    said = capsys.readouterr().out
    assert "['CONVERGED', 'CONVERGED', 'CONVERGED']" in said
    assert "expects (b, 8, 6)" in said


def test_the_first_five_minutes(capsys: pytest.CaptureFixture[str]):
    names = run("first-five-minutes.md")
    assert bool(names["result"].converged.all())
    assert names["result"].u.shape == (3, 6, 4)
    assert "law" in capsys.readouterr().out


def test_every_status_has_its_section():
    page = (DOCS / "when-it-fails.md").read_text(encoding="utf-8")
    assert re.findall(r"^## ([A-Z_]+)$", page, re.MULTILINE) == [status.name for status in Status]
