"""Files at s3://, on a server of moto on this machine: the bits of a disk, parts, stops, and what reads them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from snapfm.errors import DataError
from snapfm.files import Named, Projecting, load, project_file
from snapfm.files.engines import Here, Share
from snapfm.files.opened import opened
from snapfm_bench.files import DataRecipe, write

pytest.importorskip("zarr")
s3fs = pytest.importorskip("s3fs", reason="addresses of s3:// need s3fs, which is not installed")
moto = pytest.importorskip(
    "moto.server", reason="a server to test s3:// with needs moto[server], which is not installed"
)
xarray = pytest.importorskip("xarray")

# s3fs leaves its sessions to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
RECIPE = DataRecipe("heat-ic-mass-implicit", count=70, seed=3, settings={"nx": 7, "nt": 6})
URL = "s3://bucket/deep/a.zarr"


pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    started = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    yield f"http://{host}:{port}"
    started.stop()


@pytest.fixture
def files(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    s3fs.S3FileSystem.clear_instance_cache()
    there = s3fs.S3FileSystem()
    there.mkdir("bucket")
    yield there
    there.rm("bucket", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()
    gc.collect()  # now: sessions that s3fs leaves open would complain in some other test


def content(files: object) -> dict[str, bytes]:
    files.invalidate_cache()  # type: ignore[attr-defined]
    root = "bucket/deep/a.zarr/"
    return {name.removeprefix(root): files.cat_file(name) for name in files.find(root)}  # type: ignore[attr-defined]


class Stopped(Exception):
    pass


def test_the_same_bits_as_on_a_disk_after_a_stop(files: object, tmp_path: Path) -> None:
    def stop(done: float) -> None:
        if done == 32:
            raise Stopped

    with pytest.raises(Stopped):
        write(RECIPE, URL, stop)
    with pytest.raises(DataError, match="is not whole"):
        load(URL)
    again = write(RECIPE, URL)
    assert (again.path, again.found, again.missing) == (URL, 32, 0)
    there = Path(write(RECIPE, tmp_path / "a.zarr").path)
    on_disk = {str(file.relative_to(there)): file.read_bytes() for file in there.rglob("*") if file.is_file()}
    assert content(files) == on_disk
    assert again.bytes == sum(map(len, on_disk.values()))
    assert torch.equal(load(URL)[0], load(there)[0])
    with xarray.open_zarr(URL) as data:
        assert data.sizes == {"sample": 70, "x": 7, "t": 6}
    assert write(RECIPE, URL).found == 70


def test_parts_fill_one_address_and_another_run_is_refused(files: object) -> None:
    assert write(RECIPE, URL, engine=Here(Share(2, 2))).missing == 38
    with pytest.raises(DataError, match=r"an unfinished run with seed=4; got seed=3\."):
        write(DataRecipe(**{**RECIPE.asked(), "seed": 4}), URL, engine=Here(Share(1, 2)))
    assert write(RECIPE, URL, engine=Here(Share(1, 2))).missing == 0


def test_fields_there_are_projected_to_there(files: object, tmp_path: Path) -> None:
    (tmp_path / "laws_in_a_bucket.py").write_text(
        "import snapfm\nlaws = [snapfm.Equality('initial', lambda u, p: u[:, 0] - p['u0'] - 1.0)]\n"
    )
    write(RECIPE, URL)
    assert opened(URL).arrays["u"].shape == (70, 7, 6)
    laws = Named("--laws", "laws_in_a_bucket:laws", str(tmp_path))
    found = project_file(Projecting(URL, laws, params=("u0",)), "s3://bucket/b.zarr")
    assert (found.totals.converged, found.written.missing) == (70, 0)
