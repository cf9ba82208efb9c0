"""The notebooks run as they are, cell by cell, and show what they are meant to show."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from scripts.notebooks import FOLDER, execute, load

pytest.importorskip("matplotlib")

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LONGEST = 30.0  # seconds of processor, kernels being compiled already
LARGEST = 600_000  # bytes of a file, pictures included


@pytest.fixture(autouse=True)
def random_numbers_of_its_own() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        yield


def kinds(notebook: dict[str, Any]) -> list[list[str]]:
    """Give what each code cell shows: streams, and the representations of its value."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [[kind for one in cell["outputs"] for kind in one.get("data", {"stream": 0})] for cell in cells]


def test_there_are_two():
    assert [path.name for path in NOTEBOOKS] == ["first_projection.ipynb", "own_model.ipynb"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_stored(path: Path):
    notebook = load(path)
    stored = kinds(notebook)
    began = time.process_time()
    execute(notebook, path.name)
    if time.process_time() - began > LONGEST:  # it may have compiled what was not compiled yet
        began = time.process_time()
        execute(notebook, path.name)
        assert time.process_time() - began <= LONGEST
    assert kinds(notebook) == stored
    shown = {kind for cell in stored for kind in cell}
    assert {"text/html", "image/png"} <= shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_knows_no_machine(path: Path):
    text = path.read_text(encoding="utf-8")
    assert len(text) <= LARGEST
    notebook = json.loads(text)
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")
    assert [cell["id"] for cell in notebook["cells"]] == [f"cell-{place}" for place in range(len(notebook["cells"]))]
    assert not any("/home/" in "".join(cell["source"]) or "/work/" in text for cell in notebook["cells"])
