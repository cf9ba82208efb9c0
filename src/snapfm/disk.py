"""What has to be on a disk before work goes on. Imports nothing of snapfm."""

from __future__ import annotations

import os
from pathlib import Path


def sync(entry: Path) -> None:
    """Flush a file, or the entries of a folder, past the system's buffers: it, and a rename in it, survives a power cut."""
    handle = os.open(entry, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
