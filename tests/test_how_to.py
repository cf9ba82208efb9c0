"""The snippets of docs/how-to.md run as they are printed; those on models in front are in tests/adapters/test_how_to.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import snapfm
from snapfm.errors import ProjectionFailed

PAGE = Path(__file__).parents[1] / "docs" / "how-to.md"
ELSEWHERE = {"Put your model in front"}  # its snippets follow each other, and have a test of their own


def snippets() -> dict[str, str]:
    """Give the Python of every chapter that has any, by heading."""
    chapters = [part.partition("\n") for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]]
    found = {head: "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)) for head, _, text in chapters}
    return {head: code for head, code in found.items() if code}


SNIPPETS = snippets()


def run(names: dict[str, Any], *headings: str) -> dict[str, Any]:
    for heading in headings:
        exec(compile(SNIPPETS[heading], f"how-to.md: {heading}", "exec"), names)
    return names


def heat(count: int) -> dict[str, Any]:
    """A small problem with as many fields to project."""
    problem = snapfm.problem("heat-ic-mass", nx=6, nt=5)
    generator = torch.Generator().manual_seed(0)
    params = problem.params(count, generator)
    project = snapfm.Projector(problem.laws, problem.grid.shape, params)
    u_hat = torch.randn(count, 6, 5, generator=generator)
    return {"problem": problem, "params": params, "project": project, "u_hat": u_hat}


def test_every_snippet_is_run_by_a_test():
    mine = {
        "Write a law",
        "Bring your own derivatives",
        "See what was detected",
        "Find out what failed",
        "Ask for the nearest of several answers",
        "Draw pictures",
        "Simulate data",
        "Choose a model, or train one",
        "Draw many samples to a file",
        "Fields with variables of different units",
    }
    assert set(SNIPPETS) == mine | {"Score samples", "Draw from the model's distribution given the laws"} | ELSEWHERE


def test_a_law_and_what_was_understood(capsys: pytest.CaptureFixture[str]):
    names = run({}, "Write a law", "See what was detected")
    assert "101×101 field: 10 201 unknowns, 9 900 rows" in capsys.readouterr().out
    assert names["values"].shape == (4, names["structure"].nnz)


def test_a_law_with_its_own_derivatives():
    names = run({}, "Bring your own derivatives")
    assert names["flat"].converged.all()
    assert float(names["flat"].violation.max()) <= 1e-8
    assert (names["flat"].second_order == 1).all()


def test_several_starts():
    project = snapfm.Projector([snapfm.Equality("roots", lambda u, p: u**3 - 2.0 * u)], shape=(5,))
    u_hat = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    names = run({"project": project, "u_hat": u_hat, "params": None}, "Ask for the nearest of several answers")
    assert bool((names["again"].distance <= project(u_hat).distance * (1.0 + 1e-9)).all())


def test_variables_of_different_units_move_by_as_much_as_they_vary():
    names = run({}, "Fields with variables of different units")
    moved = (names["result"].u - names["fields"][:8]).abs().amax((0, 2, 3)) / torch.tensor([1.0, 2.5e5])
    assert float(moved.max() / moved.min()) < 3.0
    assert names["result"].tolerance == {"mass": 1e-6, "energy": 10.0}


def test_what_failed_is_left_out_of_the_projected_fields():
    names = heat(3)
    names["u_hat"][1, 2, 3] = torch.nan
    with pytest.raises(ProjectionFailed, match="sample 1: NONFINITE"):
        run(names, "Find out what failed")
    lawful, kept = names["lawful"], {"u0": names["params"]["u0"][[0, 2]]}
    assert torch.equal(lawful, names["result"].u[[0, 2]])
    assert float(names["project"].check(lawful.double(), kept).violation.max()) <= 1e-5  # not the fields that came in
    assert float(names["project"].check(names["u_hat"][[0, 2]], kept).violation.min()) > 0.1


def test_pictures_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    names = heat(3)
    names["result"] = names["project"](names["u_hat"], names["params"])
    run(names, "Draw pictures")
    assert (tmp_path / "fields.png").read_bytes().startswith(b"\x89PNG")


def test_data_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("xarray")
    from snapfm_bench.files import DataRecipe, write

    monkeypatch.chdir(tmp_path)
    write(DataRecipe("heat-ic-mass", 3, settings={"nx": 6, "nt": 5}), "heat.zarr")
    names = run({}, "Simulate data")
    assert names["u"].shape == names["data"]["u"].shape == (3, 6, 5)
    assert "u0" in names["params"]


def test_models_are_found_by_name():
    names = run({}, "Choose a model, or train one")
    assert names["default_model"]("heat") == "heat-plain"
    assert names["velocity"].settings.shape == (100, 100)


def test_samples_are_drawn_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("zarr")
    monkeypatch.chdir(tmp_path)
    heading, asked = "Draw many samples to a file", "count=64, steps=10"
    assert SNIPPETS[heading].count(asked) == 1
    monkeypatch.setitem(SNIPPETS, heading, SNIPPETS[heading].replace(asked, "count=2, steps=1"))
    found = run({}, heading)["found"]
    assert found.statuses == {"CONVERGED": 2}
    assert found.violation <= 1e-8
    assert set(found.seconds) == {"velocity", "projection"}


def test_samples_are_scored():
    names = heat(4)
    names["out"] = snapfm.sample(lambda u, tau: -u, names["project"], names["params"], count=4, steps=2)
    found = run(names, "Score samples")["found"]
    assert [one.law for one in found.laws] == ["initial", "mass"]
    assert found.moments.mmse.low <= found.moments.mmse.value <= found.moments.mmse.high
    assert found.texture.alike is False


def test_samples_are_drawn_given_the_laws():
    names = heat(16)
    names |= {"fields": names["u_hat"], "velocity": lambda u, tau: -u}
    out = run(names, "Draw from the model's distribution given the laws")["out"]
    assert out.u.shape == (16, 6, 5)
    assert bool(out.projection.converged.all())
    assert out.weights is None
    assert out.effective == 16
