"""The state of a training run on disk: enough to go on as if it had never stopped.

One folder per saved step, state-00000250 and so on; a new one is whole before the old one goes. Random numbers are no
part of it, since step i draws from (seed, i) alone. Imports errors and storage only.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from snapfm.errors import CheckpointError
from snapfm.flow.storage import (
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


@dataclass(frozen=True)
class State:
    """Everything that changes during training, by parameter name where it is per parameter.

    `momentum` and `scale` are Adam's first and second moments, `average` the moving average that is shipped.
    """

    step: int
    seconds: float
    losses: Tensor
    weights: Mapping[str, Tensor]
    average: Mapping[str, Tensor]
    momentum: Mapping[str, Tensor]
    scale: Mapping[str, Tensor]


def saved_step(out_dir: str | Path) -> int | None:
    """Say at which step a run in this folder would go on, or None if there is none."""
    return max(_steps(Path(out_dir)), default=None)


def save_state(out_dir: Path, state: State, identity: Mapping[str, Any]) -> None:
    """Save a state with the identity of its run, then remove older ones."""
    tensors = {f"{group}/{name}": value for group in _GROUPS for name, value in getattr(state, group).items()}
    run = {"version": VERSION, "step": state.step, "seconds": state.seconds, "identity": identity}
    contents = {_TENSORS: pack_tensors({**tensors, "losses": state.losses}), _RUN: pack_json(run)}
    write_folder(_folder(out_dir, state.step), contents)
    for step in _steps(out_dir):
        if step != state.step:
            shutil.rmtree(_folder(out_dir, step))


def check_run(out_dir: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give what a saved state says of its run, None if there is no state; refuse one of another run.

    `identity` may be a part of a run's, so that a folder can be refused before data are at hand.
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


def load_state(out_dir: Path, identity: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> State | None:
    """Load the newest state, refusing one of another run; None if there is none."""
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
    return State(step=step, seconds=float(run.get("seconds", 0.0)), losses=losses, **groups)


def _check_identity(out_dir: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on with a run whose settings, network or data differ, naming what does."""
    for part in wanted:
        here, there = wanted[part], found.get(part, {})
        if here != there:
            keys = [key for key in {**here, **there} if here.get(key) != there.get(key)]
            ours, theirs = (", ".join(f"{key}={side.get(key)!r}" for key in keys) for side in (here, there))
            raise CheckpointError(
                f"train(out_dir) expects {out_dir} to be empty or to hold a run with {part} {ours}; got one with "
                f"{theirs}. Use the same {part} to resume it, or another folder to start afresh."
            )


def _steps(out_dir: Path) -> list[int]:
    if not out_dir.is_dir():
        return []
    return [int(match[1]) for entry in out_dir.iterdir() if (match := _NAME.fullmatch(entry.name))]


def _folder(out_dir: Path, step: int) -> Path:
    return out_dir / f"state-{step:08d}"
