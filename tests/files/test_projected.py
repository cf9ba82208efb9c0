"""Fields that exist already: every format gives the same bits, what is refused, and that stops change nothing."""

from __future__ import annotations

import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from snapfm import Projector
from snapfm.errors import DataError, DtypeError, ProjectionFailed, ShapeError, UnknownName
from snapfm.files import Named, Projecting, project_file
from snapfm.files.engines import Here, Share
from snapfm.files.opened import opened
from snapfm.files.projected import ProjectedFields

zarr = pytest.importorskip("zarr")
xarray = pytest.importorskip("xarray")

MODULE = """
import snapfm

laws = [
    snapfm.Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
    snapfm.Equality("energy", lambda u, p: (u[:, 1:] ** 2).sum(0) - p["level"]),
    snapfm.Bounds(lower=-3.0),
]


def made():
    return laws[:2]


number = 3
"""
COUNT, SHAPE = 23, (5, 4)


def fields(seed: int = 0) -> dict[str, Any]:
    dice = np.random.default_rng(seed)
    u = dice.normal(size=(COUNT, *SHAPE))
    return {"u": u, "u0": u[:, :, 0] + 0.1, "level": dice.uniform(1.0, 2.0, size=COUNT)}


def save(file: Path, arrays: dict[str, Any]) -> Path:
    if file.suffix == ".npz":
        (np.savez_compressed if "packed" in file.name else np.savez)(file, **arrays)
    elif file.suffix == ".zarr":
        root = zarr.create_group(file, zarr_format=2 if "old" in file.name else 3)
        for name, value in arrays.items():
            root.create_array(name, data=value)
    elif file.suffix == ".h5":
        h5py = pytest.importorskip("h5py")
        with h5py.File(file, "w") as opened_file:
            for name, value in arrays.items():
                opened_file[name] = value
    else:
        torch_files = pytest.importorskip("safetensors.torch")
        torch_files.save_file({name: torch.from_numpy(value) for name, value in arrays.items()}, file)
    return file


@pytest.fixture
def laws(tmp_path: Path) -> Named:
    (tmp_path / "laws_of_a_user.py").write_text(MODULE)
    return Named("--laws", "laws_of_a_user:laws", str(tmp_path))


def recipe(file: Path, laws: Named, **more: Any) -> Projecting:
    return Projecting(file, laws, batch=5, **more)


def arrays_of(file: Any) -> dict[str, Any]:
    with xarray.open_zarr(file) as data:
        return {str(name): data[name].values for name in data.variables}


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.parametrize("name", ["a.npz", "packed.npz", "a.zarr", "old.zarr", "a.h5", "a.safetensors"])
def test_every_format_gives_what_the_library_gives(name: str, laws: Named, tmp_path: Path) -> None:
    given = fields()
    found = project_file(recipe(save(tmp_path / name, given), laws), tmp_path / "out.zarr")
    params = {key: torch.from_numpy(given[key]) for key in ("u0", "level")}
    project = Projector(laws.laws(), SHAPE, params)
    expected = project(torch.from_numpy(given["u"]), params)
    there = arrays_of(tmp_path / "out.zarr")
    assert np.array_equal(there["u"], expected.u.numpy())
    assert np.array_equal(there["stationarity"], expected.stationarity.numpy())
    assert np.array_equal(there["u0"], given["u0"])
    assert found.laws == ("initial", "energy", "bounds")
    assert found.totals.converged == COUNT
    before = project.check(torch.from_numpy(given["u"]), params).by_law
    assert found.totals.before == tuple(float(before[law].max()) for law in found.laws)
    assert max(found.totals.after) <= 1e-8 < found.totals.before[0]
    assert found.written.figures.keys() == {"reading", "projection"}


def test_one_array_alone_and_laws_from_a_function(laws: Named, tmp_path: Path) -> None:
    (tmp_path / "laws_of_a_plane.py").write_text(
        "import snapfm\ndef laws():\n    return [snapfm.Equality('mean', lambda u, p: u.mean() - 1.0)]\n"
    )
    np.save(tmp_path / "a.npy", fields()["u"].astype(np.float32))
    asked = Projecting(tmp_path / "a.npy", Named("--laws", "laws_of_a_plane:laws", str(tmp_path)), dims=("x", "t"))
    project_file(asked, tmp_path / "out.zarr")
    with xarray.open_zarr(tmp_path / "out.zarr") as data:
        assert data.u.dims == ("sample", "x", "t")
        assert data.u.dtype == np.float32
        assert float(abs(data.u.mean(("x", "t")) - 1.0).max()) < 1e-6
        assert data.attrs["input"] == "a.npy"


