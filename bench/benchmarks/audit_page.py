"""`python -m benchmarks.audit_page`: write docs/audit.md from the newest record of the case `audit`."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import Any

from benchmarks.page import DOCS, main, told_sources
from benchmarks.record import latest
from snapfm_bench.audit import LEAST_ORDER, ROUNDING
from snapfm_bench.text import settings_text


def page(record: dict[str, Any]) -> str:
    """Write the page; every figure in it comes from the record or from the code that judged."""
    rows = record["rows"]
    against = [f"`{row['problem']}` {_named(row)}" for row in rows if row["verdict"] == "contradicted"]
    parts = [
        "# Which laws the data obey",
        "Written by `python -m benchmarks.audit_page` from `bench/records/audit.jsonl`; not edited by hand. "
        f"`snapfm audit all` makes the same table. {told_sources({'audit': record['machine']})}",
        f"Every law was evaluated on {record['samples']} simulated fields per set (seed {record['seed']}), under the same "
        "conditions and with the same params as samples.",
        "- **error**: mean and largest ‖R‖₂ over fields, in the law's own units: the metric of published results.\n"
        "- **left over**: the share of the law's terms that do not cancel ([math](math.md), eq. leftover).\n"
        "- **order**: log₂ of the factor by which halving the grid spacing reduces what is left over, in space and time or in "
        "the one that shows it.",
        "| verdict | when | why |\n|---|---|---|\n"
        f"| obeyed | left over ≤ {ROUNDING:g} | rounding leaves up to {max(_shares(rows, 'obeyed')):.0e} here, "
        f"schemes at least {min(_shares(rows, 'approximately')):.0e}: the limit lies in between |\n"
        f"| approximately | order ≥ {LEAST_ORDER:g} | what is left is the scheme's error: a first-order scheme has "
        "order 1 |\n"
        f"| contradicted | order < {LEAST_ORDER:g} | finer grids do not reduce it: the equation does not imply the law |",
        f"Contradicted: {'; '.join(against)}. Leave these out when you judge the quality of samples.",
    ]
    for name, group in groupby(rows, lambda row: row["problem"]):
        table = ["| law | setting | rows | error, mean | error, largest | left over | order | verdict |"]
        table.append("|---|---|---:|---:|---:|---:|---:|---|")
        table += [_row(row) for row in group]
        parts += [f"## {name}", "\n".join(table)]
    return "\n\n".join(parts) + "\n"


def _shares(rows: list[dict[str, Any]], verdict: str) -> list[float]:
    return [row["leftover"] for row in rows if row["verdict"] == verdict]


def _row(row: dict[str, Any]) -> str:
    figures = [f"{row[key]:.1e}" if row[key] else "0" for key in ("error", "largest", "leftover")]
    order = "" if row["order"] is None else f"{max(row['order'], 0.0):.1f}"
    if row["order"] is not None and row["verdict"] != "contradicted" and row["refined"] != "space and time":
        order += f" ({row['refined']})"
    cells = [row["law"], settings_text(row["settings"]).lower(), str(row["rows"]), *figures, order, row["verdict"]]
    return f"| {' | '.join(cells)} |"


def _named(row: dict[str, Any]) -> str:
    return row["law"] + (f" ({settings_text(row['settings']).lower()})" if row["settings"] else "")


if __name__ == "__main__":
    sys.exit(main({DOCS / "audit.md": page(latest("audit"))}))
