"""What large runs ask for: of a worker for a sample, of the driver of a Ray cluster for a block, of the disk for both.

Processor times and sizes, from which runs of 10⁷ samples on 1 000 workers can be reckoned. Needs snapfm[ray].
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from snapfm.files import Recipe, generate
from snapfm.files.engines import OnRay, Report
from snapfm.files.place import Folder, folder_bytes
from snapfm.files.run import Sampled
from snapfm.solve.single_thread import exactly
from snapfm_bench.machine import resident_bytes

FEW, MANY = 5000, 20_000  # blocks that do nothing
WORKERS = 1000  # most of them wait for a place, as they would for a block: the driver looks at all of them
MARKS = 31_250  # blocks of 32 of a million samples
SAMPLES = Recipe("burgers-ic-mass-flux", count=64, threads=1)  # two blocks


def run() -> dict[str, Any]:
    import ray

    load, (start, each) = os.getloadavg()[0], _drawing()
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        _driving(10, 2)  # the actors' first start
        two, thousand = ([_driving(blocks, workers) for blocks in (FEW, MANY)] for workers in (2, WORKERS))
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
        "blocks": [FEW, MANY], "workers": [2, WORKERS],
        "driver_processor_seconds_a_block": [(many[0] - few[0]) / (MANY - FEW) for few, many in (two, thousand)],
        "driver_more_bytes": [many[1] - few[1] for few, many in (two, thousand)],
        "listing_processor_seconds_a_block": listing / MARKS,
        "command": f"sample {SAMPLES.problem} --steps {SAMPLES.steps}", "batch": SAMPLES.batch,
        "worker_start_processor_seconds": start, "worker_processor_seconds_a_sample": each,
        "stored_bytes_a_sample": stored / SAMPLES.count, "files_a_block": len(chunks) * SAMPLES.batch / SAMPLES.count,
        "load": load,
    }  # fmt: skip


def _drawing() -> tuple[float, float]:
    """Draw two blocks of samples; return the processor time of preparing, and of a sample once all is prepared."""
    with exactly(SAMPLES.threads):
        clock = [time.process_time()]
        source = Sampled(SAMPLES)
        for start in (0, SAMPLES.batch):
            source.draw(start, start + SAMPLES.batch, lambda share: None)
            clock.append(time.process_time())
    first, second = clock[1] - clock[0], clock[2] - clock[1]
    return first - second, second / SAMPLES.batch


def _driving(blocks: int, workers: int) -> tuple[float, int]:
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
    OnRay(workers=workers).run(Nothing())
    return time.process_time() - began, resident_bytes() or 0
