import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from snapfm.errors import CheckpointError
from snapfm_bench.flow import (
    Checkpoint,
    FNOVelocity,
    load_checkpoint,
    round_weights,
    save_checkpoint,
    shipped,
    shipped_names,
)
from snapfm_bench.flow.checkpoint import _values
from snapfm_bench.flow.storage import pack_tensors


@pytest.fixture
def folder(tmp_path: Path, checkpoint: Checkpoint) -> Path:
    save_checkpoint(tmp_path / "model", checkpoint)
    return tmp_path / "model"


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = folder / "model.json"
    model = json.loads(file.read_text())
    change(model)
    file.write_text(json.dumps(model))


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    return str(caught.value).replace(str(folder), "FOLDER")


def test_round_trip_is_bit_exact(folder: Path, checkpoint: Checkpoint, fields: torch.Tensor) -> None:
    loaded = load_checkpoint(str(folder))
    assert (loaded.grid, loaded.equation, loaded.preset) == (checkpoint.grid, "heat", "tiny")
    assert loaded.record == checkpoint.record
    assert loaded.network.settings == checkpoint.network.settings
    before, after = checkpoint.network.state_dict(), loaded.network.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(loaded.network(fields, 0.4), checkpoint.network(fields, 0.4))
    assert not loaded.network.training


def test_saving_twice_gives_the_same_files(folder: Path, checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "again", checkpoint)
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["model.json", "record.json", "weights.safetensors"]
    assert all((folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in files)


def test_missing_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none") == (
        "load_checkpoint(folder) expects a folder with model.json and weights.safetensors; FOLDER does not exist. "
        "Check the path, or make one with `snapfm train`."
    )


@pytest.mark.parametrize("name", ["model.json", "weights.safetensors", "record.json"])
def test_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert refusal(folder) == (
        f"FOLDER is expected to hold {name}; it is missing. Copy the whole folder again, or train again."
    )


def test_cut_weights(folder: Path) -> None:
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    message = refusal(folder)
    assert message.startswith("FOLDER/weights.safetensors is expected to hold safetensors; reading it gave '")
    assert message.endswith("'. The file is damaged: copy it again, or train again.")


def test_half_the_space_and_the_same_bits_for_rounded_weights(checkpoint: Checkpoint, tmp_path: Path) -> None:
    before = {name: value.clone() for name, value in checkpoint.network.state_dict().items()}
    round_weights(checkpoint.network)
    save_checkpoint(tmp_path / "whole", checkpoint)
    save_checkpoint(tmp_path / "half", checkpoint, half=True)
    sizes = [(tmp_path / name / "weights.safetensors").stat().st_size for name in ("half", "whole")]
    assert sizes[0] < 0.75 * sizes[1]  # the names take their part in files this small
    loaded = load_checkpoint(tmp_path / "half").network.state_dict()
    for name, value in checkpoint.network.state_dict().items():
        assert torch.equal(loaded[name], value)
        torch.testing.assert_close(value, before[name], rtol=2**-10, atol=1e-7)
    assert any(not torch.equal(value, before[name]) for name, value in loaded.items())


@pytest.mark.parametrize(
    ("settings", "kind"),
    [({"pairing": "independent"}, "plain"), ({"pairing": "rows"}, "law-aware"), ({}, "law-aware")],
)
def test_a_checkpoint_says_how_it_was_trained(checkpoint: Checkpoint, settings: dict[str, str], kind: str) -> None:
    assert replace(checkpoint, record={"settings": settings}).training == kind
    assert checkpoint.training == "unknown"


def test_one_flipped_bit_in_the_weights(folder: Path) -> None:
    weights = folder / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert re.fullmatch(
        r"FOLDER/weights\.safetensors is expected to have the SHA-256 \w{12}… that model\.json names; got \w{12}…\. "
        r"The file changed after it was written: copy the whole folder again, or train again\.",
        refusal(folder),
    )


def test_wrong_version(folder: Path) -> None:
    edit(folder, lambda model: model.update(version=2))
    assert refusal(folder) == (
        "FOLDER/model.json is expected to have format 'snapfm-velocity', version 1; got format 'snapfm-velocity', "
        "version 2. Load it with the snapfm that wrote it, or train again with this one."
    )


def test_not_a_checkpoint(folder: Path) -> None:
    (folder / "model.json").write_text("{}")
    assert "got format None, version None. Load it" in refusal(folder)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda model: model.pop("network"), "KeyError('network')"),
        (lambda model: model["network"].pop("width"), "width"),
        (lambda model: model["network"].update(depth=3), "depth"),
        (lambda model: model["network"].update(modes=[9, 9]), "got (9, 9)"),
        (lambda model: model["axes"].pop(), "axes of shape (6,) for a network of shape (6, 8)"),
        (lambda model: model.update(equation=None), "equation"),
        (lambda model: model.update(weights={}), "sha256"),
    ],
)
def test_unusable_description(folder: Path, change: Callable[[dict[str, Any]], None], cause: str) -> None:
    edit(folder, change)
    message = refusal(folder)
    assert message.startswith("FOLDER/model.json is expected to hold network (shape, modes, width,")
    assert cause in message
    assert message.endswith(". Restore the file as snapfm wrote it.")