def test_axes_coordinates_and_params_come_along(laws: Named, tmp_path: Path) -> None:
    given = fields()
    source = xarray.Dataset(
        {"w": (("sample", "x", "t"), given["u"]), "u0": (("sample", "x"), given["u0"]), "level": ("one", np.ones(1))},
        {"x": ("x", np.linspace(0.0, 2.0, 5), {"units": "m"}), "t": np.arange(4.0)},
    )
    source.to_zarr(tmp_path / "a.zarr", zarr_format=3, consolidated=False)
    project_file(recipe(tmp_path / "a.zarr", laws, var="w"), tmp_path / "out.zarr")
    with xarray.open_zarr(tmp_path / "out.zarr") as data:
        assert data.u.dims == ("sample", "x", "t")
        assert data.u0.dims == ("sample", "x")
        assert data.x.attrs["units"] == "m"
        assert data.level.values.tolist() == [1.0] * COUNT  # one for all
        assert data.before.dims == ("sample", "law")


@pytest.mark.parametrize("params", [None, ("run/u0", "level=run/height")])
def test_params_in_groups_and_by_other_names(params: tuple[str, ...] | None, laws: Named, tmp_path: Path) -> None:
    given, height = fields(), "run/level" if params is None else "run/height"
    save(tmp_path / "plain.h5", given)
    save(tmp_path / "a.h5", {"run/u": given["u"], "run/u0": given["u0"], height: given["level"]})
    project_file(recipe(tmp_path / "plain.h5", laws), tmp_path / "plain.zarr")
    project_file(recipe(tmp_path / "a.h5", laws, var="run/u", params=params), tmp_path / "out.zarr")
    there, plain = arrays_of(tmp_path / "out.zarr"), arrays_of(tmp_path / "plain.zarr")
    assert np.array_equal(there["u"], plain["u"])
    assert np.array_equal(there["level"], given["level"])


def test_a_stopped_run_goes_on_and_parts_complete_each_other(laws: Named, tmp_path: Path) -> None:
    asked = recipe(save(tmp_path / "a.npz", fields()), laws)
    project_file(asked, tmp_path / "whole.zarr")
    first = project_file(asked, tmp_path / "out.zarr", engine=Here(Share(2, 3)))
    assert (first.written.missing, first.totals.statuses) == (15, {"CONVERGED": 8})  # blocks of 5 and 3
    last = project_file(asked, tmp_path / "out.zarr")
    assert last.written.found == 8
    one, other = arrays_of(tmp_path / "whole.zarr"), arrays_of(tmp_path / "out.zarr")
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_fields_that_fail_stop_the_run_or_are_kept(laws: Named, tmp_path: Path) -> None:
    given = fields()
    given["level"][7] = -1.0  # no squares add up to that
    asked = recipe(save(tmp_path / "a.npz", given), laws)
    with pytest.raises(ProjectionFailed, match=r"samples 5 to 9 .*\n  sample 7: .*law 'energy' is off by"):
        project_file(asked, tmp_path / "out.zarr")
    kept = project_file(asked, tmp_path / "out.zarr", on_failure="keep")
    assert (kept.written.found, kept.totals.failed) == (5, 1)
    with pytest.raises(ProjectionFailed, match=r"out\.zarr is expected to hold converged samples; 1 of 23 did not"):
        project_file(asked, tmp_path / "out.zarr")


