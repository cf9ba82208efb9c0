"""Files in The Well's HDF5 layout: groups, attributes and shapes of its specification, and the same numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import snapfm
from snapfm.cli.app import app
from snapfm.errors import DataError
from snapfm.files import Named, Projecting, load, project_file
from snapfm.files.engines import Here, Share
from snapfm.files.well import export_well
from snapfm_bench.files import DataRecipe, write

h5py = pytest.importorskip("h5py")
pytest.importorskip("zarr")

RECIPE = DataRecipe("navier-stokes-ic-mass", count=35, seed=2, settings={"size": 4, "nt": 3, "resolution": 8})


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(RECIPE, tmp_path_factory.mktemp("files") / "a.zarr").path


def test_it_is_laid_out_as_specified(file: Path, tmp_path: Path) -> None:
    found = export_well(file, tmp_path / "deep" / "a.hdf5")
    assert (found.count, found.fields, found.bytes > 0) == (35, ("u", "u0"), True)
    u, params = load(file)
    with h5py.File(found.path) as well:
        assert set(well) == {"dimensions", "boundary_conditions", "scalars", "t0_fields", "t1_fields", "t2_fields"}
        assert dict(well.attrs, simulation_parameters=0) == {
            "simulation_parameters": 0, "dataset_name": "navier-stokes-ic-mass", "grid_type": "cartesian",
            "n_spatial_dims": 2, "n_trajectories": 35, "snapfm": snapfm.__version__,
        }  # fmt: skip
        axes = well["dimensions"]
        assert list(axes.attrs["spatial_dims"]) == ["x", "y"]
        assert axes["time"].shape == (3,)
        assert axes["x"].dtype == np.float32
        assert not axes["x"].attrs["sample_varying"]
        fields = well["t0_fields"]
        assert list(fields.attrs["field_names"]) == ["u", "u0"]
        assert fields["u"].shape == (35, 3, 4, 4)
        assert fields["u"].dtype == np.float32
        assert np.array_equal(fields["u"][:], u.permute(0, 3, 1, 2).float().numpy())
        assert fields["u0"].shape == (35, 4, 4)
        assert not fields["u0"].attrs["time_varying"]
        assert fields["u"].attrs["dim_varying"].tolist() == [True, True]
        assert [axis.label for axis in fields["u"].dims] == ["sample", "time", "x", "y"]
        assert list(well["t1_fields"].attrs["field_names"]) == []
        assert np.array_equal(well["scalars"]["force_phase"][:], params["force_phase"].float().numpy())
        assert well["scalars"]["seed"][:].tolist() == [2] * 35
        edge = well["boundary_conditions"]["x_open"]
        assert edge.attrs["bc_type"] == "open"
        assert edge["mask"][:].tolist() == [True, False, False, True]


def test_periodic_axes_are_told(tmp_path: Path) -> None:
    heat = write(DataRecipe("heat-ic-mass", count=2, settings={"nx": 7, "nt": 6}), tmp_path / "a.zarr").path
    with h5py.File(export_well(heat, tmp_path / "a.hdf5").path) as well:
        assert well["boundary_conditions"]["x_periodic"].attrs["bc_type"] == "periodic"
        assert well["t0_fields"]["u"].shape == (2, 6, 7)


def test_what_has_no_place_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "laws_of_two.py").write_text(
        "import snapfm\nlaws = [snapfm.Equality('sum', lambda u, p: u.sum() - 1)]\n"
    )
    np.save(tmp_path / "a.npy", np.ones((3, 5, 4)))
    asked = Projecting(tmp_path / "a.npy", Named("--laws", "laws_of_two:laws", str(tmp_path)), dims=("x", "t"))
    project_file(asked, tmp_path / "a.zarr")
    answer = CliRunner().invoke(app, ["export", str(tmp_path / "a.zarr"), "--out", str(tmp_path / "a.hdf5")])
    assert answer.exit_code == 0
    assert "Left out, because The Well has no place for their axes: after, before." in answer.output


def test_the_command_and_what_it_refuses(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.hdf5"
    answer = CliRunner().invoke(app, ["export", str(file), "--out", str(out), "--json"], catch_exceptions=False)
    assert json.loads(answer.output)["fields"] == ["u", "u0"]
    with pytest.raises(DataError, match=r"--out expects a file that does not exist; got .*a\.hdf5\. Remove it"):
        export_well(file, out)
    with pytest.raises(DataError, match=r"expects a finished file of snapfm; .* is none\. Write one with snapfm data"):
        export_well(tmp_path / "none.zarr", tmp_path / "b.hdf5")
    write(RECIPE, tmp_path / "half.zarr", engine=Here(Share(1, 2)))
    with pytest.raises(DataError, match="is not whole"):
        export_well(tmp_path / "half.zarr.part" / "store", tmp_path / "b.hdf5")
    answer = CliRunner().invoke(app, ["export", str(file), "--out", str(tmp_path / "b.hdf5"), "--format", "moon"])
    assert "--format expects one of ['well']; got 'moon'" in str(answer.exception)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.hdf5", "half.zarr.part"]
