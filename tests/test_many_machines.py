"""docs/many-machines.md: its commands run as they are printed, those of Ray on a local cluster."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from snapfm.cli.app import app

pytest.importorskip("zarr")
pytest.importorskip("h5py")

PAGE = (Path(__file__).parents[1] / "docs" / "many-machines.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[list[str]]:
    return [shlex.split(line, comments=True) for text in blocks("sh") for line in text.splitlines()]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (module,) = (text for text in blocks("python") if text.startswith("# mine.py"))
    (tmp_path / "mine.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def run(words: list[str]) -> None:
    assert words[0] == "snapfm"
    answer = CliRunner().invoke(app, words[1:], catch_exceptions=False)
    assert answer.exit_code == 0, (words, answer.output)


def test_commands_of_one_machine(here: Path) -> None:
    asked = [words for words in commands() if "ray" not in words]
    assert len(asked) == 7
    for words in asked:
        run(words)
    assert tree(here / "heat.zarr") == tree(here / "parts.zarr")
    assert sorted(entry.name for entry in here.iterdir() if entry.suffix in (".zarr", ".hdf5")) == [
        "heat.zarr", "lawful.hdf5", "lawful.zarr", "own.zarr", "parts.zarr",
    ]  # fmt: skip
    (code,) = (text for text in blocks("python") if "engine=" in text)
    names: dict[str, Any] = {}
    exec(compile(code, "many-machines.md", "exec"), names)
    assert (here / "half.zarr.part").is_dir()


def test_commands_of_a_cluster(here: Path) -> None:
    ray = pytest.importorskip("ray", reason="a Ray cluster needs snapfm[ray], which is not installed")
    (words,) = (words for words in commands() if "ray" in words)
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        run(words)
    finally:
        ray.shutdown()
    run(commands()[0])
    assert tree(here / "ray.zarr") == tree(here / "heat.zarr")
    assert json.loads((here / "progress.jsonl").read_text().splitlines()[-1])["done"] == 200
