"""`python -m benchmarks.cutest_page`: write docs/cutest.md, the CUTEst battery, from its newest record."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.cutest.methods import METHODS
from benchmarks.cutest.problems import LARGEST
from benchmarks.cutest.table import RIVALS, lines
from benchmarks.page import DOCS, main, told_sources
from benchmarks.record import latest
from snapfm_bench.pages.document import Table, markdown, table

_AGAINST = {
    "both": "both solve it", "same": "at the same distance", "nearer": "ours nearer", "farther": "ours farther",
    "only_ours": "only ours solves it", "only_ipopt": "only Ipopt solves it", "neither": "neither",
}  # fmt: skip


def page(record: dict[str, Any]) -> str:
    """Write the page; every figure in it comes from the record."""
    ran, machine = record["ran"], record["machine"]
    share = record["share"]
    best = max(share[who] for who in RIVALS)
    verdict = "as many as" if share["ours"] == best else "more than" if share["ours"] > best else "fewer than"
    return "\n\n".join(
        [
            "# CUTEst",
            "Written by `python -m benchmarks.cutest_page` from `bench/records/cutest.jsonl`; not edited by hand. "
            f"{told_sources({'cutest': machine})}",
            f"Start points of CUTEst problems with constraints and at most {LARGEST} unknowns, moved at random, and projected "
            f"onto the feasible set: {_which(ran)}, {record['problems']} of them, {record['pairs']} pairs of a problem "
            f"and a start, {ran['budget']:g} s each, one thread, on {machine['model']}.",
            f"Ours solves {share['ours']:.1%} of the pairs, {verdict} the better Ipopt's {best:.1%}; with both options together "
            f"Ipopt solves {share['ipopt_either']:.1%}.",
            "## What ours loses",
            "Pairs that Ipopt solves, with either options, and ours does not, by problem and how ours ended.",
            markdown(_lost(record)) if record["lost_to_ipopt"] else "None.",
            "## All pairs",
            "\n".join(lines(record)),
            "## Pair by pair",
            markdown(_against(record)),
        ]
    ) + "\n"  # fmt: skip


def _which(ran: dict[str, Any]) -> str:
    every = "all problems" if ran["every"] == 1 else f"every {ran['every']}th problem"
    return every if ran["share"] == "1/1" else f"share {ran['share']} of {every}"


def _against(record: dict[str, Any]) -> Table:
    rows = [(words, *(str(record["against"][who].get(key, 0)) for who in RIVALS)) for key, words in _AGAINST.items()]
    return table(("pairs", *(who for who in METHODS if who in RIVALS)), rows)


def _lost(record: dict[str, Any]) -> Table:
    rows = [(name, cause, str(count)) for name, own in record["lost_to_ipopt"].items() for cause, count in own.items()]
    return table(("problem", "how ours ended", "starts"), rows)


if __name__ == "__main__":
    sys.exit(main({DOCS / "cutest.md": page(latest("cutest"))}))