def test_another_input_or_other_laws_are_refused(laws: Named, tmp_path: Path) -> None:
    asked = recipe(save(tmp_path / "a.npz", fields()), laws)
    project_file(asked, tmp_path / "out.zarr", engine=Here(Share(1, 2)))
    save(tmp_path / "a.npz", fields(seed=1))
    with pytest.raises(DataError, match=r"an unfinished run with bits="):
        project_file(asked, tmp_path / "out.zarr")
    save(tmp_path / "a.npz", fields())
    with pytest.raises(DataError, match=r"with laws=\{'name': 'laws_of_a_user:made'.*tolerance=1e-06; got laws="):
        project_file(
            replace(asked, laws=replace(laws, text="laws_of_a_user:made"), tolerance=1e-6), tmp_path / "out.zarr"
        )


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"var": "v"}, UnknownName, r"--var expects one of \['level', 'u', 'u0'\], the arrays of a\.npz; got 'v'"),
        ({"params": ("v",)}, DataError, r"--params expects arrays of a\.npz .*: \['u0', 'level'\]; got 'v'\."),
        ({"dims": ("x",)}, ShapeError, r"--dims expects 2 names for fields of shape \(5, 4\); got \['x'\]\."),
        ({"var": "level"}, ShapeError, r"expects an array \(samples, …\) of fields; 'level' of a\.npz has shape \(23,\)"),
        ({"file": "a.txt"}, DataError, r"a\.txt does not exist"),
        ({"laws": "laws_of_a_user"}, UnknownName, r"--laws expects module:name; got 'laws_of_a_user'\. Write it as in"),
        ({"laws": "laws_of_a_user:none"}, UnknownName, r"--laws expects 'none' in module laws_of_a_user; it has none"),
        ({"laws": "no_module_of_that:x"}, UnknownName, r"'no_module_of_that' raised ModuleNotFoundError: .* PYTHONPATH"),
        ({"laws": "laws_of_a_user:number"}, ValueError, r"expects a list of laws; got int"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    change: dict[str, Any], error: type[Exception], words: str, laws: Named, tmp_path: Path
) -> None:
    if "laws" in change:
        change = {"laws": replace(laws, text=change["laws"])}
    if "file" in change:
        change = {"file": tmp_path / change["file"]}
    with pytest.raises(error, match=words):
        project_file(replace(recipe(save(tmp_path / "a.npz", fields()), laws), **change), tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


def test_files_of_no_known_kind_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(
        DataError, match=r"expects NPY, NPZ, Zarr, HDF5 or safetensors; got .*a\.csv\. Save the fields as"
    ):
        opened(tmp_path / "a.csv")


def test_words_and_other_byte_orders_beside_fields_are_no_trouble(laws: Named, tmp_path: Path) -> None:
    given = fields()
    project_file(recipe(save(tmp_path / "a.npz", given), laws), tmp_path / "native.zarr")
    given["u"] = given["u"].astype(">f8")
    given["name"] = np.array(["a name"] * COUNT)
    given["even"] = np.arange(COUNT) % 2 == 0
    project_file(recipe(save(tmp_path / "b.npz", given), laws), tmp_path / "other.zarr")
    one, other = arrays_of(tmp_path / "native.zarr"), arrays_of(tmp_path / "other.zarr")
    assert other.keys() - one.keys() == {"even"}
    assert other["even"].tolist() == given["even"].tolist()
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_packed_array_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = fields()["u"]
    np.savez_compressed(tmp_path / "a.npz", u=given)
    member = opened(tmp_path / "a.npz").arrays["u"]
    unpacked = 0
    read = zipfile.ZipExtFile._read1

    def counted(self: zipfile.ZipExtFile, size: int) -> bytes:
        nonlocal unpacked
        found = read(self, size)
        unpacked += len(found)
        return found

    monkeypatch.setattr(zipfile.ZipExtFile, "_read1", counted)
    assert np.array_equal(np.concatenate([member[start : start + 2] for start in range(0, COUNT, 2)]), given)
    assert unpacked <= given.nbytes
    assert np.array_equal(member[1:3], given[1:3])  # and back again


@pytest.mark.parametrize(
    ("arrays", "error", "words"),
    [
        (
            {"u": np.ones((3, 2), complex)},
            DtypeError,
            r"fields of real numbers; 'u' of a\.npz holds complex128\. Choose",
        ),
        ({"u": np.array(1.0)}, ShapeError, r"'u' of a\.npz has shape \(\)\. Choose another with --var"),
    ],
)
def test_arrays_that_are_no_fields_are_refused(
    arrays: dict[str, Any], error: type[Exception], words: str, laws: Named, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        project_file(recipe(save(tmp_path / "a.npz", arrays), laws), tmp_path / "out.zarr")


@pytest.mark.parametrize("name", ["a.npz", "a.npy"])
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match=rf"snapfm project expects an .*{name}; got '.*'\. Save it again"):
        opened(tmp_path / name)


def test_another_number_of_threads_is_refused(laws: Named, tmp_path: Path) -> None:
    asked = recipe(save(tmp_path / "a.npz", fields()), laws, threads=1)
    project_file(asked, tmp_path / "out.zarr", engine=Here(Share(1, 2)))
    with pytest.raises(DataError, match=r"an unfinished run with threads=2; got threads=1\."):
        project_file(replace(asked, threads=2), tmp_path / "out.zarr")
    with pytest.raises(DataError, match=r"project\(threads\) expects a whole number >= 1; got 0\."):
        replace(asked, threads=0)


def test_its_source_travels_to_processes_in_other_folders(
    laws: Named, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "a.npz", fields())
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(ProjectedFields(recipe(Path("a.npz"), laws)))
    monkeypatch.chdir("/")
    came = pickle.loads(sent)
    assert (came.count, came.shape, came.input.name) == (COUNT, SHAPE, "a.npz")
