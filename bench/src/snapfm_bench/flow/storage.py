"""Folders of tensors and JSON that appear complete or not at all; safetensors, never pickle.

A folder is written under a hidden name beside its final place, flushed to disk, and renamed. A process killed at any moment
leaves the old folder, the new folder, or a hidden leftover that the next write removes. Imports errors and disk only.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from snapfm.errors import CheckpointError, require
from snapfm.locking import sync

_LARGEST_JSON = 2**24  # bytes: those of a model and of the record of its training are some thousands


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a new folder, replacing an existing one."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial, old = folder.with_name(f".{folder.name}.partial"), folder.with_name(f".{folder.name}.old")
    for leftover in (partial, old):
        shutil.rmtree(leftover, ignore_errors=True)
    partial.mkdir()
    for name, content in contents.items():
        _write(partial / name, content)
    sync(partial)
    # A folder cannot be replaced in one system call, so for an instant there is none; it is never half written.
    if folder.exists():
        os.rename(folder, old)
    os.rename(partial, folder)
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def write_file(file: Path, content: bytes) -> None:
    """Write one file, replacing an existing one in one step."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.partial")
    try:
        _write(partial, content)
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)
    sync(file.parent)


def pack_tensors(tensors: Mapping[str, Tensor], half: bool = False) -> bytes:
    """Encode tensors as safetensors; complex ones as pairs of real numbers, which every version of it supports.

    With `half`, all are rounded to float16.
    """
    safetensors = require("safetensors.torch", "checkpoints", "", of="snapfm-bench")
    real = {name: _real(tensor) for name, tensor in tensors.items()}
    packed: bytes = safetensors.save({name: tensor.half() for name, tensor in real.items()} if half else real)
    return packed


def unpack_tensors(file: Path, content: bytes) -> dict[str, Tensor]:
    """Decode safetensors; complex tensors are returned as pairs, see `restore`."""
    safetensors = require("safetensors", "checkpoints", "", of="snapfm-bench")
    loader = require("safetensors.torch", "checkpoints", "", of="snapfm-bench")
    try:
        tensors: dict[str, Tensor] = loader.load(content)
    except safetensors.SafetensorError as damage:
        raise CheckpointError(
            f"{file} is expected to hold safetensors; reading it gave '{damage}'. The file is damaged: copy it again, "
            "or train again."
        ) from damage
    return tensors


def restore(values: Tensor, like: Tensor) -> Tensor | None:
    """Return stored values in the form of a parameter, or None if shape or dtype differ; float16 is stored float32."""
    if values.dtype == torch.float16:
        values = values.float()
    if like.is_complex() and values.shape == (*like.shape, 2) and values.dtype == like.real.dtype:
        return torch.view_as_complex(values)
    if values.shape == like.shape and values.dtype == like.dtype:
        return values
    return None


def pack_json(document: Mapping[str, Any]) -> bytes:
    """Encode a document as readable JSON; NaN is refused."""
    return (json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON document that must be an object, of at most 16 MB."""
    if file.is_file() and (size := file.stat().st_size) > _LARGEST_JSON:
        raise CheckpointError(
            f"{file} is expected to hold at most {_LARGEST_JSON:,} bytes of JSON; got {size:,}. Point to a file snapfm wrote."
        )
    content = read_bytes(file)
    try:
        document = json.loads(content)
    except RecursionError as depth:
        raise CheckpointError(
            f"{file} is expected to hold JSON of a few levels; got some nested too deeply to be read. Point to a file snapfm "
            "wrote."
        ) from depth
    except ValueError as damage:
        raise CheckpointError(
            f"{file} is expected to hold JSON; reading it gave '{damage}'. The file is damaged: copy it again, or "
            "train again."
        ) from damage
    if not isinstance(document, dict):
        raise CheckpointError(
            f"{file} is expected to hold a JSON object; got {type(document).__name__}. Point to a file snapfm wrote."
        )
    return document


def read_bytes(file: Path) -> bytes:
    """Read a file that must exist."""
    if not file.is_file():
        raise CheckpointError(
            f"{file.parent} is expected to hold {file.name}; it is missing. Copy the whole folder again, or train "
            "again."
        )
    return file.read_bytes()


def _real(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().cpu()
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).contiguous()


def _write(file: Path, content: bytes) -> None:
    """Write a file to disk, past the system's buffers."""
    with open(file, "wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
