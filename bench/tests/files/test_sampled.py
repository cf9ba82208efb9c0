"""Files of samples: what they hold, that stops change no bit, what is refused, and what becomes of failed samples."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bench.tests.files.tiny import GRID, PROBLEM, recipe, write_model

import snapfm
from snapfm.errors import CheckpointError, DataError, ProjectionFailed, Status, UnknownName
from snapfm.files import generate, load
from snapfm.metrics.scores import constraint_errors
from snapfm_bench.files import DataRecipe, SampleRecipe, write
from snapfm_bench.files import recipe as recipe_module
from snapfm_bench.files.sampled import Sampled
from snapfm_bench.flow import load_checkpoint, shipped_names
from snapfm_bench.problems import Problem

xarray = pytest.importorskip("xarray")
EPS32 = torch.finfo(torch.float32).eps


class Stopped(Exception):
    pass


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def arrays(file: Path) -> dict[str, Any]:
    with xarray.open_zarr(file) as data:
        return {str(name): data[name].values for name in data.variables}


def leave(recipe: SampleRecipe, out: Path, when: float = 0.0) -> None:
    """Draw until so many samples are told of, and stop."""

    def stop(done: float) -> None:
        if done >= when:
            raise Stopped

    with pytest.raises(Stopped):
        generate(recipe, out, stop)


# What a file holds.


def test_it_holds_what_the_library_draws_with_one_generator(whole: Path, model: Path) -> None:
    problem = snapfm.problem(PROBLEM, **GRID)
    generator = torch.Generator().manual_seed(3)
    params = problem.params(23, generator)
    project = snapfm.Projector(problem.laws, problem.grid.shape, params)
    drawn = snapfm.sample(load_checkpoint(model).network, project, params, 23, 3, generator, dtype=torch.float64)
    u, stored = load(whole)
    assert stored.keys() == params.keys() == {"u0", "alpha"}
    assert all(torch.equal(stored[name], params[name]) for name in params)
    # The network computes in float32 and rounds by the size of its batch, 23 here and 5 in the file.
    assert float((u - drawn.u).abs().max()) < 100 * EPS32 * float(drawn.u.abs().max())
    assert len({field.numpy().tobytes() for field in u}) == 23


def test_the_bits_of_a_sample_do_not_depend_on_the_count(whole: Path, model: Path, tmp_path: Path) -> None:
    few = arrays(generate(recipe(model, count=12), tmp_path / "few.zarr").written.path)
    all_of_them = arrays(whole)
    for name in few.keys() - {"x", "t"}:
        assert few[name].tobytes() == all_of_them[name][:12].tobytes(), name


def test_fewer_samples_than_a_batch_are_a_batch_of_their_own(model: Path, tmp_path: Path) -> None:
    found = generate(recipe(model, count=2), tmp_path / "a.zarr")
    assert found.asked["batch"] == 2
    assert found.converged == 2


def test_fields_obey_the_laws_with_the_params_beside_them(whole: Path) -> None:
    u, params = load(whole)
    errors = constraint_errors(snapfm.problem(PROBLEM, **GRID).laws, u, params)
    assert max(error.largest for error in errors) < 1e-8
    assert arrays(whole)["violation"].max() < 1e-8


def test_float32_fields_are_rounded_and_params_are_not(model: Path, tmp_path: Path) -> None:
    file = generate(recipe(model, dtype="float32", count=5), tmp_path / "a.zarr").written.path
    found = arrays(file)
    assert (found["u"].dtype, found["u0"].dtype, found["alpha"].dtype) == (np.float32, np.float64, np.float64)
    assert np.abs(found["u"][:, :, 0] - found["u0"]).max() <= EPS32 * np.abs(found["u0"]).max()


def test_xarray_reads_certificates_and_provenance(whole: Path, model: Path) -> None:
    with xarray.open_zarr(whole) as data:
        assert data.u.dims == ("sample", "x", "t")
        assert data.u0.dims == ("sample", "x")
        certificate = ("status", "violation", "stationarity", "iterations", "distance")
        for name in (*certificate, "alpha", "seed"):
            assert data[name].dims == ("sample",)
            assert data[name].attrs["long_name"]
            assert bool(np.isfinite(data[name].values).all())
        assert data.status.dtype == np.int8
        assert data.status.attrs["flag_meanings"].split()[Status.NONFINITE] == "nonfinite"
        assert data.sample.values.tolist() == list(range(23))
        weights = json.loads((model / "model.json").read_text())["weights"]["sha256"]
        about = {key: data.attrs[key] for key in ("problem", "laws", "model", "sampler", "steps", "tolerance", "seed")}
        assert about == {
            "problem": PROBLEM, "laws": ["initial", "mass", "periodic", "pde"],
            "model": {"name": "tiny", "sha256": weights, "training": "unknown"}, "steps": 3, "tolerance": 1e-8, "seed": 3,
            "sampler": {
                "name": "PCFM", "warm": True, "early_tolerance": None, "project_from": 0.0, "relaxation": None
            },
        }  # fmt: skip
        assert data.attrs["settings"]["nx"] == 9
        assert data.attrs["settings"]["scheme"] == "crank-nicolson"  # left at its default, and told all the same
        assert data.attrs["versions"]["torch"] == torch.__version__
        assert data.attrs["complete"]
        assert data.attrs["recipe"]["threads"] == 1
    assert str(model) not in (whole / "zarr.json").read_text()


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_models_draw_for_their_equation(name: str, tmp_path: Path) -> None:
    problems = {"heat": "heat-ic-mass", "burgers": "burgers-ic", "navier-stokes": "navier-stokes-ic-mass"}
    equation, _, kind = name.rpartition("-")
    if equation not in problems:
        pytest.skip("a model beside the ones each equation has")
    model = None if kind == "plain" else name  # the plain one is the default
    found = generate(SampleRecipe(problems[equation], 2, model, steps=1), tmp_path / "a.zarr")
    assert found.statuses == {"CONVERGED": 2}
    with xarray.open_zarr(found.written.path) as data:
        assert data.attrs["model"]["name"] == name
        assert data.attrs["model"]["training"] == ("plain" if kind == "plain" else "law-aware")


# Stops.


@pytest.mark.parametrize("when", [0, 5, 12.5, 20, 23])
def test_a_stopped_run_goes_on_to_the_same_bits(when: float, whole: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.zarr"
    leave(recipe(model), out, when)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.zarr.part"]
    told: list[float] = []
    again = generate(recipe(model), out, told.append)
    assert again.written.found == told[0] <= when
    assert told == sorted(told)
    assert told[-1] == 23
    assert tree(out) == tree(whole)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.zarr"]


def test_a_finished_file_is_left_as_it_is(whole: Path, model: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in whole.rglob("*")}
    again = generate(recipe(model, threads=2), whole, lambda done: pytest.fail("nothing is left to do"))
    assert (again.written.found, again.converged, again.seconds["velocity"]) == (23, 23, 0.0)
    assert {file: file.stat().st_mtime_ns for file in whole.rglob("*")} == before
    assert torch.get_num_threads() == 1  # as the caller had it


# What is refused.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 4}, r"a run with seed=4; got seed=3\. Ask for what it holds, remove it, or write to another file"),
        ({"count": 24}, r"with count=24; got count=23\."),
        ({"steps": 4}, r"with steps=4; got steps=3\."),
        ({"batch": 6}, r"with batch=6; got batch=5\."),
        ({"tolerance": 1e-9}, r"with tolerance=1e-09; got tolerance=1e-08\."),
        ({"dtype": "float32"}, r"with dtype='float32'; got dtype='float64'\."),
        ({"problem": "heat-ic-mass"}, r"with problem='heat-ic-mass'; got problem='heat-ic-mass-implicit'\."),
        ({"settings": GRID | {"phase": None}}, r"'phase': None\}; got settings=\{'nx': 9, 'nt': 7\}\."),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_a_file_of_another_run_is_refused(
    change: dict[str, Any], words: str, finished: bool, whole: Path, model: Path, tmp_path: Path
) -> None:
    out = whole
    if not finished:
        out, words = tmp_path / "a.zarr", words.replace("a run", "an unfinished run")
        leave(recipe(model), out)
    with pytest.raises(DataError, match=r"sample\(out\) expects .*" + words):
        generate(recipe(model, **change), out)


def test_a_source_travels_to_processes_in_other_folders(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    sent = pickle.dumps(Sampled(recipe(Path(model.name))))
    monkeypatch.chdir("/")
    assert pickle.loads(sent).asked() == Sampled(recipe(model)).asked()


def test_a_model_is_known_by_its_weights_and_not_by_its_place(whole: Path, model: Path, tmp_path: Path) -> None:
    moved = write_model(tmp_path / "elsewhere")
    assert generate(recipe(moved), whole).written.found == 23
    other = write_model(tmp_path / "other", seed=1)
    with pytest.raises(DataError, match=r"to hold a run with model='[0-9a-f]{64}'; got model='[0-9a-f]{64}'\."):
        generate(recipe(other), whole)


def test_an_unfinished_run_is_not_resumed_where_bits_may_differ(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a.zarr"
    leave(recipe(model), out)
    with pytest.raises(DataError, match=r"an unfinished run with threads=2; got threads=1\."):
        generate(recipe(model, threads=2), out)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "ABACUS")
    with pytest.raises(DataError, match=r"an unfinished run with processor='ABACUS'; got processor="):
        generate(recipe(model), out)
    monkeypatch.undo()
    monkeypatch.setattr("snapfm.files.certified.versions", lambda *more: {"snapfm": "9"})
    with pytest.raises(DataError, match=r"an unfinished run with versions=\{'snapfm': '9'\}; got versions="):
        generate(recipe(model), out)


def test_sampled_and_simulated_fields_do_not_pass_for_each_other(whole: Path, model: Path, tmp_path: Path) -> None:
    simulated = DataRecipe(PROBLEM, 23, 3, settings=GRID)
    with pytest.raises(DataError, match=r"data\(out\) .* with fields='simulated'; got fields='sampled'\. Ask for"):
        write(simulated, whole)
    there = write(simulated, tmp_path / "simulated.zarr").path
    with pytest.raises(DataError, match=r"sample\(out\) .* with fields='sampled'; got fields='simulated'\. Ask for"):
        generate(recipe(model), there)


def test_models_that_do_not_fit_are_refused_before_anything_is_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a.zarr"
    grid = (
        r"sample\(model\) expects a model for the grid of 'heat-ic-mass-implicit', x: 9 points in \[0, 6\.28319\], "
        r"t: 8 points in \[0, 1\]; 'tiny' was trained on x: 9 .*, t: 7 .*\. Set the problem's grid to that of the model"
    )
    with pytest.raises(CheckpointError, match=grid):
        generate(recipe(model, settings={"nx": 9, "nt": 8}), out)
    with pytest.raises(
        CheckpointError, match=r"expects a model of burgers for 'burgers-ic'; got 'tiny', one of heat\."
    ):
        generate(recipe(model, problem="burgers-ic"), out)
    with pytest.raises(
        UnknownName, match=r"expects one of \[.*'heat-small'.*\] or the folder of .*; got 'moon', which"
    ):
        generate(recipe(Path("moon")), out)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"is expected to hold model\.json; it is missing\."):
        generate(recipe(tmp_path / "empty"), out)
    monkeypatch.setattr(recipe_module, "shipped_names", lambda: ["burgers-small"])
    with pytest.raises(
        UnknownName, match=r"none is shipped for heat, only \['burgers-small'\]\. Train one with `snapfm"
    ):
        generate(SampleRecipe("heat-ic-mass", 1), out)
    assert [entry.name for entry in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"count": 0}, r"sample\(count\) expects a whole number >= 1; got 0\. Ask for at least one"),
        ({"seed": -1}, r"sample\(seed\) expects a whole number from 0 to .*; got -1\. Try 0"),
        ({"steps": 0}, r"sample\(steps\) expects a whole number >= 1; got 0\. The default is 20"),
        ({"batch": 2.5}, r"sample\(batch\) expects a whole number >= 1; got 2\.5\. The default is 32"),
        ({"threads": 0}, r"sample\(threads\) expects a whole number >= 1; got 0\. The default is None"),
        ({"tolerance": 0.0}, r"sample\(tolerance\) expects a positive number; got 0\.0\. The default is 1e-8"),
        ({"tolerance": math.nan}, r"sample\(tolerance\) expects a positive number; got nan\."),
        ({"dtype": "float16"}, r"sample\(dtype\) expects one of .*; got 'float16'\. float64 loses nothing"),
    ],
)
def test_wrong_recipes_are_refused(change: dict[str, Any], words: str, model: Path) -> None:
    with pytest.raises((DataError, UnknownName), match=words):
        recipe(model, **change)


# Samples that do not converge.


@contextmanager
def spoiled(*numbers: int) -> Iterator[None]:
    """Let samples of every run ask for a diffusivity that is not a number."""
    build = SampleRecipe.build

    def spoil(recipe: SampleRecipe) -> Problem:
        problem = build(recipe)

        def draw_params(seed: int, start: int, count: int) -> dict[str, torch.Tensor]:
            params = problem.draw_params(seed, start, count)
            params["alpha"][torch.isin(torch.arange(start, start + count), torch.tensor(numbers))] = torch.nan
            return params

        return replace(problem, draw_params=draw_params)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SampleRecipe, "build", spoil)
        yield


def test_a_failed_sample_stops_the_run_and_is_named_by_its_number(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.zarr"
    with spoiled(12), pytest.raises(ProjectionFailed) as told:
        generate(recipe(model), out)
    first, second, advice, last = str(told.value).splitlines()
    assert first == "samples 10 to 14 are expected to converge; 1 of 5 failed:"
    assert second == "  sample 12: NONFINITE, law 'pde' is off by nan (tolerance 1e-08)"
    assert advice == f"NONFINITE: {Status.NONFINITE.advice}."
    assert last.startswith("Samples before these are kept. Go on with --keep-failed (on_failure='keep')")
    assert not out.exists()


def test_a_run_stopped_by_a_failed_sample_goes_on_when_told_to_keep_it(
    whole: Path, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a.zarr"
    with spoiled(12):
        with pytest.raises(ProjectionFailed):
            generate(recipe(model), out)
        kept = generate(recipe(model), out, on_failure="keep")
        assert kept.written.found == 10
        assert kept.statuses == {"CONVERGED": 22, "NONFINITE": 1}
        assert (kept.failed, kept.violation) == (1, None)
        words = r"a\.zarr is expected to hold converged samples; 1 of 23 did not converge, .*--keep-failed"
        with pytest.raises(ProjectionFailed, match=words):
            generate(recipe(model), out)
    found, expected = arrays(out), arrays(whole)
    assert np.flatnonzero(found["status"]).tolist() == [12]
    assert found["status"][12] == Status.NONFINITE
    others = np.arange(23) != 12
    for name in ("u", "u0", "alpha", "violation", "stationarity", "iterations", "distance"):
        assert found[name][others].tobytes() == expected[name][others].tobytes(), name
    with pytest.raises(DataError, match=r"1 of 23 samples of .*a\.zarr did not converge\. Read them with their"):
        load(out)


def test_many_failed_samples_are_counted(model: Path, tmp_path: Path) -> None:
    with (
        spoiled(*range(10)),
        pytest.raises(ProjectionFailed, match=r"samples 0 to 9 .*; 10 of 10 failed:(.|\n)*… and 2 more\n"),
    ):
        generate(recipe(model, count=10, batch=10), tmp_path / "a.zarr")


def test_samples_drawn_only_to_fill_the_last_block_are_nobodys_concern(model: Path, tmp_path: Path) -> None:
    with spoiled(24):
        assert generate(recipe(model), tmp_path / "a.zarr").converged == 23
