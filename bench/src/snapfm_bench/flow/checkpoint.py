"""Checkpoints of a velocity network: a folder with weights.safetensors, model.json and record.json; and the shipped ones.

Loading checks everything: files, format version, checksum, settings and every weight. May import errors and grid; knows no
problem.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from snapfm.errors import CheckpointError, SnapfmError, UnknownName
from snapfm.grid import Axis, Grid
from snapfm.text import meant
from snapfm_bench.flow.frame import FrameSettings, FrameVelocity
from snapfm_bench.flow.network import NetworkSettings
from snapfm_bench.flow.presets import Settings, VelocityNetwork, network_of
from snapfm_bench.flow.storage import (
    pack_json,
    pack_tensors,
    read_bytes,
    read_json,
    restore,
    unpack_tensors,
    write_folder,
)

FORMAT = "snapfm-velocity"
VERSION = 1
WEIGHTS, MODEL, RECORD = "weights.safetensors", "model.json", "record.json"
# A network may have this many numbers whatever its weights, so that those that do not fit are named; beyond, some more than they.
_UNSEEN, _MORE = 2**26, 4
_LAYER = 2**14  # numbers that a layer counts for at least: it is Python objects too
_SHIPPED = files("snapfm_bench") / "models"


@dataclass(frozen=True)
class Checkpoint:
    """A network with the grid of its fields, the equation, the preset and the record of its training."""

    network: VelocityNetwork
    grid: Grid
    equation: str
    preset: str
    record: Mapping[str, Any]

    @property
    def training(self) -> Literal["plain", "law-aware", "unknown"]:
        """How it was trained: "plain", with noise and fields drawn independently, or "law-aware", with noise paired for laws."""
        settings = self.record.get("settings")
        if settings is None:
            return "unknown"
        return "plain" if settings.get("pairing") == "independent" else "law-aware"


def round_weights(network: nn.Module) -> None:
    """Round the weights of a network, in place, to float16, so that storing them in half the space loses nothing."""
    with torch.no_grad():
        for value in network.state_dict().values():
            real = torch.view_as_real(value) if value.is_complex() else value
            real.copy_(real.half())


def save_checkpoint(folder: str | Path, checkpoint: Checkpoint, half: bool = False) -> None:
    """Write a checkpoint as a folder, created only once complete; an existing one is replaced.

    With `half`, weights are stored as float16; call `round_weights` first, so that the loaded network equals the given one.
    """
    weights = pack_tensors(checkpoint.network.state_dict(), half)
    model = {
        "format": FORMAT,
        "version": VERSION,
        "equation": checkpoint.equation,
        "preset": checkpoint.preset,
        "network": asdict(checkpoint.network.settings),
        "axes": [asdict(axis) for axis in checkpoint.grid.axes],
        "weights": {"file": WEIGHTS, "sha256": hashlib.sha256(weights).hexdigest()},
        "record": RECORD,
    }
    if isinstance(checkpoint.network, FrameVelocity) and checkpoint.network.error is not None:
        model["error"] = checkpoint.network.error
    contents = {WEIGHTS: weights, MODEL: pack_json(model), RECORD: pack_json(checkpoint.record)}
    write_folder(Path(folder), contents)


def load_checkpoint(folder: str | Path) -> Checkpoint:
    """Read and check a checkpoint; its network is on the CPU, in evaluation mode."""
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(
            f"load_checkpoint(folder) expects a folder with {MODEL} and {WEIGHTS}; {folder} does not exist. "
            "Check the path, or make one with `snapfm train`."
        )
    model = read_json(folder / MODEL)
    version = (model.get("format"), model.get("version"))
    if version != (FORMAT, VERSION):
        raise CheckpointError(
            f"{folder / MODEL} is expected to have format '{FORMAT}', version {VERSION}; got format {version[0]!r}, "
            f"version {version[1]!r}. Load it with the snapfm that wrote it, or train again with this one."
        )
    settings, grid = _settings(folder / MODEL, model)
    content = read_bytes(folder / WEIGHTS)
    tensors = unpack_tensors(folder / WEIGHTS, content)
    network = _built(folder, settings, tensors)
    _load_weights(folder, network, tensors)
    # After loading: weights of another network get the message that says so.
    found = hashlib.sha256(content).hexdigest()
    wanted = model["weights"]["sha256"]
    if found != wanted:
        raise CheckpointError(
            f"{folder / WEIGHTS} is expected to have the SHA-256 {wanted[:12]}… that {MODEL} names; got {found[:12]}…. "
            "The file changed after it was written: copy the whole folder again, or train again."
        )
    if isinstance(network, FrameVelocity):
        network.error = model.get("error")
    return Checkpoint(network.eval(), grid, model["equation"], model["preset"], read_json(folder / RECORD))


def shipped_names() -> list[str]:
    """List the names `shipped` accepts."""
    return sorted(entry.name for entry in _SHIPPED.iterdir() if (entry / MODEL).is_file()) if _SHIPPED.is_dir() else []


def default_model(equation: str) -> str:
    """Return the name of the shipped model that is used by default for an equation: trained by plain flow matching."""
    return f"{equation}-plain"


def shipped(name: str) -> VelocityNetwork:
    """Load a shipped velocity network; its record.json says how it was trained and how good its samples are.

    EQUATION-plain is trained by plain flow matching, EQUATION-small with noise paired for laws (law-aware).
    """
    if name not in shipped_names():
        raise UnknownName(
            f"shipped(name) expects one of {shipped_names()}; got {name!r}. {meant(name, shipped_names())}Train another with "
            "`snapfm train`, and load it with load_checkpoint(folder)."
        )
    with as_file(_SHIPPED / name) as folder:
        return load_checkpoint(folder).network


def _settings(file: Path, model: Mapping[str, Any]) -> tuple[Settings, Grid]:
    """Rebuild the frozen values from JSON, which has lists but no tuples."""
    try:
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in model["network"].items()
        }
        for name, value in values.items():
            if not all(isinstance(one, int | str) for one in (value if isinstance(value, tuple) else (value,))):
                raise TypeError(f"{name}={value!r}")
        # The fields tell which kind it is: files from before there were two kinds do not name one.
        settings: Settings = FrameSettings(**values) if "size" in values else NetworkSettings(**values)
        grid = Grid(tuple(Axis(**axis) for axis in model["axes"]))
        texts = (model["equation"], model["preset"], model["weights"]["sha256"])
        if settings.shape != grid.shape or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"axes of shape {grid.shape} for a network of shape {settings.shape}")
    except (SnapfmError, KeyError, TypeError, ValueError, AttributeError) as cause:
        keys = ", ".join(field.name for field in fields(NetworkSettings))
        raise CheckpointError(
            f"{file} is expected to hold network ({keys}), axes, equation, preset and weights; got {cause!r}. "
            "Restore the file as snapfm wrote it."
        ) from cause
    return settings, grid


def _built(folder: Path, settings: Settings, tensors: Mapping[str, Tensor]) -> VelocityNetwork:
    """Build the network, if its size is that of the weights: a few bytes of JSON could ask for any amount of memory."""
    stored, asked = sum(one.numel() for one in tensors.values()), _values(settings)
    if asked > max(_UNSEEN, _MORE * stored):
        raise CheckpointError(
            f"{folder / MODEL} is expected to describe a network of about the {stored:,} numbers in {WEIGHTS}; got one of about "
            f"{asked:,}. Restore both files as snapfm wrote them."
        )
    try:
        return network_of(settings)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as cause:
        raise CheckpointError(
            f"{folder / MODEL} is expected to describe a network that can be built; got {cause!r}. Restore the file as snapfm "
            "wrote it."
        ) from cause


def _values(settings: Settings) -> int:
    """Count the numbers that a network allocates, roughly, without building it."""
    points, axes, width = math.prod(settings.shape), len(settings.shape), settings.width
    if isinstance(settings, FrameSettings):
        size, last = settings.size, settings.shape[-1]
        frame = (
            size * last + (points // last) ** 2 if settings.separable else size * points
        )  # the square: all waves of space
        read = 2 * size + settings.embedding + sum(points // settings.shape[axis] for axis in settings.anchors)
        return points + frame + width * read + settings.layers * max(_LAYER, 4 * width**2)
    channels: int = settings.patch**axes
    mixing = settings.lifting * (width + channels + settings.embedding) + settings.projection * (width + channels)
    spectral = settings.layers * max(_LAYER, width**2 * math.prod(settings.modes))
    return (axes + 1) * math.prod(settings.cells) + mixing + spectral


def _load_weights(folder: Path, network: VelocityNetwork, tensors: Mapping[str, Tensor]) -> None:
    """Fill the network, or say which weights do not fit."""
    expected = network.state_dict()
    weights, misfits = {}, [f"{name} (unknown)" for name in sorted(tensors.keys() - expected.keys())]
    for name, like in expected.items():
        values = restore(tensors[name], like) if name in tensors else None
        if values is None:
            misfits.append(f"{name} ({_describe(tensors[name]) if name in tensors else 'missing'})")
        else:
            weights[name] = values
    if misfits:
        shown = ", ".join(misfits[:3]) + (f" and {len(misfits) - 3} more" if len(misfits) > 3 else "")
        raise CheckpointError(
            f"{folder / WEIGHTS} is expected to hold the {len(expected)} weights of the network in {MODEL}; these do "
            f"not fit: {shown}. Use the {WEIGHTS} that was saved with this {MODEL}."
        )
    network.load_state_dict(weights)


def _describe(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)}, {str(tensor.dtype).removeprefix('torch.')}"
