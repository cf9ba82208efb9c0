"""What large runs ask for: of a worker for a sample, of the driver of a Ray cluster for a block, of the disk for both.

Processor times and sizes, from which runs of 10⁷ samples on 1 000 workers can be reckoned. Needs snapfm[ray].
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from snapfm.data.place import Folder, folder_bytes
from snapfm.evidence.machine import resident_bytes
from snapfm.generate import Recipe, generate
from snapfm.generate.run import Sampled
from snapfm.runs import OnRay, Report

FEW, MANY = 5000, 20_000  # blocks that do nothing
MARKS = 31_250  # blocks of 32 of a million samples
SAMPLES = Recipe("burgers-ic-mass-flux", count=64, threads=1)  # two blocks


def run() -> dict[str, Any]:
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        _seconds(10)  # the actors' first start
        few, many = _seconds(FEW), _seconds(MANY)
    finally:
        ray.shutdown()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "samples.zarr")
        generate(SAMPLES, out)
        chunks = [file for file in out.rglob("*") if file.is_file() and "c" in file.relative_to(out).parts[1:]]
        stored = folder_bytes(out)
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
        "command": f"sample {SAMPLES.problem} --steps {SAMPLES.steps}", "batch": SAMPLES.batch,
        "worker_processor_seconds_a_sample": _drawing(), "stored_bytes_a_sample": stored / SAMPLES.count,
        "files_a_block": len(chunks) * SAMPLES.batch / SAMPLES.count,
    }  # fmt: skip


def _drawing() -> float:
    """Draw the second block of samples, with everything prepared by the first; return the processor time for one."""
    source = Sampled(SAMPLES)
    source.draw(0, SAMPLES.batch, lambda share: None)
    began = time.process_time()
    source.draw(SAMPLES.batch, 2 * SAMPLES.batch, lambda share: None)
    return (time.process_time() - began) / SAMPLES.batch


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
