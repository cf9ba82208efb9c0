"""`python -m benchmarks.projection_page`: write docs/projection.md from the newest records of its cases."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from benchmarks.page import DOCS, main
from benchmarks.record import latest


def page() -> str:
    """Write the page; every figure in it comes from a record."""
    peers = latest("peers")
    return "\n\n".join(
        [
            "# How well and how fast projection works",
            "Written by `python -m benchmarks.projection_page` from `bench/records/`; not edited by hand. "
            f"Machine: {peers['machine']['model']}, {peers['machine']['cores']} cores, no GPU.",
            "## Robustness",
            _robustness(latest("robustness")),
            "## Against Ipopt",
            _ipopt(latest("ipopt")),
            _random(latest("random_problems")),
            "## Time",
            _peers(peers),
            _batch(latest("batch")),
        ]
    ) + "\n"  # fmt: skip


def _robustness(record: dict[str, Any]) -> str:
    rows = [
        (
            row["problem"], row["input"], row.get("distinct", "–"),
            f"{100 * row['statuses'].get('CONVERGED', 0) / record['samples']:.1f} %", row["iterations_median"],
            row["iterations_worst"], f"{row['violation_worst']:.0e}", f"{row['gap_worst']:.0e}",
        )
        for row in record["rows"]
        if isinstance(row["statuses"], dict)
    ]  # fmt: skip
    head = (
        "problem",
        "input",
        "distinct inputs",
        "converged",
        "iterations, median",
        "worst",
        "violation, worst",
        "stationarity, worst",
    )
    absent = sorted({row["problem"] for row in record["rows"] if not isinstance(row["statuses"], dict)})
    text = (
        f"{record['samples']} inputs of each kind, made from {record['distinct_fields']} true fields and their conditions, "
        f"tolerance {record['tolerance']:g}."
    )
    if absent:
        text += f" Raw model output is missing where no model is shipped: {', '.join(absent)}."
    return f"{text}\n\n{_table(head, rows)}"


def _ipopt(record: dict[str, Any]) -> str:
    head = ("problem", "input", "both converged", "equal to 1e-8", "ours nearer", "ours farther", "false claims")
    rows = [
        (
            row["problem"], row["input"], row["both_arrived"], row["equal"], row["ours_nearer"], row["ours_farther"],
            row["ours"]["false_claims"],
        )
        for row in record["rows"]
    ]  # fmt: skip
    return (
        "Objective ½‖u − û‖² of 8 samples each, ours with tolerance 1e-8 and Ipopt with 1e-10. A false claim would be a "
        f"CONVERGED sample that an independent judge finds unlawful or not stationary.\n\n{_table(head, rows)}"
    )


def _random(record: dict[str, Any]) -> str:
    return (
        f"{record['problems']} random small problems with equalities, inequalities and bounds: both converged on "
        f"{record['both_arrived']} ({record['equal']} equal, {record['ours_nearer']} nearer, {record['ours_farther']} "
        f"farther), only Ipopt on {record['only_ipopt']}, only ours on {record['only_ours']}; {record['false_claims']} false "
        "claims."
    )


def _peers(record: dict[str, Any]) -> str:
    head = (
        "problem",
        "samples",
        "input",
        "ours, ms per sample",
        "in copies of the batch",
        *(f"{name} / ours" for name in _PEERS),
    )
    rows = [
        (
            row["problem"], row["samples"], row["input"], f"{row['methods']['ours']['ms']:.2f}", f"{row['ours_in_copies']:.0f}",
            *(_ratio(row["methods"].get(name)) for name in _PEERS),
        )
        for row in record["rows"]
    ]  # fmt: skip
    return (
        f"Hot calls, tolerance {record['tolerance']:g}, medians within one run. Peers are timed without their certificate, "
        "ours with it. *In copies of the batch*: our time divided by that of copying the batch. – : the peer does not handle "
        f"these laws.\n\n{_table(head, rows)}"
    )


_PEERS = ("rootfinder_1", "rootfinder_2", "ipopt", "ipopt_2_processes", "gauss_newton")


def _ratio(found: Any) -> str:
    if not isinstance(found, dict):
        return "–"
    share = found.get("converged", 1.0)
    return f"{found['times_ours']:.1f}" + ("" if share == 1.0 else f" ({100 * share:.0f} % converged)")


def _batch(record: dict[str, Any]) -> str:
    growth = [(name, f"{value:.2f}") for name, value in record["samples_exponent_8_to_1024"].items()]
    memory = [(row["problem"], row["samples"], f"{row['peak_over_batch']:.1f}") for row in record["memory"]]
    grid = [
        (f"{row['unknowns']:,}", row["rows"], f"{1e3 * row['seconds']:.0f}", f"{row['cold_seconds']:.1f}")
        for row in record["grid"]
    ]
    return "\n\n".join(
        [
            "Growth of time with the number of samples, 8 to 1024 (exponent of a power law):",
            _table(("problem", "exponent"), growth),
            f"Growth of time with the grid, Burgers with five flux steps, one sample (exponent {record['grid_exponent']:.2f}):",
            _table(("unknowns", "rows", "ms", "seconds to prepare"), grid),
            "Peak memory above the input, in units of the batch in float64:",
            _table(("problem", "samples", "times the batch"), memory),
        ]
    )


def _table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    sys.exit(main({DOCS / "projection.md": page()}))
