"""What a run costs besides its samples: the driver of a Ray cluster for each block, and looking for the blocks that are finished.

Processor time of the driver, its memory, and the size of a sample on disk: from these docs/many-machines.md reckons what runs of
10⁷ samples on 1 000 workers ask of the one process that coordinates them. Needs snapfm[ray].
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from snapfm.data import Recipe, write
from snapfm.data.place import Folder
from snapfm.evidence.machine import resident_bytes
from snapfm.runs import OnRay, Report

FEW, MANY = 500, 5000  # blocks that do nothing
MARKS = 31_250  # blocks of 32 of a million samples
SAMPLED = Recipe("burgers-ic", count=320)


def run() -> dict[str, Any]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        _seconds(10)  # the actors' first start
        few, many = _seconds(FEW), _seconds(MANY)
    finally:
        ray.shutdown()
    with tempfile.TemporaryDirectory() as folder:
        file = write(SAMPLED, Path(folder, "fields.zarr"))
        marks = Folder(Path(folder, "a.zarr")).growing / "sample" / "c"
        marks.mkdir(parents=True)
        for block in range(MARKS):
            (marks / str(block)).write_bytes(b"1")
        began = time.process_time()
        assert len(Folder(Path(folder, "a.zarr")).listed("sample/c")) == MARKS
        listing = time.process_time() - began
    return {
        "blocks": [FEW, MANY], "workers": 2,
        "driver_processor_seconds_a_block": (many[0] - few[0]) / (MANY - FEW),
        "driver_more_bytes": many[1] - few[1],
        "listing_processor_seconds_a_block": listing / MARKS,
        "stored_bytes_a_sample": file.bytes / file.count, "field_shape": list(file.shape),
    }  # fmt: skip


def _seconds(blocks: int) -> tuple[float, int]:
    """Hand out blocks that do nothing; return the driver's processor time and memory."""

    class Nothing:  # local: it travels to the workers by value
        def __init__(self) -> None:
            self.blocks = blocks

        def units(self, block: int) -> int:
            return 1

        def named(self, block: int) -> str:
            return str(block)

        def finished(self) -> set[int]:
            return set()

        def join(self) -> None:
            pass

        def compute(self, block: int, report: Report) -> dict[str, float]:
            return {"seconds": 0.0}

        def give_up(self, block: int) -> None:
            pass

    began = time.process_time()
    OnRay(workers=2).run(Nothing())
    return time.process_time() - began, resident_bytes() or 0
