"""A training run on disk: what identifies it, states to resume it from, and the record of how its weights were made.

A state holds enough to continue as if the run had never stopped. There is one folder per saved step, state-00000250 and so
on; a new one is complete before the old one is removed. Random numbers are not part of it, since step i draws from (seed, i)
alone. A run may be asked for more steps than before: it goes on from its last state, and the record says where. Imports errors
and storage only.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from snapfm.errors import CheckpointError
from snapfm_bench.flow.storage import (
    pack_json,
    pack_tensors,
    read_bytes,
    read_json,
    restore,
    unpack_tensors,
    write_folder,
)

VERSION = 1
_TENSORS, _RUN = "state.safetensors", "state.json"
_NAME = re.compile(r"state-(\d+)")
_GROUPS = ("weights", "average", "momentum", "scale")
_CURVE_POINTS = 200  # of the loss curve; each is the mean over an equal number of steps


def identify_run(network: nn.Module, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Describe settings and network of a run, before its data are known; `save_every` does not change its weights."""
    parameters = dict(network.named_parameters())
    shapes = {name: (tuple(value.shape), value.dtype) for name, value in parameters.items()}
    return {
        "settings": {name: value for name, value in settings.items() if name != "save_every"},
        "network": {
            "kind": repr(getattr(network, "settings", type(network).__name__)),
            "parameters": sum(value.numel() * (2 if value.is_complex() else 1) for value in parameters.values()),
            "shapes": hashlib.sha256(repr(shapes).encode()).hexdigest(),
        },
    }


def identify(network: nn.Module, data: Tensor, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Describe settings, network and data of a run, to tell it from another."""
    values = data.detach().cpu().contiguous().view(torch.uint8).numpy()
    return {
        **identify_run(network, settings),
        "data": {
            "shape": list(data.shape),
            "dtype": str(data.dtype).removeprefix("torch."),
            "sha256": hashlib.sha256(values.data).hexdigest(),
        },
    }


def compose(
    identity: Mapping[str, Any],
    settings: Mapping[str, Any],
    losses: list[float],
    seconds: float,
    extensions: list[dict[str, int]],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the record of how weights were made: `about` as it is, then settings, data, loss curve, time and machine."""
    length = math.ceil(len(losses) / _CURVE_POINTS)
    parts = [losses[start : start + length] for start in range(0, len(losses), length)]
    curve = [
        {"step": min((index + 1) * length, len(losses)), "loss": math.fsum(part) / len(part)}
        for index, part in enumerate(parts)
    ]
    return {
        **about,
        "settings": dict(settings),
        "parameters": identity["network"]["parameters"],
        "data": identity["data"],
        "steps": len(losses),
        **({"extended": extensions} if extensions else {}),
        "seconds": round(seconds, 1),
        "loss_curve": curve,
        "machine": {
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "processor": platform.machine(),
        },
    }


@dataclass(frozen=True)
class TrainingState:
    """Everything that changes during training, by parameter name where it is per parameter.

    `momentum` and `scale` are Adam's first and second moments, `average` the moving average of the weights. `extensions` say at
    which `step` a run `of` so many steps was made longer.
    """

    step: int
    seconds: float
    extensions: list[dict[str, int]]
    losses: Tensor
    weights: Mapping[str, Tensor]
    average: Mapping[str, Tensor]
    momentum: Mapping[str, Tensor]
    scale: Mapping[str, Tensor]


def saved_step(out_dir: str | Path) -> int | None:
    """Return the step at which a run in this folder would resume, or None if there is none."""
    return max(_steps(Path(out_dir)), default=None)


def save_state(out_dir: Path, state: TrainingState, identity: Mapping[str, Any]) -> None:
    """Save a state with the identity of its run, then remove older ones."""
    tensors = {f"{group}/{name}": value for group in _GROUPS for name, value in getattr(state, group).items()}
    run = {
        "version": VERSION, "step": state.step, "seconds": state.seconds, "extended": state.extensions, "identity": identity,
    }  # fmt: skip
    contents = {_TENSORS: pack_tensors({**tensors, "losses": state.losses}), _RUN: pack_json(run)}
    write_folder(_folder(out_dir, state.step), contents)
    for step in _steps(out_dir):
        if step != state.step:
            shutil.rmtree(_folder(out_dir, step))


def check_run(out_dir: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the description in a saved state, None if there is no state; refuse a state of another run.

    A run of fewer steps is none: it is made longer. `identity` may be a part of a run's, so that a folder can be refused before
    there are data.
    """
    step = saved_step(out_dir)
    if step is None:
        return None
    folder = _folder(out_dir, step)
    run = read_json(folder / _RUN)
    if run.get("version") != VERSION:
        raise CheckpointError(
            f"{folder} is expected to be a training state of version {VERSION}; got {run.get('version')!r}. "
            "Give train(out_dir) an empty folder."
        )
    _check_identity(out_dir, run.get("identity", {}), identity)
    return {**run, "step": step}


def load_state(out_dir: Path, identity: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> TrainingState | None:
    """Load the newest state, None if there is none; refuse a state of another run."""
    run = check_run(out_dir, identity)
    if run is None:
        return None
    step = int(run["step"])
    folder = _folder(out_dir, step)
    tensors = unpack_tensors(folder / _TENSORS, read_bytes(folder / _TENSORS))

    def take(name: str, like: Tensor) -> Tensor:
        value = restore(tensors[name], like) if name in tensors else None
        if value is None:
            raise CheckpointError(
                f"{folder / _TENSORS} is expected to hold {name} of shape {tuple(like.shape)}; it does not. The "
                "state is damaged: give train(out_dir) an empty folder."
            )
        return value

    groups = {group: {name: take(f"{group}/{name}", like) for name, like in parameters.items()} for group in _GROUPS}
    losses = take("losses", torch.zeros(step, dtype=torch.float64))
    extensions, before = list(run.get("extended", [])), _length(run["identity"])
    if before != _length(identity):
        extensions.append({"step": step, "of": before})
    return TrainingState(
        step=step, seconds=float(run.get("seconds", 0.0)), extensions=extensions, losses=losses, **groups
    )


def _check_identity(out_dir: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to resume a run whose settings, network or data differ, and name the difference."""
    for part in wanted:
        here, there = wanted[part], found.get(part, {})
        keys = [key for key in {**here, **there} if here.get(key) != there.get(key)]
        if keys == ["steps"] and _length(wanted) > _length(found):
            continue
        if keys:
            ours, theirs = (", ".join(f"{key}={side.get(key)!r}" for key in keys) for side in (here, there))
            more = ", or more steps to make it longer" if keys == ["steps"] else ""
            raise CheckpointError(
                f"train(out_dir) expects {out_dir} to be empty or to hold a run with {part} {ours}; got one with "
                f"{theirs}. Use the same {part} to resume it{more}, or another folder to start afresh."
            )


def _length(identity: Mapping[str, Any]) -> int:
    """Return the number of steps of a run."""
    return int(identity.get("settings", {}).get("steps", 0))


def _steps(out_dir: Path) -> list[int]:
    if not out_dir.is_dir():
        return []
    return [int(match[1]) for entry in out_dir.iterdir() if (match := _NAME.fullmatch(entry.name))]


def _folder(out_dir: Path, step: int) -> Path:
    return out_dir / f"state-{step:08d}"
