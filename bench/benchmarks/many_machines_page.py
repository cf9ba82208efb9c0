"""`python -m benchmarks.many_machines_page`: write the last chapter of docs/many-machines.md from the newest records.

What was measured on one machine (`cluster`, `projecting`, `coordinator`, `ray_overhead`), and what follows for larger runs.
`--check` writes nothing and fails if the page differs from the records.
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.page import DOCS, main, told_sources
from benchmarks.record import RECORDS, latest
from snapfm_bench.pages.document import Table, markdown, table

FILE = DOCS / "many-machines.md"
BEGIN, END = "<!-- chapter: python -m benchmarks.many_machines_page -->", "<!-- end of chapter -->"
RUNS = ((10_000, 10), (1_000_000, 100), (10_000_000, 1000))  # samples and workers
BATCHES = (32, 512)
_MEASURED = "Written by `python -m benchmarks.many_machines_page` from `bench/records`; not edited by hand."


def page(now: str) -> str:
    """Put the chapter between its marks."""
    before, _, rest = now.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, f"{FILE.name} has lost its marks {BEGIN} and {END}"
    return f"{before}{BEGIN}\n\n{chapter()}\n\n{END}{after}"


def chapter() -> str:
    """Write what was measured, and what follows from it."""
    plan = latest("coordinator")
    overhead = latest("ray_overhead") if (RECORDS / "ray_overhead.jsonl").exists() else None
    return "\n\n".join(
        [
            "## Measured, and planned from that",
            f"{_MEASURED} {told_sources(_machines())} Nothing was run on more than one machine.",
            _faults(latest("cluster")),
            _projecting(latest("projecting")),
            *([] if overhead is None else [_overhead(overhead)]),
            _load(plan),
            markdown(_planned(plan)),
            _reading(plan),
        ]
    )


def _machines() -> dict[str, dict[str, Any]]:
    cases = ("cluster", "projecting", "ray_overhead", "coordinator")
    return {case: latest(case)["machine"] for case in cases if (RECORDS / f"{case}.jsonl").exists()}


def _faults(record: dict[str, Any]) -> str:
    few, many = record["peak_bytes"].values()
    counts = list(record["peak_bytes"])
    verdict = "the bits" if record["ray_equal"] and record["parts_equal"] else "NOT the bits"
    return (
        f"`{record['command']}` on a cluster of {record['nodes']} nodes on one machine: {'; '.join(record['events'])}. The file "
        f"has {verdict} of one process alone, and so has that of four processes at once (`--part K/4`). At most the driver held "
        f"{_mb(few['driver'])} for {counts[0]} samples and {_mb(many['driver'])} for {counts[1]}, a worker {_mb(few['worker'])} "
        f"and {_mb(many['worker'])}."
    )


def _projecting(record: dict[str, Any]) -> str:
    few, many = record["counts"]
    verdict = "ended with the same bits" if record["equal_after_the_kill"] else "did NOT end with the same bits"
    return (
        f"`snapfm project` of a Zarr file held at most {_mb(record['peak_bytes'][str(few)])} for {few:,} fields and "
        f"{_mb(record['peak_bytes'][str(many)])} for {many:,}, whose fields alone are {_mb(many * record['field_bytes'])}. "
        f"Killed after {record['blocks_kept_by_the_kill']} of {record['blocks']} blocks and started again it {verdict}."
    )


def _overhead(record: dict[str, Any]) -> str:
    wall = record["wall_seconds"]
    return (
        f"Two Ray workers take {wall['ray']:.1f} s for `{record['command']}`, two plain processes {wall['processes']:.1f} s, "
        f"starting Ray included. Between the first block and the last they draw {record['ratio']:.2f} times as many samples per "
        f"second (medians of {record['rounds']} runs; load of the machine before them {record['load']:.1f})."
    )


def _load(record: dict[str, Any]) -> str:
    few, many = record["workers"]
    one, other = (1e3 * spent for spent in record["driver_processor_seconds_a_block"])
    return (
        f"Processor time on this machine: a worker of `{record['command']}` takes "
        f"{record['worker_start_processor_seconds']:.1f} s to prepare and "
        f"{1e3 * record['worker_processor_seconds_a_sample']:.0f} ms for a sample; the driver takes {one:.2f} ms for a block "
        f"with {few} workers and {other:.2f} ms with {many:,} to look at. A sample takes "
        f"{record['stored_bytes_a_sample'] / 1e3:.0f} kB of disk, a block {record['files_a_block']:.0f} files, and a look at "
        f"which blocks are finished {1e6 * record['listing_processor_seconds_a_block']:.0f} µs for each. With these figures, "
        "and workers as fast as here:"
    )


def _planned(record: dict[str, Any]) -> Table:
    heads = (
        "samples", "workers", "batch", "samples per second", "hours", "store", "files", "blocks per second", "driver busy",
        "finished blocks listed in",
    )  # fmt: skip
    plain, slope = _driving(record)
    rows = []
    for samples, workers in RUNS:
        rate = workers / record["worker_processor_seconds_a_sample"]
        for batch in BATCHES:
            blocks = samples / batch
            rows.append(
                (
                    f"{samples:,}",
                    f"{workers:,}",
                    str(batch),
                    f"{rate:,.0f}",
                    f"{samples / rate / 3600:.2g}",
                    f"{samples * record['stored_bytes_a_sample'] / 1e9:,.0f} GB",
                    f"{blocks * record['files_a_block']:,.0f}",
                    f"{rate / batch:,.1f}",
                    f"{rate / batch * (plain + slope * workers):.1%}",
                    f"{1e3 * blocks * record['listing_processor_seconds_a_block']:,.1f} ms",
                )
            )
    return table(heads, rows)


def _reading(record: dict[str, Any]) -> str:
    small, large = (f"{_most_workers(record, batch):,.0f}" for batch in BATCHES)
    per_second = (
        record["workers"][1] / record["worker_processor_seconds_a_sample"] / BATCHES[0] * record["files_a_block"]
    )
    return (
        f"Samples per second grow with the workers until the driver is busy all the time: at {small} workers of this kind with a "
        f"batch of {BATCHES[0]}, at {large} with {BATCHES[1]}. The driver holds numbers of blocks, never fields. What a shared "
        f"file system feels first are small files: a thousand workers with a batch of {BATCHES[0]} create {per_second:,.0f} per "
        "second. Choose the batch so that a block takes a minute or more; a kill then loses at most that, and a worker holds one "
        "block in memory. This is arithmetic, not measurement: networks and shared disks are not in these figures."
    )


def _driving(record: dict[str, Any]) -> tuple[float, float]:
    """Return the driver's time for a block, and how much more it is for each worker, whom it looks at for every block."""
    (few, many), (fast, slow) = record["workers"], record["driver_processor_seconds_a_block"]
    slope = max(0.0, slow - fast) / (many - few)
    return fast - slope * few, slope


def _most_workers(record: dict[str, Any], batch: int) -> float:
    """Solve w (a + b w) = seconds of a block for w: the driver then has no time left."""
    (plain, slope), block = _driving(record), batch * record["worker_processor_seconds_a_sample"]
    return 2 * block / (plain + (plain**2 + 4 * slope * block) ** 0.5)


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


if __name__ == "__main__":
    sys.exit(main({FILE: page(FILE.read_text(encoding="utf-8"))}))
