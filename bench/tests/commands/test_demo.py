"""The demonstration from the command line, on the shipped model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from snapfm.cli.app import app
from snapfm.errors import DataError, ProjectionFailed
from snapfm_bench.demo.record import Record
from snapfm_bench.demo.run import snippet
from snapfm_bench.record import load

COUNT, STEPS, SEED = 2, 2, 3


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    out = tmp_path_factory.mktemp("demo")
    flags = ["--out", str(out), "--count", str(COUNT), "--steps", str(STEPS), "--seed", str(SEED)]
    return CliRunner().invoke(app, ["demo", *flags]), out


def test_it_ends_well_with_the_path_of_the_page(finished: tuple[Result, Path]):
    result, out = finished
    assert result.exit_code == 0, result.output
    assert result.output.rstrip().endswith(str(out / "index.html"))
    assert sorted(path.name for path in out.iterdir()) == ["evidence.json", "hero.png", "index.html"]


def test_it_prints_laws_and_time_split(finished: tuple[Result, Path]):
    output = finished[0].output
    for word in ("heat", "Burgers", "initial", "mass", "flux", "before", "after", "velocity", "projection", "other"):
        assert word in output


def test_lawful_fields_obey_and_free_ones_do_not(finished: tuple[Result, Path]):
    record = load(Record, json.loads((finished[1] / "evidence.json").read_text()))
    assert [case.problem for case in record.cases] == ["heat-ic-mass", "burgers-ic-mass-flux"]
    rounding = torch.finfo(torch.float32).eps
    for case in record.cases:
        assert case.converged == record.count == COUNT
        for law in case.laws:
            assert law.free.largest > 1e-2
            assert law.lawful.largest <= case.shape[0] * rounding  # a sum over space of rounded values of order one
            assert law.lawful64.largest <= case.tolerance
    assert {law.name: law.rows for law in record.cases[1].laws} == {"initial": 101, "mass": 95, "flux": 495}


def test_the_snippet_of_the_page_gives_the_same_fields(finished: tuple[Result, Path]):
    from snapfm_bench.demo.record import collect

    record = load(Record, json.loads((finished[1] / "evidence.json").read_text()))
    names: dict[str, Any] = {}
    exec(snippet(record), names)
    u = names["out"].u.double().numpy()
    assert u.shape == (COUNT, *record.cases[0].shape)
    rounding = float(torch.finfo(torch.float32).eps)
    assert abs(u - collect(COUNT, STEPS, SEED).heat.fields["lawful"]).max() <= record.cases[0].shape[0] * rounding


def test_both_runs_of_all_problems_are_rehearsed_before_any_is_timed(monkeypatch: pytest.MonkeyPatch):
    """On a new installation the first run compiles; it must not be the one whose time is shown."""
    import snapfm
    from snapfm_bench.demo.record import collect

    made: list[tuple[str, bool]] = []
    real = snapfm.sample

    def spy(velocity: Any, project: Any, **settings: Any) -> snapfm.Samples:
        made.append(("with" if project else "without", settings["progress"] is not None))
        return real(velocity, project, **settings)

    monkeypatch.setattr(snapfm, "sample", spy)
    collect(1, STEPS, SEED, lambda *_: None)
    runs = ["without", "with"] * 2
    assert made == [(run, False) for run in runs] + [(run, True) for run in runs]


def test_a_failed_sample_ends_with_code_1_and_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from snapfm_bench.demo import run

    def fail(*args: object) -> None:
        raise ProjectionFailed("samples [1] failed; law 'mass': [advice]")

    monkeypatch.setattr(run, "collect", fail)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert "law 'mass': [advice]" in result.stderr
    assert not (tmp_path / "none").exists()


def test_wrong_calls_are_refused(tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(
        DataError, match=r"^snapfm demo --out expects a folder .*/file, which is a file\. Choose another folder\."
    ):
        CliRunner().invoke(app, ["demo", "--out", str(file)], catch_exceptions=False)
    assert CliRunner().invoke(app, ["demo", "--count", "0"]).exit_code == 2