def test_weights_of_another_network(folder: Path) -> None:
    edit(folder, lambda model: model["network"].update(width=4, layers=1))
    message = refusal(folder)
    assert message.startswith("FOLDER/weights.safetensors is expected to hold the ")
    assert "weights of the network in model.json; these do not fit: " in message
    assert "(unknown)" in message
    assert message.endswith(" more. Use the weights.safetensors that was saved with this model.json.")


def test_missing_and_misshapen_weights_are_named(folder: Path, network: FNOVelocity) -> None:
    state = network.state_dict()
    state["fno.lifting.fcs.0.bias"] = state["fno.lifting.fcs.0.bias"].double()
    del state["fno.lifting.fcs.1.bias"]
    (folder / "weights.safetensors").write_bytes(pack_tensors(state))
    assert "fno.lifting.fcs.0.bias ((6,), float64), fno.lifting.fcs.1.bias (missing). Use" in refusal(folder)


LARGE = {
    "width": {"width": 200_000},
    "lifting": {"lifting": 2**40},
    "projection": {"projection": 2**40},
    "layers": {"layers": 10**7},
    "embedding": {"embedding": 2**60},
    "patch": {"patch": 10**9, "modes": [1, 1]},
}


@pytest.mark.parametrize("name", LARGE)
def test_a_network_that_is_larger_than_its_weights_is_not_built(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snapfm_bench.flow.checkpoint.network_of", lambda settings: pytest.fail("built"))
    edit(folder, lambda model: model["network"].update(LARGE[name]))
    words = r"FOLDER/model.json is expected to describe a network of about the [\d,]+ numbers in weights.safetensors; got one of "
    assert re.match(rf"{words}about [\d,]+\. Restore both files as snapfm wrote them\.$", refusal(folder))


@pytest.mark.parametrize("kind", ["fields", "waves"])
def test_a_frame_of_large_fields_is_not_built(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapfm_bench.flow.checkpoint.network_of", lambda settings: pytest.fail("built"))
    shape = [30_000, 30_000] if kind == "fields" else [30_000, 2]  # all waves of space are a square matrix
    frame = {"shape": shape, "size": 2, "width": 4, "layers": 1, "separable": kind == "waves"}

    def change(model: dict[str, Any]) -> None:
        model["network"] = frame
        for axis, size in zip(model["axes"], shape):
            axis["size"] = size

    edit(folder, change)
    assert "is expected to describe a network of about the" in refusal(folder)


def test_a_large_grid_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapfm_bench.flow.checkpoint.network_of", lambda settings: pytest.fail("built"))

    def change(model: dict[str, Any]) -> None:
        model["network"]["shape"] = [10**6, 10**6]
        for axis in model["axes"]:
            axis["size"] = 10**6

    edit(folder, change)
    assert "is expected to describe a network of about the" in refusal(folder)


def test_numbers_of_another_kind(folder: Path) -> None:
    edit(folder, lambda model: model["network"].update(width=24.0))
    assert "got TypeError('width=24.0')" in refusal(folder)


def test_a_network_that_cannot_be_built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(settings: object) -> None:
        raise KeyError("five axes")

    monkeypatch.setattr("snapfm_bench.flow.checkpoint.network_of", broken)
    assert refusal(folder) == (
        "FOLDER/model.json is expected to describe a network that can be built; got KeyError('five axes'). Restore the file as "
        "snapfm wrote it."
    )


@pytest.mark.parametrize("name", shipped_names())
def test_the_size_of_a_network_is_known_before_it_is_built(name: str) -> None:
    """Within the bounds that are allowed, so that no network that fits its weights is refused."""
    network = shipped(name)
    numbers = sum(one.numel() * (1 + one.is_complex()) for one in (*network.parameters(), *network.buffers()))
    assert numbers / 2 <= _values(network.settings) <= 2 * numbers


@pytest.mark.parametrize("name", ["model.json", "record.json"])
def test_deeply_nested_json(folder: Path, name: str) -> None:
    (folder / name).write_text('{"a": ' * 100_000 + "1" + "}" * 100_000)
    assert refusal(folder) == (
        f"FOLDER/{name} is expected to hold JSON of a few levels; got some nested too deeply to be read. Point to a file snapfm "
        "wrote."
    )


def test_a_huge_file_is_not_read(folder: Path) -> None:
    with open(folder / "model.json", "r+b") as file:
        file.truncate(2**34)  # takes no space on the disk
    assert refusal(folder) == (
        "FOLDER/model.json is expected to hold at most 16,777,216 bytes of JSON; got 17,179,869,184. Point to a file snapfm "
        "wrote."
    )
