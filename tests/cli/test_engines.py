"""--engine and the options of its workers: what they build and what they refuse, and that commands show them as options."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from snapfm.cli.app import app
from snapfm.cli.options import THIS_PROCESS, EngineOptions, with_engine
from snapfm.errors import SettingError, UnknownName
from snapfm.files.engines import Here, OnRay, Share


def test_engines_are_built_from_options() -> None:
    assert EngineOptions().build() == Here()
    assert EngineOptions(part="2/3").build() == Here(Share(2, 3))
    built = EngineOptions(engine="ray", workers=5, cpus=2.0, gpus=0.5, resource=["tpu=1", "fast=0.25"]).build()
    assert isinstance(built, OnRay)
    assert (built.workers, built.cpus, built.gpus, built.threads) == (5, 2.0, 0.5, 2)
    assert built.resources == {"tpu": 1.0, "fast": 0.25}


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("moon", {}, r"--engine expects one of \['here', 'ray'\]; got 'moon'\."),
        ("here", {"workers": 3}, r"--workers, --cpus, --gpus and --resource expect --engine ray; got --engine here\."),
        ("here", {"gpus": 1.0}, r"expect --engine ray; got --engine here\. Leave them out, or add it"),
        ("ray", {"part": "1/2"}, r"--part expects --engine here; got --engine ray, which computes all parts\."),
        ("ray", {"resource": ["tpu"]}, r"--resource expects NAME=AMOUNT; got 'tpu'\. Write it as in --resource tpu=1"),
        ("ray", {"resource": ["tpu=many"]}, r"--resource expects NAME=AMOUNT; got 'tpu=many'\."),
    ],
)
def test_options_that_do_not_fit_are_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises((SettingError, UnknownName), match=words):
        EngineOptions(engine=name, **options).build()


def test_a_command_is_called_with_what_its_options_say() -> None:
    told: list[tuple[str, int, EngineOptions]] = []

    @with_engine
    def work(name: str, engine: EngineOptions = THIS_PROCESS, count: Annotated[int, typer.Option()] = 3) -> None:
        """Work."""
        told.append((name, count, engine))

    one = typer.Typer()
    one.command()(work)
    for words in (["a"], ["b", "--count", "4", "--engine", "ray", "--workers", "2", "--resource", "x=1"]):
        assert CliRunner().invoke(one, words, catch_exceptions=False).exit_code == 0
    assert told == [
        ("a", 3, EngineOptions()),
        ("b", 4, EngineOptions(engine="ray", workers=2, resource=["x=1"])),
    ]


@pytest.mark.parametrize("command", ["data", "sample", "project", "quality", "bench"])
def test_commands_of_long_runs_have_the_same_options(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    assert all(option in shown for option in ("--part", "--engine", "--workers", "--cpus", "--gpus", "--resource"))
