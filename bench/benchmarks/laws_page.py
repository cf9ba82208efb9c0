"""`python -m benchmarks.laws_page`: write docs/laws.md, all laws of the any-law suite against Ipopt, from the newest records."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from statistics import median
from typing import Any

from benchmarks.any_law import rows
from benchmarks.any_law.case import CASES
from benchmarks.any_law.methods import OURS, TUNED
from benchmarks.any_law.summary import DONE
from benchmarks.page import DOCS, main, told_sources
from snapfm.text import seconds
from snapfm_bench.pages.document import Table, markdown, table
from snapfm_bench.text import NOTHING, times

_SECTIONS = {"lost": "Lost", "neither": "Neither", "mixed": "Shared", "won": "Won"}  # what is lost comes first

Line = tuple[dict[str, Any], str, dict[str, Any]]  # a case, a level of noise, and its figures


def page(found: list[dict[str, Any]], known: Iterable[str] = CASES) -> str:
    """Write the page; every figure in it comes from a record. Laws of `known` without a record are named."""
    lines = [(row, level, figures) for row in found for level, figures in row["levels"].items()]
    by_end = {end: [line for line in lines if outcome(line) == end] for end in _SECTIONS}
    ratios = [figures["comparison"]["ratio"] for _, _, figures in lines if figures["comparison"]["ratio"]]
    missing = [name for name in known if name not in {row["name"] for row in found}]
    parts = [
        "# Laws against Ipopt",
        "Written by `python -m benchmarks.laws_page` from `bench/records/any_law.jsonl`; not edited by hand. "
        f"{told_sources({'any_law': found[0]['machine']})}{_runs(found)}",
        f"{len(found)} laws of the any-law suite{'' if missing else ', which are all'}; ours and Ipopt on one thread each, "
        f"with the better of tuned and default options; {_timeouts(found)} s of wall time per law and level, preparing included. "
        "*Accepted*: samples that the judge accepts, of those that were asked. *Ratio*: processor time of Ipopt over that of "
        "ours, per sample.",
        f"Of {len(lines)} rows ours wins {len(by_end['won'])}, loses {len(by_end['lost'])} and shares {len(by_end['mixed'])}; in "
        f"{len(by_end['neither'])} neither has a sample accepted. Won: at least as many accepted, none farther, and not slower. "
        "Lost: fewer accepted, or slower with no more accepted. "
        f"The ratio is {times(min(ratios))} to {times(max(ratios))}, median {times(median(ratios))}, where both have one.",
        f"The time limit decides some rows: Ipopt was asked for fewer samples than ours in {_fewer(lines)}, and has none "
        f"accepted in {_without(lines)} of those that ours wins.",
    ]
    if missing:
        parts += [f"Not run yet: {', '.join(f'`{name}`' for name in missing)}."]
    for end, head in _SECTIONS.items():
        parts += [f"## {head}", markdown(rows_table(by_end[end])) if by_end[end] else "None."]
    return "\n\n".join(parts) + "\n"


def outcome(line: Line) -> str:
    """Say whether ours wins a row, loses it, or neither."""
    _, _, figures = line
    pair, ours = figures["comparison"], figures[OURS]
    own, other = ours.get("certified", 0), figures[pair["ipopt"]]["certified"] if pair["ipopt"] else 0
    asked = (
        min(ours.get("asked", 0) or other, figures[pair["ipopt"]]["asked"]) if pair["ipopt"] else ours.get("asked", 0)
    )
    if not own and not other:
        return "neither"
    slower = pair["ratio"] is not None and pair["ratio"] < 1.0
    if (
        ours["state"] != DONE
        or min(own, asked) < min(other, asked)
        or not own
        or pair["only_ipopt"] > pair["only_ours"]
    ):
        return "lost"
    if slower:
        return "lost" if not pair["only_ours"] else "mixed"
    return "mixed" if pair["farther"] else "won"


def rows_table(lines: list[Line]) -> Table:
    """Tabulate what became of laws and levels."""
    heads = (
        "law", "shape", "input", "ours per sample", "accepted", "Ipopt per sample", "accepted", "ratio",
        "nearer / same / farther",
    )  # fmt: skip
    made: list[tuple[str, ...]] = []
    for line in lines:
        row, level, figures = line
        pair = figures["comparison"]
        name = pair["ipopt"] or TUNED
        made.append(
            (
                row["name"],
                "×".join(map(str, row["shape"])),
                level,
                *_figures(figures[OURS]),
                *_figures(figures[name]),
                NOTHING if pair["ratio"] is None else times(pair["ratio"]),
                f"{pair['nearer']} / {pair['same']} / {pair['farther']}",
            )
        )
    return table(heads, made)


def _figures(found: dict[str, Any]) -> tuple[str, str]:
    if found["state"] != DONE:
        return str(found["state"]), NOTHING
    return seconds(found["seconds"]), f"{found['certified']} of {found['asked']}"


def _fewer(lines: list[Line]) -> int:
    """Count the rows where Ipopt finished fewer samples than ours within the time."""
    return sum(_of_ipopt(figures).get("asked", 0) < figures[OURS].get("asked", 0) for _, _, figures in lines)


def _without(lines: list[Line]) -> int:
    """Count the rows that ours wins and Ipopt has no accepted sample in."""
    return sum(outcome(line) == "won" and not _of_ipopt(line[2]).get("certified", 0) for line in lines)


def _of_ipopt(figures: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = figures[figures["comparison"]["ipopt"] or TUNED]
    return found


def _runs(found: list[dict[str, Any]]) -> str:
    """Say where rows are not of one run on one state of the code."""
    codes = Counter(row["code"] for row in found)
    shares = ", ".join(str(count) for _, count in codes.most_common())
    return "" if len(codes) == 1 else f" Rows are of {len(codes)} states of the code: {shares} of them."


def _timeouts(found: list[dict[str, Any]]) -> str:
    return " or ".join(dict.fromkeys(f"{row['timeout']:g}" for row in found))


if __name__ == "__main__":
    sys.exit(main({DOCS / "laws.md": page([row for name, row in rows().items() if name in CASES])}))
