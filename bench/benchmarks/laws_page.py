"""`python -m benchmarks.laws_page`: write docs/laws.md, all laws of the any-law suite against Ipopt, from the newest records."""

from __future__ import annotations

import sys
from statistics import median
from typing import Any

from benchmarks.any_law import rows
from benchmarks.any_law.methods import OURS, TUNED
from benchmarks.any_law.summary import DONE
from benchmarks.page import DOCS, main, told_sources
from snapfm.text import seconds
from snapfm_bench.pages.document import Entry, Table, markdown, table
from snapfm_bench.text import NOTHING, times

_ORDER = {"lost": 0, "neither": 1, "mixed": 2, "won": 3}  # what is lost comes first

Line = tuple[dict[str, Any], str, dict[str, Any]]  # a case, a level of noise, and its figures


def page(found: list[dict[str, Any]]) -> str:
    """Write the page; every figure in it comes from a record."""
    lines = [(row, level, figures) for row in found for level, figures in row["levels"].items()]
    lines.sort(key=lambda line: _ORDER[outcome(line)])  # stable: within one kind in the order of the records
    ended = [outcome(line) for line in lines]
    ratios = [figures["comparison"]["ratio"] for _, _, figures in lines if figures["comparison"]["ratio"]]
    return "\n\n".join(
        [
            "# Laws against Ipopt",
            "Written by `python -m benchmarks.laws_page` from `bench/records/any_law.jsonl`; not edited by hand. "
            f"{told_sources({'any_law': found[0]['machine']})}",
            f"All {len(found)} laws of the any-law suite, ours and Ipopt on one thread each, with the better of tuned and "
            f"default options; {_timeouts(found)} s of wall time per law and level, preparing included. "
            "*Accepted*: samples that the judge accepts, of those that were asked. *Ratio*: processor time of Ipopt over that of "
            "ours, per sample.",
            f"Of {len(lines)} rows ours wins {ended.count('won')}, loses {ended.count('lost')} and shares "
            f"{ended.count('mixed')}; in {ended.count('neither')} neither has a sample accepted. Won: at least as many "
            "accepted, none farther, and not slower. Lost: fewer accepted, or slower with no more accepted. "
            f"The ratio is {times(min(ratios))} to {times(max(ratios))}, median {times(median(ratios))}, where both have one.",
            f"The time limit decides some rows: Ipopt was asked for fewer samples than ours in {_fewer(lines)}, and has none "
            f"accepted in {_without(lines)} of those that ours wins. Two laws, `p_laplacian_32` and `divergence_energy_32`, were "
            "run again, because in their first run a kernel of ours was compiled inside the timed call.",
            markdown(rows_table(lines)),
        ]
    ) + "\n"  # fmt: skip


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
    """Tabulate what became of every law and level, what is lost first."""
    heads = (
        "law", "shape", "input", "outcome", "ours per sample", "accepted", "Ipopt per sample", "accepted", "ratio",
        "nearer / same / farther",
    )  # fmt: skip
    made: list[tuple[str | Entry, ...]] = []
    for line in lines:
        row, level, figures = line
        pair = figures["comparison"]
        name = pair["ipopt"] or TUNED
        made.append(
            (
                row["name"],
                "×".join(map(str, row["shape"])),
                level,
                Entry(outcome(line), first=outcome(line) == "lost"),
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


def _timeouts(found: list[dict[str, Any]]) -> str:
    return " or ".join(dict.fromkeys(f"{row['timeout']:g}" for row in found))


if __name__ == "__main__":
    sys.exit(main({DOCS / "laws.md": page(list(rows().values()))}))
