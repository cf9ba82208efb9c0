"""A model and laws of one's own, named on the command line: the library's samples, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import snapfm
from snapfm.cli.app import app
from snapfm.files import load

pytest.importorskip("zarr")
xarray = pytest.importorskip("xarray")

MODULE = """
import torch
from snapfm import Equality

laws = [Equality("energy", lambda u, p: (u ** 2).sum() - p["level"]), Equality("end", lambda u, p: u[-1] - p["end"])]

def velocity(u, tau):
    return 1.0 - u

def params(seed, start, count):
    return {"level": 2.0 + torch.arange(start, start + count).double() / 100, "end": torch.full((1, 4), 0.25).double()}

shared = {"level": torch.tensor([2.0]), "end": torch.full((1, 4), 0.25)}
wrong = {"level": 2.0}
"""
OPTIONS = ["--velocity", "my_own_model:velocity", "--laws", "my_own_model:laws", "--shape", "5,4", "--count", "7"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_model.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # forgotten after the test


def run(*more: str) -> str:
    answer = CliRunner().invoke(app, ["sample", *OPTIONS, "--out", "a.zarr", *more], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_the_file_holds_what_the_library_draws() -> None:
    told = run("--params", "my_own_model:params", "--batch", "3", "--steps", "4", "--seed", "2", "--dims", "x,t")
    assert "7 of 7 converged" in told
    import my_own_model as mine  # type: ignore[import-not-found]

    params = mine.params(2, 0, 7)
    project = snapfm.Projector(mine.laws, (5, 4), params)
    drawn = snapfm.sample(
        mine.velocity, project, params, 7, 4, torch.Generator().manual_seed(2), dtype=torch.float64
    )  # fmt: skip
    assert torch.equal(load("a.zarr")[0], drawn.u)
    with xarray.open_zarr("a.zarr") as data:
        assert data.u.dims == ("sample", "x", "t")
        assert data.level.values.tolist() == params["level"].tolist()
        assert data["end"].shape == (7, 4)
        assert float(data.violation.max()) < 1e-8
        assert data.attrs["recipe"]["velocity"]["name"] == "my_own_model:velocity"


def test_shared_params_and_a_summary_for_scripts() -> None:
    told = json.loads(run("--params", "my_own_model:shared", "--json", "--steps", "2"))
    assert told["statuses"] == {"CONVERGED": 7}
    assert told["shape"] == [5, 4]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["sample", "--count", "3"], "expects a PROBLEM, or --velocity, --laws and --shape of your own model"),
        (["sample", "burgers-ic", *OPTIONS], "--velocity expects --laws and --shape, and no PROBLEM"),
        (["sample", "--velocity", "a:b", "--count", "3"], "--velocity expects --laws and --shape, and no PROBLEM"),
        (["sample", *OPTIONS, "--shape", "5xx"], "--shape expects whole numbers, as in 64,64; got '5xx'"),
        (["sample", *OPTIONS, "--dims", "x"], "--dims expects 2 names for fields of shape (5, 4); got ['x']"),
        (["sample", *OPTIONS, "--velocity", "my_own_model:shared"], "--velocity expects a function or module of torch"),
        (
            ["sample", *OPTIONS, "--params", "my_own_model:wrong"],
            "--params expects a dict of tensors with a leading axis",
        ),
    ],
)
def test_what_does_not_fit_is_refused(options: list[str], words: str) -> None:
    if "my_own_model:shared" in options:
        options = [*options, "--params", "my_own_model:shared"]
    answer = CliRunner().invoke(app, [*options, "--out", "a.zarr"])
    assert answer.exit_code != 0
    assert words in str(answer.exception)
