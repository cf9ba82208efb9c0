"""`python -m benchmarks.inequalities_page`: write docs/inequalities.md from the newest record of the case `inequalities`."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.page import DOCS, main, told_sources
from benchmarks.record import latest
from snapfm.text import scientific, seconds
from snapfm_bench.pages.document import Entry, Table, markdown, table
from snapfm_bench.text import NOTHING, settings_text


def page(record: dict[str, Any]) -> str:
    """Write the page; every figure in it comes from the record or from those that others published."""
    machine = record["machine"]
    return "\n\n".join(
        [
            "# Inequalities as published",
            "Written by `python -m benchmarks.inequalities_page` from `bench/records/inequalities.jsonl`; not edited by "
            f"hand. {told_sources({'inequalities': machine})}",
            f"{record['samples']} samples, {record['steps']} flow steps, seed {record['seed']}, on {machine['cores']} cores "
            f"({machine['processor']}), no GPU. *Feasible*: the share of fields that break no row of any law by more than "
            f"{record['feasible_at']:g}. *Certified*: lawful to {record['tolerance']:g} and stationary. *Published* is the "
            "figure of I-PCFM as others quote it; we have not read the original. It is of another model, other data and other "
            "hardware, for the task with laws of the same names: it is no comparison of methods. True fields of Burgers "
            "break the entropy condition of convexity 1 by the error of their scheme ([math](math.md), eq. oleinik).",
            markdown(_table(record)),
        ]
    ) + "\n"  # fmt: skip


def _table(record: dict[str, Any]) -> Table:
    heads = ("task", "fields", "feasible", "certified", "largest violation", "time per sample")
    rows: list[tuple[str | Entry, ...]] = []
    told: set[str] = set()
    for row in record["rows"]:
        name = row["problem"] + (f", {settings_text(row['settings'])}" if row["settings"] else "")
        if row["problem"] not in told:
            told.add(row["problem"])
            theirs = row["published"]
            given = (f"{theirs['feasible']:.2f}", NOTHING, NOTHING, seconds(theirs["seconds"]))
            rows.append((name, f"{theirs['source']}, published", *given))
        if row["state"] != "DONE":
            rows.append((name, row["method"], row["state"]))
            continue
        certified = row.get("certified")
        rows.append(
            (
                name,
                row["method"],
                f"{row['feasible']:.2f}",
                NOTHING if certified is None else f"{certified:.2f}",
                scientific(max(row["violation_worst"].values())),
                seconds(row["seconds_a_sample"]) if "seconds_a_sample" in row else NOTHING,
            )
        )
    return table(heads, rows)


if __name__ == "__main__":
    sys.exit(main({DOCS / "inequalities.md": page(latest("inequalities"))}))
