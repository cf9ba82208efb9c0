"""Files at addresses that fsspec knows: the same store as on a disk, written in place, complete when it says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from snapfm.errors import DataError
from snapfm.files import load
from snapfm.files.engines import Here, Share
from snapfm.files.opened import opened
from snapfm.files.place import Address, Folder, place_of
from snapfm_bench.files import DataRecipe, write

fsspec = pytest.importorskip("fsspec")
MemoryStore = pytest.importorskip("zarr.storage").FsspecStore
xarray = pytest.importorskip("xarray")

RECIPE = DataRecipe("heat-ic-mass-implicit", count=70, seed=3, settings={"nx": 7, "nt": 6})
URL = "memory://bucket/a.zarr"


@pytest.fixture(autouse=True)
def files() -> Iterator[object]:
    memory = fsspec.filesystem("memory")
    yield memory
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


def content(files: object) -> dict[str, bytes]:
    root = "/bucket/a.zarr/"
    return {name.removeprefix(root): files.cat_file(name) for name in files.find(root)}  # type: ignore[attr-defined]


class Stopped(Exception):
    pass


def test_addresses_and_folders_are_told_apart(tmp_path: Path) -> None:
    assert place_of("s3://bucket/a.zarr/") == Address("s3://bucket/a.zarr")
    assert place_of(f"file://{tmp_path}/a.zarr") == place_of(tmp_path / "a.zarr") == Folder(tmp_path / "a.zarr")


def test_the_same_bits_as_on_a_disk(files: object, tmp_path: Path) -> None:
    written = write(RECIPE, URL)
    assert (written.path, written.count, written.missing) == (URL, 70, 0)
    there = write(RECIPE, f"file://{tmp_path}/a.zarr").path
    on_disk = {str(file.relative_to(there)): file.read_bytes() for file in Path(there).rglob("*") if file.is_file()}
    assert content(files) == on_disk
    assert torch.equal(load(URL)[0], load(there)[0])
    with xarray.open_zarr(URL) as data:
        assert data.sizes == {"sample": 70, "x": 7, "t": 6}
    assert write(RECIPE, URL).found == 70


@pytest.mark.parametrize("samples", [0, 32, 64])
def test_a_stopped_run_goes_on(samples: int, files: object) -> None:
    def stop(done: float) -> None:
        if done == samples:
            raise Stopped

    with pytest.raises(Stopped):
        write(RECIPE, URL, stop)
    with pytest.raises(DataError, match="is not whole"):
        load(URL)
    assert write(RECIPE, URL).found == samples
    stopped = content(files)
    files.rm("/bucket", recursive=True)  # type: ignore[attr-defined]
    write(RECIPE, URL)
    assert content(files) == stopped


def test_creation_that_was_stopped_halfway_is_completed(files: object) -> None:
    with pytest.raises(Stopped):
        write(RECIPE, URL, lambda done: (_ for _ in ()).throw(Stopped))
    files.rm("/bucket/a.zarr/alpha", recursive=True)  # type: ignore[attr-defined]
    assert write(RECIPE, URL).missing == 0
    assert load(URL)[1]["alpha"].shape == (70,)


def test_parts_fill_one_address(files: object) -> None:
    first = write(RECIPE, URL, engine=Here(Share(2, 2)))
    assert (first.missing, write(RECIPE, URL, engine=Here(Share(1, 2))).missing) == (38, 0)


def test_other_runs_and_other_things_are_refused(files: object) -> None:
    write(RECIPE, URL, engine=Here(Share(2, 2)))
    with pytest.raises(DataError, match=r"memory://bucket/a\.zarr .* an unfinished run with seed=4; got seed=3\."):
        write(DataRecipe(**{**RECIPE.asked(), "seed": 4}), URL)
    write(RECIPE, URL)
    with pytest.raises(DataError, match=r"a run with count=71; got count=70\."):
        write(DataRecipe(**{**RECIPE.asked(), "count": 71}), URL)
    files.pipe_file("/bucket/b.zarr/mine.txt", b"mine")  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"to be absent or a data file of snapfm; got something else\."):
        write(RECIPE, "memory://bucket/b.zarr")


def test_it_is_complete_only_when_all_else_is_written(files: object, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, bool]] = []
    put = MemoryStore.set

    async def noted(self: object, key: str, value: object) -> None:
        await put(self, key, value)
        if key == "zarr.json":
            there = json.loads(files.cat_file("/bucket/a.zarr/zarr.json"))  # type: ignore[attr-defined]
            seen.append(("consolidated_metadata" in there, there["attributes"]["complete"]))

    monkeypatch.setattr(MemoryStore, "set", noted)
    write(RECIPE, URL)
    assert seen == [(False, False), (True, False), (True, True)]


def test_an_unfinished_file_is_no_input(files: object) -> None:
    write(RECIPE, URL, engine=Here(Share(2, 2)))
    with pytest.raises(DataError, match=r"expects a finished file; memory://bucket/a\.zarr is not whole\. Finish"):
        opened(URL)


def test_an_address_without_its_package_is_explained() -> None:
    with pytest.raises(DataError, match=r"an address that fsspec can open, is expected; got moon://a, of which"):
        write(RECIPE, "moon://a")
