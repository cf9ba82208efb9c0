"""`python -m benchmarks.many_machines_page`: fill the last chapter of docs/many-machines.md from the newest records."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.page import DOCS, main
from benchmarks.record import latest

FILE = DOCS / "many-machines.md"
BEGIN, END = "<!-- from records: python -m benchmarks.many_machines_page -->\n", "<!-- end of records -->"
RUNS = ((10**4, 2), (10**5, 40), (10**6, 200), (10**7, 1000))  # samples, workers


def chapter(coordinator: dict[str, Any], cluster: dict[str, Any], projecting: dict[str, Any]) -> str:
    """Write the chapter; every figure comes from the records."""
    parts = [_reckoned(coordinator), _table(coordinator), _limits(coordinator), _memory(projecting), _seen(cluster)]
    return "\n\n".join(parts)


def _reckoned(found: dict[str, Any]) -> str:
    return (
        "Reckoned from processor times of one machine (`benchmarks/records/coordinator.jsonl`): a worker of one core takes "
        f"{1e3 * found['worker_processor_seconds_a_sample']:.0f} ms for a sample of `{found['command']}`, the driver "
        f"{1e3 * found['driver_processor_seconds_a_block']:.2f} ms for a block of {found['batch']}, and a sample takes "
        f"{found['stored_bytes_a_sample'] / 1e3:.0f} kB."
    )


def _table(found: dict[str, Any]) -> str:
    lines = [
        "| samples | workers | samples a second | time | store | files | load of the driver | looking for blocks |"
    ]
    lines.append("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for count, workers in RUNS:
        rate, blocks = workers / found["worker_processor_seconds_a_sample"], count / found["batch"]
        cells = [
            _whole(count),
            _whole(workers),
            f"{rate:.0f}",
            _time(count / rate),
            _size(count * found["stored_bytes_a_sample"]),
            _whole(round(blocks * found["files_a_block"])),
            f"{rate / found['batch'] * found['driver_processor_seconds_a_block']:.1%} of a core",
            f"{blocks * found['listing_processor_seconds_a_block']:.1g} s",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _limits(found: dict[str, Any]) -> str:
    driver, (few, many) = found["driver_processor_seconds_a_block"], found["blocks"]
    return (
        f"With blocks that take a second, a driver that feeds 1 000 workers is busy for {1e3 * driver:.0%} of a core; with "
        "shorter ones, choose a larger `--batch`, which makes fewer files too. The driver holds one number for every block "
        "that is left: "
        f"from {_whole(few)} to {_whole(many)} blocks its memory grew by {found['driver_more_bytes'] / 1e6:.1f} MB. Object "
        "stores are asked once per start for the list of finished blocks."
    )


def _memory(found: dict[str, Any]) -> str:
    few, many = (str(count) for count in found["counts"])
    growth = found["peak_bytes"][many] - found["peak_bytes"][few]
    return (
        f"Measured (`projecting.jsonl`): `snapfm project` of {many} fields took {growth / 1e6:.1f} MB more memory than of {few}; "
        f"the additional fields are {found['more_bytes_of_fields'] / 1e6:.0f} MB. Killed after "
        f"{found['blocks_kept_by_the_kill']} of "
        f"{found['blocks']} blocks and started again, its file was that of a run left alone: "
        f"{_yes(found['equal_after_the_kill'])}."
    )


def _seen(found: dict[str, Any]) -> str:
    return (
        f"Measured (`cluster.jsonl`): {found['nodes']} nodes on one machine, `{found['command']}`; {', '.join(found['events'])}. "
        f"The file was that of one process, byte by byte: {_yes(found['ray_equal'])}. That of four processes at once: "
        f"{_yes(found['parts_equal'])}. A worker held at most {found['peak_bytes']['worker'] / 1e6:.0f} MB, the driver "
        f"{found['peak_bytes']['driver'] / 1e6:.0f} MB."
    )


def _whole(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _yes(claim: bool) -> str:
    return "yes" if claim else "no"


def _time(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _size(count: float) -> str:
    return f"{count / 1e12:.2g} TB" if count >= 1e12 else f"{count / 1e9:.2g} GB"


def page() -> str:
    """Return the page with its last chapter filled."""
    text = FILE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    words = chapter(latest("coordinator"), latest("cluster"), latest("projecting"))
    return f"{head}{BEGIN}{words}\n{END}{tail}"


if __name__ == "__main__":
    sys.exit(main({FILE: page()}))
