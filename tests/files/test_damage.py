"""Damaged files: bits that changed and chunks that were lost are named wherever fields are read, never read as numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from snapfm.errors import DataError
from snapfm.files import Named, Projecting, archive, load, project_file, stream
from snapfm.files.engines import Report
from snapfm.files.layout import Drawn, Layout, Variable
from snapfm.files.opened import opened
from snapfm.files.run import totals
from snapfm.files.well import export_well

zarr = pytest.importorskip("zarr")

COUNT, BLOCK, LAST = 11, 8, "u/c/1/0/0"  # chunks of 4 samples, so that a shard has two; the last shard is not full


class Waves:
    """Fields of random numbers with a param and a certificate for each."""

    command, count, seed, block, shape, dtype, threads = "waves", COUNT, 7, BLOCK, (3, 2), "float64", None

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at

    def asked(self) -> dict[str, Any]:
        return {"fields": "waves", "count": self.count}

    def identity(self) -> dict[str, Any]:
        return self.asked()

    def layout(self) -> Layout:
        u = Variable("float64", {}, (3, 2), ("x", "t"))
        number = Variable("float64", {})
        variables = {"u": u, "alpha": number, "status": Variable("int8", {}), "violation": number}
        return Layout({"title": "waves", "snapfm": "0"}, variables)

    def draw(self, start: int, stop: int, report: Report) -> Drawn:
        if start == self.stop_at:
            raise KeyboardInterrupt
        values = np.random.default_rng(0).standard_normal((self.count, 7))[start:stop]
        zeros = np.zeros(stop - start)
        return Drawn({
            "u": values[:, :6].reshape(-1, 3, 2), "alpha": values[:, 6], "status": zeros, "violation": zeros
        })  # fmt: skip


def flip(file: Path, byte: int) -> None:
    """Change one bit."""
    content = bytearray(file.read_bytes())
    content[byte] ^= 4
    file.write_bytes(content)


def loaded(file: Path) -> None:
    load(file)


def exported(file: Path) -> None:
    pytest.importorskip("h5py")
    export_well(file, file.with_suffix(".hdf5"))


def projected(file: Path) -> None:
    (file.parent / "laws_of_damage.py").write_text(
        "import snapfm\nlaws = [snapfm.Equality('first', lambda u, p: u[:, 0] - p['alpha'])]\n"
    )
    laws = Named("--laws", "laws_of_damage:laws", str(file.parent))
    project_file(Projecting(file, laws, params=("alpha",), batch=4), file.parent / "projected.zarr")


READERS = pytest.mark.parametrize("reads", [loaded, exported, projected])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(stream(Waves(), tmp_path / "a.zarr").path)


def test_every_chunk_has_a_checksum(file: Path) -> None:
    for _, array in zarr.open_group(file, mode="r").arrays():
        described = json.loads((file / array.path / "zarr.json").read_text())["codecs"]
        inner = described[0]["configuration"]["codecs"] if array.shards else described
        assert inner[-1]["name"] == "crc32c"


@READERS
@pytest.mark.parametrize(
    ("chunk", "byte", "samples"),
    [
        ("u/c/0/0/0", 40, "0 to 3"),
        ("u/c/0/0/0", 300, "4 to 7"),
        ("u/c/0/0/0", -10, "0 to 3"),  # the index of the shard
        (LAST, 40, "8 to 10"),
        ("alpha/c/1", 20, "8 to 10"),
    ],
)
def test_a_flipped_bit_is_named(chunk: str, byte: int, samples: str, reads: Callable[[Path], None], file: Path) -> None:
    flip(file / chunk, byte)
    words = rf"every chunk of {file} is expected .*; {chunk} \(samples {samples}\) does not: '.*checksum.*'\. Restore"
    with pytest.raises(DataError, match=words):
        reads(file)


@READERS
@pytest.mark.parametrize("lost", [LAST, "alpha/c/0", "sample/c/0", "status/zarr.json"])
def test_a_lost_file_is_named(lost: str, reads: Callable[[Path], None], file: Path) -> None:
    (file / lost).unlink()
    words = rf"{file} is expected to hold every chunk of its samples; 1 file of it is lost, {lost}\. Copy it again"
    with pytest.raises(DataError, match=words):
        reads(file)
    with pytest.raises(DataError, match=words):  # nor does it pass for finished
        stream(Waves(), file)


def test_a_truncated_or_empty_file_is_named(file: Path) -> None:
    shard = file / LAST
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=rf"; {LAST} \(samples 8 to 10\) does not"):
        load(file)
    shard.write_bytes(b"")
    with pytest.raises(DataError, match=f"1 file of it is lost, {LAST}"):
        load(file)


def test_several_lost_files_are_counted(file: Path) -> None:
    shutil.rmtree(file / "u" / "c")
    with pytest.raises(DataError, match=r"; 2 files of it are lost, the first u/c/0/0/0\."):
        load(file)


@pytest.mark.parametrize("lost", [False, True])
def test_files_at_addresses_are_checked(lost: bool) -> None:
    files = pytest.importorskip("fsspec").filesystem("memory")
    url, chunk = f"memory:///damage{lost}/a.zarr", f"/damage{lost}/a.zarr/{LAST}"
    stream(Waves(), url)
    load(url)
    content = bytearray(files.cat_file(chunk))
    content[40] ^= 4
    files.rm_file(chunk)
    if not lost:
        files.pipe_file(chunk, bytes(content))
    words = f"{url} is .* lost, {LAST}" if lost else rf"every chunk of {url} is .*; {LAST} \(samples 8 to 10\)"
    with pytest.raises(DataError, match=words):
        load(url)


@pytest.mark.parametrize("lost", ["u/c/0/0/0", "alpha/c/0", "status/c/0"])
def test_a_block_of_an_unfinished_run_that_lost_files_is_computed_again(lost: str, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "b.zarr"
    with pytest.raises(KeyboardInterrupt):
        stream(Waves(stop_at=BLOCK), out)
    (tmp_path / "b.zarr.part" / "store" / lost).unlink()
    assert stream(Waves(), out).found == 0
    assert torch.equal(load(out)[0], load(file)[0])


def test_an_unfinished_run_that_lost_the_description_of_a_variable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        stream(Waves(stop_at=BLOCK), tmp_path / "b.zarr")
    (tmp_path / "b.zarr.part" / "store" / "u" / "zarr.json").unlink()
    with pytest.raises(DataError, match=r"b\.zarr\.part is expected .* lost, u/zarr\.json\."):
        stream(Waves(), tmp_path / "b.zarr")


def test_other_bits_in_an_unfinished_run_are_named_when_they_are_read(tmp_path: Path) -> None:
    out = tmp_path / "b.zarr"
    with pytest.raises(KeyboardInterrupt):
        stream(Waves(stop_at=BLOCK), out)
    for chunk in ("u/c/0/0/0", "violation/c/0"):
        flip(tmp_path / "b.zarr.part" / "store" / chunk, 20)
    written = stream(Waves(), out)
    assert written.found == BLOCK
    with pytest.raises(DataError, match=rf"every chunk of {out} .*; violation/c/0 \(samples 0 to 7\) does not"):
        totals(written, "keep")
    with pytest.raises(DataError, match=rf"every chunk of {out} .*; u/c/0/0/0 \(samples 0 to 3\) does not"):
        load(out)


def test_files_of_before_there_were_checksums_are_read_and_must_be_complete(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = archive._array

    def without(root: Any, *more: Any) -> Any:
        made = plain(root, *more)
        compressors = [one for one in made.compressors if type(one).__name__ != "Crc32cCodec"]
        assert len(compressors) == 1
        words = {"chunks": made.chunks, "shards": made.shards, "fill_value": made.fill_value, "dtype": made.dtype}
        return root.create_array(
            made.basename, shape=made.shape, compressors=compressors, attributes=made.attrs.asdict(), overwrite=True,
            dimension_names=made.metadata.dimension_names, **words,
        )  # fmt: skip

    monkeypatch.setattr(archive, "_array", without)
    old = tmp_path / "old.zarr"
    stream(Waves(), old)
    assert "crc32c" not in (old / "alpha" / "zarr.json").read_text()
    assert torch.equal(load(old)[0], load(file)[0])
    (old / "alpha" / "c" / "1").unlink()
    with pytest.raises(DataError, match=r"lost, alpha/c/1\."):
        load(old)


def test_files_of_others_may_leave_chunks_out_and_name_damage(tmp_path: Path) -> None:
    root = zarr.create_group(tmp_path / "theirs.zarr")
    u = root.create_array("u", shape=(4, 6), chunks=(2, 3), dtype="float64", fill_value=0.0)
    u[2:, 3:] = np.random.default_rng(0).standard_normal((2, 3))
    found = opened(tmp_path / "theirs.zarr")
    assert not found.read("u", 0, 2).any()
    (tmp_path / "theirs.zarr" / "u" / "c" / "1" / "1").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"theirs\.zarr is expected .*; u/c/1/1 \(samples 2 to 3\) does not"):
        found.read("u", 0, 4)
