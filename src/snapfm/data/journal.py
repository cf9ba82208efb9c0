"""The journal of a data file in the making: whose it is, and which blocks are safely on disk.

One JSON line for the recipe, then one per finished block, each pushed to disk before the next block starts. A line
that a killed process left half written is dropped. The open journal is also the lock: one process per file.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from snapfm.errors import DataError


class Journal:
    """An open, locked journal. `identity` is None while it is empty; `blocks` are those that are finished."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            os.close(self._handle)
            raise DataError(
                f"{file.parent} is expected to be written by one process at a time; another one is at it. Wait for it, "
                "or write to another file."
            ) from busy
        self.identity, self.blocks = self._read()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)

    def clear(self) -> None:
        """Forget all entries: what they speak of is gone."""
        os.ftruncate(self._handle, 0)
        self.identity, self.blocks = None, set()

    def begin(self, identity: Mapping[str, Any]) -> None:
        """Write whose journal this is; the store it speaks of must exist by now."""
        self._append({"identity": dict(identity)})
        self.identity = dict(identity)

    def finish(self, block: int) -> None:
        """Note that a block is on disk."""
        self._append({"block": block})
        self.blocks.add(block)

    def _append(self, entry: Mapping[str, Any]) -> None:
        os.write(self._handle, (json.dumps(entry) + "\n").encode())
        os.fsync(self._handle)

    def _read(self) -> tuple[dict[str, Any] | None, set[int]]:
        content = self._file.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            os.ftruncate(self._handle, len(whole))
        entries = [json.loads(line) for line in whole.splitlines()]
        if not entries:
            return None, set()
        return entries[0]["identity"], {entry["block"] for entry in entries[1:]}
