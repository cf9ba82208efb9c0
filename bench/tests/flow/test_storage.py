import os
from pathlib import Path

import pytest
import torch

from snapfm.errors import CheckpointError
from snapfm_bench.flow import storage
from snapfm_bench.flow.storage import (
    pack_json,
    pack_tensors,
    read_json,
    restore,
    unpack_tensors,
    write_file,
    write_folder,
)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", {"one": b"1", "two": b"2"})
    write_folder(tmp_path / "a", {"three": b"3"})
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["three"]
    assert (tmp_path / "a" / "three").read_bytes() == b"3"


def test_a_failed_write_leaves_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "a", {"one": b"1"})

    def full(handle: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_folder(tmp_path / "a", {"one": b"2", "two": b"2"})
    with pytest.raises(OSError, match="no space left"):
        write_folder(tmp_path / "b", {"one": b"2"})
    monkeypatch.undo()
    assert (tmp_path / "a" / "one").read_bytes() == b"1"
    assert not (tmp_path / "b").exists()
    write_folder(tmp_path / "b", {"one": b"2"})
    assert names(tmp_path / "b") == ["one"]


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "deep" / "record", b"old")
    monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError("killed here")))
    with pytest.raises(OSError, match="killed here"):
        write_file(tmp_path / "deep" / "record", b"new")
    assert (tmp_path / "deep" / "record").read_bytes() == b"old"


def test_tensors_come_back_to_the_bit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tensors = {
        "real": torch.randn(3, 5),
        "complex": torch.randn(2, 3, dtype=torch.complex64),
        "pair": torch.randn(4, 2, dtype=torch.float64),
        "transposed": torch.randn(3, 5).T,
    }
    back = unpack_tensors(tmp_path / "t", pack_tensors(tensors))
    for name, tensor in tensors.items():
        value = restore(back[name], tensor)
        assert value is not None
        assert torch.equal(value, tensor)
    assert restore(back["real"], torch.zeros(3, 4)) is None
    assert restore(back["real"], torch.zeros(3, 5, dtype=torch.float64)) is None


def test_json_must_be_an_object(tmp_path: Path) -> None:
    write_file(tmp_path / "list.json", b"[1]")
    with pytest.raises(CheckpointError, match=r"expected to hold a JSON object; got list\. Point to a file"):
        read_json(tmp_path / "list.json")
    write_file(tmp_path / "cut.json", b'{"a": ')
    with pytest.raises(CheckpointError, match=r"expected to hold JSON; reading it gave .*damaged: copy it again"):
        read_json(tmp_path / "cut.json")
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack_json({"loss": float("nan")})
