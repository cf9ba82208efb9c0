"""Data files: what they hold, what xarray sees, what is refused, and that stops leave nothing half written."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import snapfm
from snapfm.errors import DataError, SettingError, UnknownName
from snapfm.files import archive, load
from snapfm.metrics.scores import constraint_errors
from snapfm_bench.files import DataRecipe, paper_count, write
from snapfm_bench.files.described import PARAMS, drawn
from snapfm_bench.problems import names

xarray = pytest.importorskip("xarray")

SMALL = {"heat": {"nx": 7, "nt": 6}, "burgers": {"nx": 7, "nt": 6}, "reaction-diffusion": {"nx": 7, "nt": 6}}
SMALL["navier-stokes"] = {"size": 4, "nt": 3, "resolution": 8}
RECIPE = DataRecipe("heat-ic-mass-implicit", count=70, seed=3, settings=SMALL["heat"])


class Stopped(Exception):
    pass


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", names())
def test_every_problem_is_written_as_it_is_drawn(name: str, tmp_path: Path) -> None:
    settings = SMALL[snapfm.problem(name).equation]
    problem = snapfm.problem(name, **settings)
    recipe = DataRecipe(name, count=3, seed=5, settings=settings)
    written = write(recipe, tmp_path / "a.zarr")
    fields, drawn = problem.draw_training(5, 0, 3)
    u, params = load(written.path)
    assert torch.equal(u, fields)
    assert params.keys() == drawn.keys() <= PARAMS.keys()
    assert all(torch.equal(params[key], drawn[key]) for key in drawn)
    assert set(problem.params(1)) <= set(params)  # laws can be asked with what the file holds


def test_fields_of_a_file_obey_the_laws_with_its_own_params(tmp_path: Path) -> None:
    problem = snapfm.problem("heat-ic-mass-implicit", scheme="kernel", **SMALL["heat"], pde_steps=None)
    u, params = load(write(RECIPE, tmp_path / "a.zarr").path)
    errors = constraint_errors(problem.laws, u, {name: params[name] for name in ("u0", "alpha")})
    assert max(error.largest for error in errors) < 1e-13


def test_xarray_reads_names_units_and_provenance(tmp_path: Path) -> None:
    recipe = DataRecipe("navier-stokes-ic-mass", count=3, seed=2, settings=SMALL["navier-stokes"])
    with xarray.open_zarr(write(recipe, tmp_path / "ns.zarr").path) as data:
        assert data.u.dims == ("sample", "x", "y", "t")
        assert data.u0.dims == ("sample", "x", "y")
        assert data.force_phase.dims == ("sample",)
        assert data.sample.values.tolist() == [0, 1, 2]
        assert data.seed.values.tolist() == [2, 2, 2]
        for name in ("u", "u0", "force_phase", "x", "y", "t"):
            assert data[name].attrs["units"] == "1"
            assert data[name].attrs["long_name"]
        grid = snapfm.problem(recipe.problem, **recipe.settings).grid
        assert data.t.values.tolist() == grid.axis("t").points().tolist()
        about = {key: data.attrs[key] for key in ("problem", "equation", "laws", "seed", "count", "snapfm", "complete")}
        assert about == {
            "problem": "navier-stokes-ic-mass", "equation": "navier-stokes", "laws": ["initial", "mass"],
            "seed": 2, "count": 3, "snapfm": snapfm.__version__, "complete": True,
        }  # fmt: skip
        assert data.attrs["recipe"]["settings"] == SMALL["navier-stokes"]
        assert "shards" in data.u.encoding
    assert str(tmp_path) not in (tmp_path / "ns.zarr" / "zarr.json").read_text()


def test_a_field_depends_on_seed_and_index_alone(tmp_path: Path) -> None:
    few = write(replace(RECIPE, count=5), tmp_path / "few.zarr").path
    many = write(RECIPE, tmp_path / "many.zarr").path
    assert torch.equal(load(few)[0], load(many)[0][:5])


def test_float32_is_the_rounded_field(tmp_path: Path) -> None:
    u, params = load(write(replace(RECIPE, dtype="float32", count=3), tmp_path / "a.zarr").path)
    assert u.dtype == params["alpha"].dtype == torch.float32
    assert torch.equal(u, snapfm.problem(RECIPE.problem, **RECIPE.settings).draw_fields(3, 0, 3).float())


@pytest.mark.parametrize("samples", [0, 32, 64, 70])
def test_a_stopped_run_goes_on_where_it_was(samples: int, tmp_path: Path) -> None:
    def stop(done: int) -> None:
        assert not (tmp_path / "a.zarr").exists()
        if done == samples:
            raise Stopped

    with pytest.raises(Stopped):
        write(RECIPE, tmp_path / "a.zarr", stop)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.zarr.part"]
    reported: list[int] = []
    again = write(RECIPE, tmp_path / "a.zarr", reported.append)
    assert again.found == samples == reported[0]
    assert reported[-1] == 70
    whole = write(RECIPE, tmp_path / "whole.zarr")
    assert tree(again.path) == tree(whole.path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.zarr", "whole.zarr"]


def test_a_finished_file_is_left_as_it_is(tmp_path: Path) -> None:
    first = write(RECIPE, tmp_path / "a.zarr")
    before = {file: file.stat().st_mtime_ns for file in first.path.rglob("*")}
    (tmp_path / "a.zarr.part").mkdir()  # as a process killed right after the rename leaves it
    again = write(RECIPE, tmp_path / "a.zarr", progress=lambda done: pytest.fail("nothing is left to do"))
    assert again.found == 70
    assert {file: file.stat().st_mtime_ns for file in first.path.rglob("*")} == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.zarr"]


def test_a_part_without_its_store_starts_afresh(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        write(RECIPE, tmp_path / "a.zarr", lambda done: (_ for _ in ()).throw(Stopped))
    shutil.rmtree(tmp_path / "a.zarr.part" / "store")
    assert write(RECIPE, tmp_path / "a.zarr").found == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 4}, r"a run with seed=4; got seed=3\. Ask for what it holds, remove it, or write to another file"),
        ({"count": 71}, r"with count=71; got count=70\."),
        ({"problem": "heat-ic-mass"}, r"with problem='heat-ic-mass'; got problem='heat-ic-mass-implicit'\."),
        ({"settings": {"nx": 9, "nt": 6}}, r"with settings=\{'nx': 9, 'nt': 6\}; got settings=\{'nx': 7, 'nt': 6\}\."),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_a_file_of_another_run_is_refused(change: dict, words: str, finished: bool, tmp_path: Path) -> None:
    def stop(done: int) -> None:
        if not finished:
            raise Stopped

    try:
        write(RECIPE, tmp_path / "a.zarr", stop)
    except Stopped:
        words = words.replace("a run", "an unfinished run")
    with pytest.raises(DataError, match=words):
        write(replace(RECIPE, **change), tmp_path / "a.zarr")


def test_an_unfinished_run_of_other_versions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Stopped):
        write(RECIPE, tmp_path / "a.zarr", lambda done: (_ for _ in ()).throw(Stopped))
    monkeypatch.setattr("snapfm_bench.files.simulated.versions", lambda: {"snapfm": "9", "torch": "9"})
    with pytest.raises(DataError, match=r"an unfinished run with versions=\{'snapfm': '9'.*; got versions="):
        write(RECIPE, tmp_path / "a.zarr")


def test_what_is_not_ours_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "b.zarr").write_text("mine")
    for name in ("a.zarr", "b.zarr"):
        with pytest.raises(DataError, match=r"to be absent or a data file of snapfm; got something else\. Remove it"):
            write(RECIPE, tmp_path / name)
        with pytest.raises(DataError, match=r"expects a finished data file; .* is none\. Write one with `snapfm data"):
            load(tmp_path / name)
    assert (tmp_path / "b.zarr").read_text() == "mine"


def test_an_unfinished_store_does_not_pass_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        write(RECIPE, tmp_path / "a.zarr", lambda done: (_ for _ in ()).throw(Stopped))
    store = tmp_path / "a.zarr.part" / "store"
    with pytest.raises(DataError, match="is not whole"):
        load(store)
    with xarray.open_zarr(store, consolidated=False) as data:
        assert not data.attrs["complete"]
        assert bool(data.u.isnull().all())
    store.rename(tmp_path / "a.zarr")  # by hand
    with pytest.raises(DataError, match="got something else"):
        write(RECIPE, tmp_path / "a.zarr")


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    def second(done: int) -> None:
        with pytest.raises(
            DataError, match=r"one process at a time, or by one for each --part K/N; another one is at it\. Wait"
        ):
            write(RECIPE, tmp_path / "a.zarr")

    write(RECIPE, tmp_path / "a.zarr", second)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, r"'No space left on device'\. Free some space and call again: finished blocks are kept"),
        (errno.EACCES, r"'Permission denied'\. Choose a folder you may write to"),
        (errno.EIO, r"'Input/output error'\. Choose another place, or call again"),
    ],
)
def test_errors_of_the_disk_are_explained(
    number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*anything: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(archive, "write_block", fail)
    with pytest.raises(DataError, match=r"data\(out\) expects to write .*a\.zarr; got " + words):
        write(RECIPE, tmp_path / "a.zarr")
    monkeypatch.undo()
    assert write(RECIPE, tmp_path / "a.zarr").count == 70


def test_what_cannot_fit_is_refused_before_it_starts(tmp_path: Path) -> None:
    huge = DataRecipe("heat-ic-mass", count=10**12)
    with pytest.raises(DataError, match=r"expects 80,000,000,000\.0 MB of free space for .*; got .* MB\. Free some"):
        write(huge, tmp_path / "deep" / "a.zarr")
    assert not (tmp_path / "deep").exists()


def test_wrong_recipes_are_refused() -> None:
    with pytest.raises(DataError, match=r"data\(count\) expects a whole number >= 1; got 0\. Ask for at least one"):
        DataRecipe("heat-ic-mass", 0)
    with pytest.raises(DataError, match=r"data\(seed\) expects a whole number from 0 to .*; got -1\. Try 0"):
        DataRecipe("heat-ic-mass", 1, seed=-1)
    with pytest.raises(UnknownName, match=r"data\(dtype\) expects one of .*; got 'float16'\. float64 loses nothing"):
        DataRecipe("heat-ic-mass", 1, dtype="float16")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="got 'moon'"):
        DataRecipe("moon", 1).build()
    with pytest.raises(UnknownName, match=r"expects settings among \['nx', 'nt', 'phase'\]; got 'ny'"):
        DataRecipe("heat-ic-mass", 1, settings={"ny": 3}).build()
    with pytest.raises(SettingError, match=r"expects nx to be a whole number; got 'many'\. Give such a value"):
        DataRecipe("heat-ic-mass", 1, settings={"nx": "many"}).build()


def test_the_paper_counts() -> None:
    counts = {snapfm.problem(name).equation: paper_count(name) for name in names()}
    assert counts == {"heat": 10_000, "navier-stokes": 10_000, "burgers": 6_400, "reaction-diffusion": 6_400}


def test_simulated_files_are_known_by_the_words_they_always_had(tmp_path: Path) -> None:
    """Files of before there were other sources have these entries and no more; they must be recognized and resumed."""
    recipe = DataRecipe("heat-ic-mass", 40, 3, settings={"nx": 7, "nt": 6})
    assert recipe.identity().keys() == {"problem", "count", "seed", "dtype", "settings", "versions"}
    out, reported = tmp_path / "a.zarr", []

    def look(done: int) -> None:
        marks = tmp_path / "a.zarr.part" / "store" / "sample" / "c"
        reported.append(sorted(file.name for file in marks.glob("*")))

    write(recipe, out, look)
    assert reported == [[], ["0"], ["0", "1"]]
    attributes = json.loads((out / "zarr.json").read_text())["attributes"]
    assert attributes["recipe"] == recipe.identity()
    assert list(attributes) == [
        "title", "problem", "equation", "summary", "laws", "seed", "count", "snapfm", "Conventions", "commit", "format",
        "recipe", "complete",
    ]  # fmt: skip
    assert json.loads((out / "u" / "zarr.json").read_text())["chunk_grid"]["configuration"]["chunk_shape"] == [32, 7, 6]


def test_a_param_that_is_neither_a_number_nor_a_state_is_refused() -> None:
    grid = snapfm.problem("heat-ic-mass", nx=7, nt=6).grid
    with pytest.raises(DataError, match=r"expects 'u0' to be a number or a state \[7\] per sample; got shape \[6\]\."):
        drawn(grid, {"u0": torch.zeros(1, 6)}, "float64")
